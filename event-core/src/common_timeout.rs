//! The timers of a loop: the heap, and a queue for each duration that many timers have in common.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Time, nanos};
use crate::error::Error;
use crate::heap::{Entry, Heap, NO_HOME, Removed};
use crate::slots::Key;

/// At most so many queues a loop, libevent's number: each may have an entry in the heap.
const MAX_QUEUES: u32 = 256;

/// So many timers that one callback arms are each counted from a reading of the clock of their own: more than most
/// callbacks arm. Only what one arms beyond them shares readings.
const EXACT: u32 = 16;

/// So many timers share a reading of the clock, which costs more than everything else about arming one.
const SHARE: usize = 8;

/// A queue that holds so many more timers that were taken back than such as stand in it is swept.
const SWEEP: usize = 64;

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
    queue: u16,
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
    /// Those that were taken back, or armed elsewhere, stay until they are met at either end or swept: the heap knows
    /// which. The first stands, and stands in the heap, too; when it is taken back the heap learns of it when it asks.
    entries: VecDeque<Entry>,
    /// How many stand.
    len: usize,
}

/// A timer that is armed but whose deadline is not known yet.
#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    /// Nanoseconds.
    after: u64,
    /// Its name in the heap, or `NOBODY` if it was taken back.
    name: u32,
    /// Where it will stand; `NO_HOME` for by itself.
    queue: u16,
}

/// The name of no timer in the heap.
const NOBODY: u32 = u32::MAX;

/// How a slot is called in the heap: the queues come first. The index of no slot, which is `u32::MAX`, becomes a name
/// between the two that is nobody's.
#[inline]
fn in_heap(slot: u32) -> u32 {
    slot.wrapping_add(MAX_QUEUES + 1)
}

