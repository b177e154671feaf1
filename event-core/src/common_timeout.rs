//! The timers of a loop: the heap, and a queue for each duration that many timers have in common.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Time, nanos};
use crate::error::Error;
use crate::heap::{Entry, Heap, NO_SLOT, Promise};
use crate::slots::Key;

/// At most so many queues a loop, libevent's number: each may have an entry in the heap.
const MAX_QUEUES: u32 = 256;

/// So many timers that one callback arms are each counted from a reading of the clock of their own: more than most
/// callbacks arm. Only what one arms beyond them shares readings.
const EXACT: u32 = 16;

/// So many timers share a reading of the clock, which costs more than everything else about arming one.
const SHARE: usize = 8;

/// No slot, no queue.
const NONE: u32 = u32::MAX;

/// The number of the next loop that has a common timeout; 0 is none.
static NEXT_OWNER: AtomicU64 = AtomicU64::new(1);

/// A duration that many timers of one loop have in common: see [`LoopHandle::common_timeout`].
///
/// Free to copy. It belongs to its loop; another one refuses it.
///
/// [`LoopHandle::common_timeout`]: crate::LoopHandle::common_timeout
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommonTimeout {
    /// Of the loop.
    owner: u64,
    queue: u32,
    duration: Duration,
}

impl CommonTimeout {
    /// The duration.
    pub fn duration(self) -> Duration {
        self.duration
    }
}

/// The timers of one duration, first armed first.
#[derive(Debug)]
struct Queue {
    duration: Duration,
    /// Slots, or `NONE` if the queue is empty.
    first: u32,
    last: u32,
    len: usize,
}

/// What is known of one slot's timer that is, or was last, in a queue.
#[derive(Clone, Copy, Debug)]
struct Node {
    deadline: Time,
    /// Its place in the order of arming.
    seq: u32,
    prev: u32,
    next: u32,
    /// The queue it was armed in last, `NONE` if it was armed by itself. Stays when it is taken out: see `rearm`.
    home: u32,
    /// Whether it stands in that queue.
    linked: bool,
}

const FREE: Node = Node { deadline: Time::NEVER, seq: 0, prev: NONE, next: NONE, home: NONE, linked: false };

/// How a slot is called in the heap: the queues come first. The index of no slot, which is `u32::MAX`, becomes a name
/// between the two that is nobody's.
#[inline]
fn in_heap(slot: u32) -> u32 {
    slot.wrapping_add(MAX_QUEUES + 1)
}

/// At most one timer a slot, by itself in the heap or in a queue.
///
/// A queue stands in the heap with the deadline, and with the place in the order of arming, of its first timer. So the
/// order is the same as if all stood in the heap, and a queue costs O(1) but for the heap's own work, which grows with
/// the other timers and queues and not with the queue.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Queues come first, then slots: see `in_heap`.
    heap: Heap,
    queues: Vec<Queue>,
    /// Indexed by slot; empty in a loop that has no common timeouts.
    nodes: Vec<Node>,
    /// 0 until the first common timeout is asked for.
    owner: u64,
    /// How many timers the running callback has armed, up to `EXACT`.
    armed: u32,
    /// Those of the running callback that wait for a reading of the clock, in the order of arming. The clock is read when
    /// there are `SHARE`, when somebody wants to know a deadline, or when the callback ends: never before the call that
    /// armed one, so none is early.
    promised: [Promise; SHARE],
    promises: usize,
}

impl Timers {
    pub(crate) fn new() -> Timers {
        Timers { heap: Heap::new(), ..Timers::default() }
    }

    /// The common timeout of this duration, made if it is new.
    pub(crate) fn common(&mut self, duration: Duration) -> Result<CommonTimeout, Error> {
        let known = self.queues.iter().position(|queue| queue.duration == duration);
        let queue = known.unwrap_or(self.queues.len()) as u32;
        if queue >= MAX_QUEUES {
            return Err(Error::Invalid("a loop has at most 256 common timeouts"));
        }
        if known.is_none() {
            self.queues.push(Queue { duration, first: NONE, last: NONE, len: 0 });
        }
        if self.owner == 0 {
            self.owner = NEXT_OWNER.fetch_add(1, Ordering::Relaxed);
        }
        Ok(CommonTimeout { owner: self.owner, queue, duration })
    }

    /// Whether a common timeout is of this loop.
    pub(crate) fn owns(&self, common: CommonTimeout) -> bool {
        common.owner == self.owner
    }