/// At most one timer a slot, by itself in the heap or in a queue.
///
/// A queue stands in the heap for its first timer; what is due of it is sorted with all else that is due. So the order is
/// the same as if all stood in the heap, and a queue costs O(1) but for the heap's own work, which grows with the other
/// timers and queues and not with the queue.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Queues come first, then slots: see `in_heap`.
    heap: Heap,
    queues: Vec<Queue>,
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
            self.queues.push(Queue { duration, entries: VecDeque::new(), len: 0 });
        }
        if self.owner == 0 {
            self.owner = NEXT_OWNER.fetch_add(1, Ordering::Relaxed);
        }
        Ok(CommonTimeout { owner: self.owner, queue: queue as u16, duration })
    }

    /// Whether a common timeout is of this loop.
    #[inline]
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
    pub(crate) fn promise_alone(&mut self, key: Key, after: After) -> Option<bool> {
        let name = in_heap(key.index);
        let was_armed = self.heap.promise_alone(name, key.generation)?;
        if let Some(promise) = self.promised.get_mut(self.promises) {
            *promise = match after {
                After::Duration(after) => Promise { after: nanos(after), name, queue: NO_HOME },
                After::Common(common) => Promise { after: nanos(common.duration), name, queue: common.queue },
            };
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
        let removed = self.heap.remove_alone(in_heap(key.index), key.generation)?;
        if self.promises > 0 {
            self.take_back_promise(key.index);
        }
        Some(self.removed(removed))
    }

    /// Arms the timer of a slot that is alone. Tells whether it was armed; `None` if the slot is not alone.
    pub(crate) fn arm_alone(&mut self, key: Key, after: After, clock: impl Fn() -> Time) -> Option<bool> {
        let name = in_heap(key.index);
        if !self.heap.is_alone(name, key.generation) {
            return None;
        }
        let now = clock();
        self.keep_promises(|| now);
        let was_armed = self.heap.is_armed(name);
        match after {
            After::Duration(after) => self.set(key.index, now.after(after)),
            After::Common(common) => self.set_common(key.index, common, now),
        }
        Some(was_armed)
    }

    /// See the heap's.
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
        for at in 0..self.promises {
            let Some(&Promise { after, name, queue }) = self.promised.get(at) else { break };
            if name == NOBODY {
                continue;
            }
            if self.queues.is_empty() {
                self.heap.set(name, now.after_nanos(after));
            } else {
                self.put(name, queue, now.after_nanos(after));
            }
        }
        self.promises = 0;
    }

    /// The slot's timer is disarmed, or armed by another call.
    #[inline]
    fn take_back(&mut self, slot: u32) {
        if self.promises > 0 {
            self.take_back_promise(slot);
        }
    }

    #[inline(never)]
    fn take_back_promise(&mut self, slot: u32) {
        for promise in &mut self.promised[..self.promises] {
            if promise.name == in_heap(slot) {
                promise.name = NOBODY;
            }
        }
    }

    /// Arms the slot's timer by itself, or moves it; either way it is now the last of its deadline.
    #[inline]
    pub(crate) fn set(&mut self, slot: u32, deadline: Time) {
        self.take_back(slot);
        self.put(in_heap(slot), NO_HOME, deadline);
    }

    /// Arms the slot's timer at the end of a queue of this loop, counted from `now`.
    pub(crate) fn set_common(&mut self, slot: u32, common: CommonTimeout, now: Time) {
        self.take_back(slot);
        self.put(in_heap(slot), common.queue, now.after(common.duration));
    }

    /// Arms the slot's timer anew where it was armed last: by itself, or in the same queue.
    #[inline]
    pub(crate) fn rearm(&mut self, slot: u32, deadline: Time) {
        self.take_back(slot);
        self.put(in_heap(slot), self.heap.home(in_heap(slot)), deadline);
    }

    #[inline]
    fn put(&mut self, name: u32, queue: u16, deadline: Time) {
        if !self.queues.is_empty() {
            if let Some(left) = self.heap.queue(name) {
                self.left(left);
            }
            if queue != NO_HOME {
                return self.enter(name, queue, deadline);
            }
        }
        self.heap.set(name, deadline);
    }

    /// Disarms the slot's timer; tells whether it was armed.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        self.take_back(slot);
        let removed = self.heap.remove(in_heap(slot));
        self.removed(removed)
    }

    #[inline]
    fn removed(&mut self, removed: Removed) -> bool {
        if let Some(queue) = removed.queue {
            self.left(queue);
        }
        removed.was_armed
    }

    /// A timer of a queue was taken back, or is about to be armed elsewhere.
    #[inline(never)]
    fn left(&mut self, number: u16) {
        let queue = &mut self.queues[usize::from(number)];
        queue.len -= 1;
        if queue.len == 0 {
            queue.entries.clear();
            self.heap.remove(number.into());
        }
    }

    #[inline]
    pub(crate) fn deadline(&self, slot: u32) -> Option<Time> {
        debug_assert!(self.promised[..self.promises].iter().all(|promise| promise.name != in_heap(slot)));
        self.heap.deadline(in_heap(slot))
    }

    #[inline]
    pub(crate) fn is_armed(&self, slot: u32) -> bool {
        self.heap.is_armed(in_heap(slot))
    }

    /// The nearest deadline.
    #[inline]
    pub(crate) fn first(&mut self) -> Option<Time> {
        debug_assert_eq!(self.promises, 0);
        let (deadline, name) = self.heap.first()?;
        if name < MAX_QUEUES { self.first_of_queues(deadline, name as u16) } else { Some(deadline) }
    }

    /// The nearest deadline, if it is not that of a queue's first timer which was taken back.
    #[cold]
    fn first_of_queues(&mut self, mut deadline: Time, mut number: u16) -> Option<Time> {
        while self.show_first(number) {
            let (first, name) = self.heap.first()?;
            deadline = first;
            if name >= MAX_QUEUES {
                break;
            }
            number = name as u16;
        }
        Some(deadline)
    }

    /// Has a queue stand in the heap for its first timer that stands. Tells whether that is another one than before.
    fn show_first(&mut self, number: u16) -> bool {
        let Queue { entries, len, .. } = &mut self.queues[usize::from(number)];
        if *len == 0 {
            entries.clear();
            return self.heap.remove(number.into()).was_armed;
        }
        while let Some(entry) = entries.front() {
            if self.heap.stands(entry, number) {
                if self.heap.deadline(number.into()) == Some(entry.deadline) {
                    return false;
                }
                self.heap.set_in_order(number.into(), entry.deadline, entry.seq());
                return true;
            }
            entries.pop_front();
        }
        false
    }

    /// Takes out the timers whose deadline has passed and appends them in their order; see the heap's. Tells whether all
    /// of them are alone.
    pub(crate) fn take_due(&mut self, now: Time, due: &mut Vec<Entry>) -> bool {
        debug_assert_eq!(self.promises, 0);
        let from = due.len();
        let mut are_alone = self.heap.take_due(now, due);
        if !self.queues.is_empty() {
            are_alone = self.open_queues(now, due, from);
        }
        self.heap.sort(&mut due[from..]);
        for entry in &mut due[from..] {
            entry.slot -= MAX_QUEUES + 1;
        }
        are_alone
    }

    /// Puts what is due of each queue that was taken out in place of the queue.
    fn open_queues(&mut self, now: Time, due: &mut Vec<Entry>, from: usize) -> bool {
        let mut open = [0_u16; MAX_QUEUES as usize];
        let mut count = 0;
        let mut are_alone = true;
        let heap = &mut self.heap;
        let mut at = from;
        while let Some(entry) = due.get(at) {
            if entry.slot < MAX_QUEUES {
                open[count] = entry.slot as u16;
                count += 1;
                due.swap_remove(at);
            } else {
                are_alone &= heap.set_due(entry.slot);
                at += 1;
            }
        }
        for &number in &open[..count] {
            self.heap.fire(number.into());
            let queue = &mut self.queues[usize::from(number)];
            while let Some(&entry) = queue.entries.front().filter(|entry| entry.deadline <= now) {
                queue.entries.pop_front();
                if self.heap.stands(&entry, number) {
                    queue.len -= 1;
                    are_alone &= self.heap.set_due(entry.slot);
                    due.push(entry);
                }
            }
            self.show_first(number);
        }
        are_alone
    }

    /// Whether the slot's timer is still due; if so it is no more, and not armed.
    #[inline]
    pub(crate) fn fire(&mut self, slot: u32) -> bool {
        self.heap.fire(in_heap(slot))
    }

    /// See the heap's.
    #[inline]
    pub(crate) fn address(&self, slot: u32) -> *const u8 {
        self.heap.address(in_heap(slot))
    }

    /// Whether the slot's timer was taken out by `take_due`, and nothing has happened to it since.
    #[inline]
    pub(crate) fn is_due(&self, slot: u32) -> bool {
        self.heap.is_due(in_heap(slot))
    }

    /// How many timers are armed and have a deadline.
    pub(crate) fn len(&self) -> usize {
        let mut len = self.heap.len();
        for (number, queue) in (0..).zip(&self.queues) {
            len = len + queue.len - usize::from(self.heap.is_armed(number));
        }
        len
    }

    /// Puts a timer, which stands in no queue any more, at the end of a queue.
    fn enter(&mut self, name: u32, number: u16, wanted: Time) {
        let queue = &mut self.queues[usize::from(number)];
        if queue.len == 0 {
            queue.entries.clear();
        }
        let heap = &self.heap;
        while queue.entries.back().is_some_and(|entry| !heap.stands(entry, number)) {
            queue.entries.pop_back();
        }
        // Only here, where more memory would be asked for: taking back gives none back.
        if queue.entries.len() > 2 * queue.len + SWEEP {
            queue.entries.retain(|entry| heap.stands(entry, number));
        }
        // What is counted from a moment that has passed waits for what was armed since: no search, and never early.
        let deadline = queue.entries.back().map_or(wanted, |last| wanted.max(last.deadline));
        let entry = Entry::new(deadline, self.heap.take_seq(), name);
        self.heap.enter(entry, number);
        queue.entries.push_back(entry);
        queue.len += 1;
        if queue.entries.len() == 1 {
            self.heap.set_in_order(number.into(), deadline, entry.seq());
        }
    }
}

/// After what a timer is to fire.
#[derive(Clone, Copy, Debug)]
pub(crate) enum After {
    Common(CommonTimeout),
    Duration(Duration),
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
            let deadline = timers.first()?;
            let mut due = Vec::new();
            timers.take_due(deadline, &mut due);
            assert!(due.iter().all(|entry| entry.deadline == deadline && timers.fire(entry.slot)));
            Some(due.into_iter().map(|entry| (entry.deadline.as_nanos(), entry.slot)))
        })
        .flatten()
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
        for slot in (256..600).chain([u32::MAX]) {
            assert_eq!((timers.deadline(slot), timers.remove(slot)), (None, false));
        }
        assert_eq!(timers.len(), 256);
    }

    #[test]
    fn arming_again_and_taking_back_leaves_few_behind() {
        let mut timers = Timers::new();
        let ten = timers.common(nanos(10)).unwrap();
        timers.set_common(0, ten, at(0));
        for now in 1..few_under_miri(5_000, 100) {
            timers.set_common(1, ten, at(now));
            timers.set_common(2, ten, at(now));
            assert!(timers.remove(2));
            timers.set_common(3, ten, at(now));
            timers.set(3, at(now));
            assert_eq!((timers.len(), timers.queues[0].len), (3, 2));
            assert!(timers.queues[0].entries.len() <= 2 * 2 + SWEEP + 1);
        }
        assert!(timers.remove(0) && timers.remove(3));
        assert_eq!(timers.first(), timers.deadline(1));
        assert!(timers.remove(1));
        assert_eq!((timers.len(), timers.first()), (0, None));
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
            assert_eq!(timers.first().map(Time::as_nanos), least);
        }
        // The model's order of insertion is the order of arming, so a stable sort gives the exact sequence.
        model.sort_by_key(|entry| entry.0);
        assert_eq!(drain(&mut timers), model);
    }
}