    /// Whether the running callback has armed so many timers that more share a reading of the clock.
    #[inline]
    pub(crate) fn is_sharing(&self) -> bool {
        self.armed == EXACT
    }

    /// A callback has armed a timer by a reading of its own.
    pub(crate) fn armed_one(&mut self) {
        self.armed = (self.armed + 1).min(EXACT);
    }

    /// While `is_sharing`: arms the timer of a slot that is alone. Tells whether it was armed; `None` if the slot is not
    /// alone.
    #[inline]
    pub(crate) fn promise_alone(&mut self, key: Key, after: Duration) -> Option<bool> {
        let slot = in_heap(key.index);
        let was_armed = self.heap.promise_alone(slot, key.generation)?;
        if let Some(promise) = self.promised.get_mut(self.promises) {
            *promise = Promise { after: nanos(after), slot };
            self.promises += 1;
        }
        Some(was_armed)
    }

    /// Whether `keep_promises` must be called before `promise_alone` is.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.promises == SHARE
    }

    /// Disarms the timer of a slot that is alone. Tells whether it was armed; `None` if the slot is not alone.
    #[inline]
    pub(crate) fn remove_alone(&mut self, key: Key) -> Option<bool> {
        let was_armed = self.heap.remove_alone(in_heap(key.index), key.generation)?;
        self.take_back(key.index);
        Some(was_armed)
    }

    /// Arms the timer of a slot that is alone. Tells whether it was armed; `None` if the slot is not alone.
    pub(crate) fn arm_alone(&mut self, key: Key, after: Duration, clock: impl Fn() -> Time) -> Option<bool> {
        let slot = in_heap(key.index);
        if !self.heap.is_alone(slot, key.generation) {
            return None;
        }
        let now = clock();
        self.keep_promises(|| now);
        Some(self.heap.set(slot, now.after(after)))
    }

    /// See the heap's. Such a timer does not stand in a queue.
    pub(crate) fn set_alone(&mut self, slot: u32, generation: Option<u32>) {
        self.heap.set_alone(in_heap(slot), generation);
    }

    /// No callback runs any more, or the next one is about to.
    #[inline]
    pub(crate) fn callback_ended(&mut self, clock: impl Fn() -> Time) {
        if self.armed > 0 {
            self.armed = 0;
            self.keep_promises(clock);
        }
    }

    /// Sets the deadlines that are not known yet. To be called before deadlines are asked for.
    #[inline]
    pub(crate) fn keep_promises(&mut self, clock: impl Fn() -> Time) {
        if self.promises > 0 {
            self.keep_promises_at(clock());
        }
    }

    #[inline(never)]
    fn keep_promises_at(&mut self, now: Time) {
        self.heap.keep(&self.promised[..self.promises], now);
        self.promises = 0;
    }

    /// The slot's timer is disarmed, or armed by another call.
    #[inline]
    fn take_back(&mut self, slot: u32) {
        if self.promises > 0 {
            for promise in &mut self.promised[..self.promises] {
                if promise.slot == in_heap(slot) {
                    promise.slot = NO_SLOT;
                }
            }
        }
    }

    /// Arms the slot's timer by itself, or moves it; either way it is now the last of its deadline.
    #[inline]
    pub(crate) fn set(&mut self, slot: u32, deadline: Time) {
        self.take_back(slot);
        if !self.nodes.is_empty() {
            self.leave(slot);
            if let Some(node) = self.nodes.get_mut(slot as usize) {
                node.home = NONE;
            }
        }
        self.heap.set(in_heap(slot), deadline);
    }

    /// Arms the slot's timer at the end of a queue of this loop, counted from `now`.
    pub(crate) fn set_common(&mut self, slot: u32, common: CommonTimeout, now: Time) {
        self.remove(slot);
        self.enter(slot, common.queue, now.after(common.duration));
    }

    /// Arms the slot's timer anew where it was armed last: by itself, or in the same queue.
    #[inline]
    pub(crate) fn rearm(&mut self, slot: u32, deadline: Time) {
        self.take_back(slot);
        match self.nodes.get(slot as usize) {
            Some(&Node { home, .. }) if home != NONE => {
                self.leave(slot);
                self.enter(slot, home, deadline);
            }
            _ => _ = self.heap.set(in_heap(slot), deadline),
        }
    }

    /// Disarms the slot's timer; tells whether it was armed.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        self.take_back(slot);
        self.heap.remove(in_heap(slot)) || !self.nodes.is_empty() && self.leave(slot)
    }

    #[inline]
    pub(crate) fn deadline(&self, slot: u32) -> Option<Time> {
        debug_assert!(self.promised[..self.promises].iter().all(|promise| promise.slot != in_heap(slot)));
        let alone = self.heap.deadline(in_heap(slot));
        if self.nodes.is_empty() {
            return alone;
        }
        alone.or_else(|| self.nodes.get(slot as usize).filter(|node| node.linked).map(|node| node.deadline))
    }

    #[inline]
    pub(crate) fn is_armed(&self, slot: u32) -> bool {
        self.heap.is_armed(in_heap(slot)) || !self.nodes.is_empty() && self.is_queued(slot)
    }

    /// Whether the slot's timer stands in a queue.
    pub(crate) fn is_queued(&self, slot: u32) -> bool {
        self.nodes.get(slot as usize).is_some_and(|node| node.linked)
    }

    /// The nearest deadline and its slot.
    #[inline]
    pub(crate) fn first(&mut self) -> Option<(Time, u32)> {
        debug_assert_eq!(self.promises, 0);
        let (deadline, id) = self.heap.first()?;
        let slot = id.checked_sub(MAX_QUEUES + 1).unwrap_or_else(|| self.queues[id as usize].first);
        Some((deadline, slot))
    }

    /// Takes out the timers whose deadline has passed and appends them in their order; see the heap's. Tells whether all
    /// of them are alone.
    pub(crate) fn take_due(&mut self, now: Time, due: &mut Vec<Entry>) -> bool {
        debug_assert_eq!(self.promises, 0);
        if self.queues.iter().any(|queue| queue.len > 0) {
            while let Some((deadline, slot)) = self.first().filter(|first| first.0 <= now) {
                self.remove(slot);
                self.heap.set_due(in_heap(slot));
                due.push(Entry::new(deadline, slot));
            }
            return false;
        }
        let from = due.len();
        let are_alone = self.heap.take_due(now, due);
        for entry in &mut due[from..] {
            entry.slot -= MAX_QUEUES + 1;
        }
        are_alone
    }

    /// Whether the slot's timer is still due; if so it is no more, and not armed.
    #[inline]
    pub(crate) fn fire(&mut self, slot: u32) -> bool {
        self.heap.fire(in_heap(slot))
    }

    /// Whether the slot's timer was taken out by `take_due`, and nothing has happened to it since.
    #[inline]
    pub(crate) fn is_due(&self, slot: u32) -> bool {
        self.heap.is_due(in_heap(slot))
    }

    /// How many timers are armed and have a deadline.
    pub(crate) fn len(&self) -> usize {
        let in_use = self.queues.iter().filter(|queue| queue.len > 0);
        in_use.fold(self.heap.len(), |len, queue| len - 1 + queue.len)
    }

    /// Puts the slot's timer, which is not armed, at the end of a queue.
    fn enter(&mut self, slot: u32, queue_at: u32, wanted: Time) {
        if self.nodes.len() <= slot as usize {
            self.nodes.resize(slot as usize + 1, FREE);
        }
        let seq = self.heap.take_seq();
        let queue = &mut self.queues[queue_at as usize];
        let last = std::mem::replace(&mut queue.last, slot);
        queue.len += 1;
        // What is counted from a moment that has passed waits for what was armed since: no search, and never early.
        let deadline = match self.nodes.get_mut(last as usize) {
            Some(before) => {
                before.next = slot;
                wanted.max(before.deadline)
            }
            None => {
                queue.first = slot;
                self.heap.set_in_order(queue_at, wanted, seq);
                wanted
            }
        };
        self.nodes[slot as usize] =
            Node { deadline, seq, prev: last, next: NONE, home: queue_at, linked: true };
    }

    /// Takes the slot's timer out of the queue it stands in, if it does.
    fn leave(&mut self, slot: u32) -> bool {
        let Some(node) = self.nodes.get_mut(slot as usize).filter(|node| node.linked) else { return false };
        node.linked = false;
        let Node { prev, next, home, .. } = *node;
        let queue = &mut self.queues[home as usize];
        queue.len -= 1;
        match self.nodes.get_mut(next as usize) {
            Some(after) => after.prev = prev,
            None => queue.last = prev,
        }
        match self.nodes.get_mut(prev as usize) {
            Some(before) => before.next = next,
            None => {
                queue.first = next;
                match self.nodes.get(next as usize) {
                    Some(first) => _ = self.heap.set_in_order(home, first.deadline, first.seq),
                    None => _ = self.heap.remove(home),
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::few::few_under_miri;

    fn at(n: u64) -> Time {
        Time::from_nanos(n)
    }

    fn nanos(n: u64) -> Duration {
        Duration::from_nanos(n)
    }

    fn drain(timers: &mut Timers) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| {
            let (deadline, slot) = timers.first()?;
            assert_eq!(timers.deadline(slot), Some(deadline));
            assert!(timers.remove(slot));
            Some((deadline.as_nanos(), slot))
        })
        .collect()
    }

    #[test]
    fn timers_of_queues_and_of_the_heap_fire_in_one_order() {
        let mut timers = Timers::new();
        let (ten, twenty) = (timers.common(nanos(10)).unwrap(), timers.common(nanos(20)).unwrap());
        timers.set(0, at(20));
        timers.set_common(1, ten, at(10));
        timers.set_common(2, twenty, at(0));
        timers.set_common(3, ten, at(10));
        timers.set(4, at(20));
        assert_eq!(timers.len(), 5);
        assert_eq!(drain(&mut timers), [(20, 0), (20, 1), (20, 2), (20, 3), (20, 4)]);
        assert_eq!((timers.len(), timers.first()), (0, None));
    }

    #[test]
    fn a_timer_is_armed_anew_where_it_was_armed_last() {
        let mut timers = Timers::new();
        let ten = timers.common(nanos(10)).unwrap();
        timers.set_common(0, ten, at(0));
        assert!(timers.remove(0));
        timers.rearm(0, at(20));
        assert_eq!(timers.queues[0].len, 1);
        timers.set(0, at(30));
        timers.rearm(0, at(40));
        assert_eq!((timers.queues[0].len, timers.deadline(0)), (0, Some(at(40))));
    }

    #[test]
    fn an_index_of_no_slot_has_no_timer_and_is_no_queue() {
        let mut timers = Timers::new();
        for n in 0..256 {
            let common = timers.common(nanos(n)).unwrap();
            timers.set_common(n as u32, common, at(0));
        }
        for slot in (256..600).chain([NONE]) {
            assert_eq!((timers.deadline(slot), timers.remove(slot)), (None, false));
        }
        assert_eq!(timers.len(), 256);
    }

    #[test]
    fn what_comes_into_a_queue_late_waits_for_what_was_there_before() {
        let mut timers = Timers::new();
        let ten = timers.common(nanos(10)).unwrap();
        timers.set_common(0, ten, at(5));
        timers.set_common(1, ten, at(3));
        assert_eq!(drain(&mut timers), [(15, 0), (15, 1)]);
    }

    #[test]
    fn equal_durations_are_one_and_there_are_at_most_256() {
        let (mut timers, mut others) = (Timers::new(), Timers::new());
        let first = timers.common(nanos(0)).unwrap();
        for n in 0..256 {
            timers.common(nanos(n)).unwrap();
        }
        assert_eq!(timers.common(nanos(0)).unwrap(), first);
        assert!(matches!(timers.common(nanos(256)), Err(Error::Invalid(_))));
        assert!(timers.owns(first) && !others.owns(first));
        assert_ne!(others.common(nanos(0)).unwrap(), first);
    }

    #[test]
    fn random_arming_and_removing_agrees_with_a_sorted_list() {
        let mut state = 7_u64;
        let mut next = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        let mut timers = Timers::new();
        let common: Vec<_> = (0..5).map(|n| timers.common(nanos(n * 40)).unwrap()).collect();
        let mut model: Vec<(u64, u32)> = Vec::new();
        for now in 0..few_under_miri(20_000, 500) {
            let slot = next(few_under_miri(200, 20)) as u32;
            let armed = model.iter().any(|entry| entry.1 == slot);
            model.retain(|entry| entry.1 != slot);
            match next(4) {
                0 => assert_eq!(timers.remove(slot), armed),
                1 => {
                    timers.set(slot, at(now + next(300)));
                    model.push((timers.deadline(slot).unwrap().as_nanos(), slot));
                }
                _ => {
                    let common = common[next(5) as usize];
                    timers.set_common(slot, common, at(now));
                    model.push((now + common.duration().as_nanos() as u64, slot));
                }
            }
            assert_eq!(timers.len(), model.len());
            let least = model.iter().map(|entry| entry.0).min();
            assert_eq!(timers.first().map(|(deadline, _)| deadline.as_nanos()), least);
        }
        // The model's order of insertion is the order of arming, so a stable sort gives the exact sequence.
        model.sort_by_key(|entry| entry.0);
        assert_eq!(drain(&mut timers), model);
    }
}
