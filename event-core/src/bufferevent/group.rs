//! A rate limit that many streams share.
//!
//! A stream asks before it moves anything and gets a part of what is there, which is set aside for it until the next
//! tick. Who has used up its part waits in a queue. At a tick what there is, is divided among those that wait, so that
//! they get the same; what others do not use is divided among those that wait in the turn after.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::bucket::{Buckets, RateLimit};
use super::buffers::Side;
use super::inner::Inner;
use crate::clock::Time;
use crate::error::Error;
use crate::interest::Ready;
use crate::owned::Owned;
use crate::reactor::{EventId, LoopHandle};

/// A turn smaller than this costs more than it moves: libevent's value.
const MIN_SHARE: usize = 64;

const BOTH: [Side; 2] = [Side::Input, Side::Output];

/// What a stream has of its group in one direction.
#[derive(Clone, Copy, Default)]
pub(super) struct Seat {
    /// What it may still move in this round.
    granted: i64,
    /// What it has moved in this round, unless it has waited since.
    used: i64,
    /// The round in which it got that.
    round: u64,
    /// Its place in the queue; 0 while it does not wait.
    ticket: u64,
}

impl Seat {
    pub(super) fn is_waiting(&self) -> bool {
        self.ticket != 0
    }

    pub(super) fn has_ticket(&self, ticket: u64) -> bool {
        self.ticket == ticket
    }
}

/// One direction of a group.
#[derive(Default)]
struct Lane {
    /// Who waits, the longest first. An entry whose ticket is not its stream's any more does not count.
    queue: VecDeque<(u64, Weak<Inner>)>,
    waiting: usize,
    /// What was given in this round and is not used.
    set_aside: i64,
    /// What there was to divide when the round began.
    opened: i64,
    /// Of what is set aside, what is kept for members that had something in the last round and do not wait in this one,
    /// and how much of it is for each at most.
    kept: i64,
    kept_each: i64,
    /// How many members have had something in this round, and in the last one.
    active: usize,
    active_before: usize,
    /// What was moved in this round by those that did not use up their parts, and in the last one.
    light: i64,
    light_before: i64,
    /// Counts the ticks. Seats begin with 0, which is no round.
    round: u64,
    /// The last round in which those that waited got something.
    served: u64,
    total: u64,
}

struct State {
    buckets: Buckets,
    min_share: usize,
    members: usize,
    lanes: [Lane; 2],
    next_ticket: u64,
    is_freed: bool,
}

pub(super) struct Shared {
    handle: LoopHandle,
    id: Cell<Option<EventId>>,
    state: RefCell<State>,
}

/// Those whose turn it is.
type Resumed = Vec<(Rc<Inner>, Side)>;

/// A rate limit that several streams share: libevent's `bufferevent_rate_limit_group`.
///
/// A clonable handle; the group lives while there is a handle or a member. It keeps no loop running and has no timer
/// while nobody waits.
///
/// What the bucket holds at a tick is divided evenly among the members that wait. A member that does not use its part
/// until the next tick leaves it to the others.
///
/// ```
/// use event_core::{EventBase, Listener, RateLimit, RateLimitGroup};
///
/// let mut base = EventBase::new()?;
/// // All clients together get 1 MiB/s.
/// let group = RateLimitGroup::new(&base, RateLimit::new().write(1 << 20, 1 << 20))?;
/// let listener = Listener::bind(&base, "127.0.0.1:0", move |_, accepted| {
///     let client = accepted.into_stream();
///     let _ = client.add_to_rate_limit_group(&group);
///     // ...
/// })?;
/// # listener.free();
/// base.dispatch()?;
/// # Ok::<(), event_core::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias = "bufferevent_rate_limit_group")]
pub struct RateLimitGroup {
    shared: Rc<Shared>,
}

impl RateLimitGroup {
    /// Makes a group without members.
    ///
    /// # Errors
    /// - `Error::Invalid` as for [`BufferEvent::set_rate_limit`](super::BufferEvent::set_rate_limit).
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_rate_limit_group_new")]
    pub fn new(handle: &LoopHandle, limit: RateLimit) -> Result<RateLimitGroup, Error> {
        limit.check()?;
        handle.check()?;
        let lane = || Lane { round: 1, ..Lane::default() };
        let mut state = State {
            buckets: Buckets::new(limit, handle.cached_now()),
            min_share: MIN_SHARE,
            members: 0,
            lanes: [lane(), lane()],
            next_ticket: 1,
            is_freed: false,
        };
        state.open();
        let shared =
            Rc::new(Shared { handle: handle.clone(), id: Cell::new(None), state: RefCell::new(state) });
        let id = handle.own(Rc::new(Clock(Rc::downgrade(&shared))))?;
        shared.id.set(Some(id));
        Ok(RateLimitGroup { shared })
    }

    /// Changes the limit. What the buckets hold stays, as far as the new ones hold it.
    ///
    /// # Errors
    /// - `Error::Invalid` as for [`BufferEvent::set_rate_limit`](super::BufferEvent::set_rate_limit).
    #[doc(alias = "bufferevent_rate_limit_group_set_cfg")]
    pub fn set_limit(&self, limit: RateLimit) -> Result<(), Error> {
        limit.check()?;
        let now = self.shared.handle.cached_now();
        let mut state = self.shared.state.borrow_mut();
        state.refill(now);
        state.buckets.set_limit(limit, now);
        state.open();
        drop(state);
        self.shared.wake();
        Ok(())
    }

    /// The limit.
    pub fn limit(&self) -> RateLimit {
        self.shared.state.borrow().buckets.limit
    }

    /// Sets what one member gets at least when its turn comes, 64 bytes at first; never more than the rate. With more
    /// members than that suffices for, not all have a turn in every tick.
    #[doc(alias = "bufferevent_rate_limit_group_set_min_share")]
    pub fn set_min_share(&self, bytes: usize) {
        self.shared.state.borrow_mut().min_share = bytes;
    }

    /// Ends the group: its members go on without it, those that waited at once. Dropping all handles instead leaves it
    /// to its members.
    #[doc(alias = "bufferevent_rate_limit_group_free")]
    pub fn free(&self) {
        let mut resumed = Resumed::new();
        {
            let mut state = self.shared.state.borrow_mut();
            state.is_freed = true;
            for side in BOTH {
                state.serve_all(&self.shared, side, &mut resumed);
            }
        }
        resume(resumed);
    }

    /// How many members there are.
    pub fn members(&self) -> usize {
        self.shared.state.borrow().members
    }

    /// How many bytes the bucket lets the members read now. Less than nothing if they have had more than there was; `None`
    /// without a limit.
    #[doc(alias = "bufferevent_rate_limit_group_get_read_limit")]
    pub fn read_limit(&self) -> Option<i64> {
        self.shared.level(Side::Input)
    }

    /// How many bytes the bucket lets the members write now.
    #[doc(alias = "bufferevent_rate_limit_group_get_write_limit")]
    pub fn write_limit(&self) -> Option<i64> {
        self.shared.level(Side::Output)
    }

    /// Takes bytes out of the bucket as if a member had read them; a negative number puts them back, up to the burst.
    #[doc(alias = "bufferevent_rate_limit_group_decrement_read")]
    pub fn decrement_read_limit(&self, bytes: i64) {
        self.shared.decrement(Side::Input, bytes);
    }

    /// Takes bytes out of the bucket as if a member had written them; a negative number puts them back.
    #[doc(alias = "bufferevent_rate_limit_group_decrement_write")]
    pub fn decrement_write_limit(&self, bytes: i64) {
        self.shared.decrement(Side::Output, bytes);
    }

    /// How many bytes the members have read and written since the group was made or the count was reset.
    #[doc(alias = "bufferevent_rate_limit_group_get_totals")]
    pub fn totals(&self) -> (u64, u64) {
        let state = self.shared.state.borrow();
        (state.lanes[0].total, state.lanes[1].total)
    }

    /// Counts from 0 again.
    #[doc(alias = "bufferevent_rate_limit_group_reset_totals")]
    pub fn reset_totals(&self) {
        let mut state = self.shared.state.borrow_mut();
        state.lanes.iter_mut().for_each(|lane| lane.total = 0);
    }

    pub(super) fn shared(&self) -> &Rc<Shared> {
        &self.shared
    }
}

impl fmt::Debug for RateLimitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitGroup").field("members", &self.members()).finish_non_exhaustive()
    }
}

/// What the loop calls when a tick has come for which somebody waits.
struct Clock(Weak<Shared>);

impl Owned for Clock {
    fn run(self: Rc<Self>, _: &LoopHandle, _: Ready) {
        if let Some(shared) = self.0.upgrade() {
            shared.tick();
        }
    }

    fn loop_gone(self: Rc<Self>) {}
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(id) = self.id.get() {
            // Gone with its loop, perhaps.
            let _ = self.handle.free(id);
        }
    }
}

/// Lets them go on, with nothing borrowed.
fn resume(resumed: Resumed) {
    for (stream, side) in resumed {
        stream.resume_granted(side);
    }
}

impl Shared {
    pub(super) fn join(&self, handle: &LoopHandle) -> Result<(), Error> {
        if !Arc::ptr_eq(self.handle.shared(), handle.shared()) {
            return Err(Error::Invalid("the group is of another loop"));
        }
        let mut state = self.state.borrow_mut();
        if state.is_freed {
            return Err(Error::Invalid("the group was freed"));
        }
        state.members += 1;
        Ok(())
    }

    pub(super) fn leave(&self, seats: &[Seat; 2]) {
        let mut state = self.state.borrow_mut();
        state.members -= 1;
        for (lane, seat) in state.lanes.iter_mut().zip(seats) {
            lane.waiting -= usize::from(seat.is_waiting());
            if seat.round == lane.round {
                lane.set_aside = lane.set_aside.saturating_sub(seat.granted);
            }
        }
        drop(state);
        // What it left is for the others.
        self.rearm();
    }

    /// How many bytes a member may move now; 0 puts it into the queue.
    pub(super) fn ask(&self, side: Side, seat: &mut Seat, stream: &Rc<Inner>) -> usize {
        let mut state = self.state.borrow_mut();
        state.refill(self.handle.cached_now());
        let quota = state.quota(side, seat);
        if quota == i64::MAX {
            return usize::MAX;
        }
        if quota > 0 {
            let lane = &mut state.lanes[side as usize];
            if seat.round != lane.round {
                *seat = Seat { granted: quota, used: 0, round: lane.round, ticket: 0 };
                lane.active += 1;
                let kept = quota.min(lane.kept);
                lane.kept -= kept;
                lane.set_aside = lane.set_aside.saturating_add(quota - kept);
            }
            return usize::try_from(quota).unwrap_or(usize::MAX);
        }
        if !seat.is_waiting() {
            seat.ticket = state.next_ticket;
            state.next_ticket += 1;
            let lane = &mut state.lanes[side as usize];
            lane.waiting += 1;
            if seat.round == lane.round {
                lane.light = lane.light.saturating_sub(std::mem::take(&mut seat.used));
            }
            lane.queue.push_back((seat.ticket, Rc::downgrade(stream)));
            drop(state);
            self.rearm();
        }
        0
    }

    pub(super) fn peek(&self, side: Side, seat: &Seat) -> usize {
        let mut state = self.state.borrow_mut();
        state.refill(self.handle.cached_now());
        usize::try_from(state.quota(side, seat)).unwrap_or(usize::MAX)
    }

    pub(super) fn charge(&self, side: Side, seat: &mut Seat, bytes: i64) {
        let mut state = self.state.borrow_mut();
        state.buckets.take(side, bytes);
        let lane = &mut state.lanes[side as usize];
        lane.total = lane.total.saturating_add(bytes.unsigned_abs());
        if seat.round == lane.round {
            let used = bytes.min(seat.granted);
            seat.granted -= used;
            seat.used = seat.used.saturating_add(bytes);
            lane.light = lane.light.saturating_add(bytes);
            lane.set_aside = lane.set_aside.saturating_sub(used);
        }
    }

    fn level(&self, side: Side) -> Option<i64> {
        let mut state = self.state.borrow_mut();
        state.refill(self.handle.cached_now());
        state.buckets.level(side)
    }

    fn decrement(&self, side: Side, bytes: i64) {
        let mut state = self.state.borrow_mut();
        state.refill(self.handle.cached_now());
        state.buckets.take(side, bytes);
        state.open();
        drop(state);
        self.wake();
    }

    /// Something has changed: those that wait are looked at in the next turn.
    fn wake(&self) {
        let waits = self.state.borrow().lanes.iter().any(|lane| lane.waiting > 0);
        if let Some(id) = self.id.get().filter(|_| waits) {
            self.handle.activate_internal(id);
        }
    }

    /// Sees to it that those that wait are looked at: in the next turn if there is something to divide, else at the tick
    /// that brings something.
    fn rearm(&self) {
        let state = self.state.borrow();
        let waiting = || BOTH.into_iter().filter(|side| state.lanes[*side as usize].waiting > 0);
        if waiting().any(|side| state.can_serve(side)) {
            drop(state);
            return self.wake();
        }
        let next = waiting().map(|side| state.buckets.filled_at(side)).min().unwrap_or(Time::NEVER);
        drop(state);
        if let Some(id) = self.id.get()
            && self.handle.armed(id) != next
        {
            self.handle.arm(id, next);
        }
    }

    fn tick(&self) {
        let mut resumed = Resumed::new();
        {
            let mut state = self.state.borrow_mut();
            state.refill(self.handle.cached_now());
            for side in BOTH {
                state.serve(self, side, &mut resumed);
            }
        }
        self.rearm();
        resume(resumed);
    }
}

impl State {
    /// Begins a new round if a tick has passed: what was set aside and not used is everybody's again.
    fn refill(&mut self, now: Time) {
        if self.buckets.refill(now) {
            for lane in &mut self.lanes {
                lane.round += 1;
                lane.set_aside = 0;
                lane.kept = 0;
                lane.active_before = std::mem::take(&mut lane.active);
                lane.light_before = std::mem::take(&mut lane.light);
            }
            self.open();
        }
    }

    /// What there is now is what this round divides.
    fn open(&mut self) {
        for side in BOTH {
            self.lanes[side as usize].opened = self.left(side).unwrap_or(0);
        }
    }

    fn min_share(&self, side: Side) -> i64 {
        let most = self.buckets.rate(side).unwrap_or(usize::MAX);
        i64::try_from(self.min_share.min(most)).unwrap_or(i64::MAX).max(1)
    }

    /// What is neither used nor set aside; `None` without a limit.
    fn left(&self, side: Side) -> Option<i64> {
        self.buckets.level(side).map(|level| level.saturating_sub(self.lanes[side as usize].set_aside))
    }

    /// What a member may move: what was set aside for it, or its part of what is left, once a round and unless others
    /// wait.
    fn quota(&self, side: Side, seat: &Seat) -> i64 {
        let lane = &self.lanes[side as usize];
        let Some(left) = self.left(side).filter(|_| !self.is_freed) else { return i64::MAX };
        if seat.round == lane.round && !seat.is_waiting() {
            return seat.granted;
        }
        if lane.kept > 0 {
            return lane.kept.min(lane.kept_each);
        }
        if lane.waiting > 0 || left <= 0 {
            return 0;
        }
        let members = i64::try_from(self.members).unwrap_or(i64::MAX).max(1);
        (lane.opened / members).min(left).max(self.min_share(side))
    }

    /// Whether there is enough to be divided among those that wait. Within a round crumbs are left for the next one.
    fn can_serve(&self, side: Side) -> bool {
        let lane = &self.lanes[side as usize];
        match self.left(side) {
            None => true,
            Some(left) if lane.served < lane.round => left > 0,
            Some(left) => left >= self.min_share(side),
        }
    }

    /// Divides what is left among those that wait.
    fn serve(&mut self, group: &Shared, side: Side, resumed: &mut Resumed) {
        if self.lanes[side as usize].waiting == 0 || !self.can_serve(side) {
            return;
        }
        let Some(mut left) = self.left(side) else { return self.serve_all(group, side, resumed) };
        let least = self.min_share(side);
        let lane = &mut self.lanes[side as usize];
        let is_first = lane.served < lane.round;
        lane.served = lane.round;
        let waiting = i64::try_from(lane.waiting).unwrap_or(i64::MAX);
        // Who uses less than its part does not wait when a round begins, and will want as much again: an eighth more.
        let others = if is_first { lane.active_before.saturating_sub(lane.waiting) } else { 0 };
        if others > 0 {
            let others = i64::try_from(others).unwrap_or(i64::MAX);
            lane.kept_each = left / waiting.saturating_add(others);
            let light = lane.light_before.saturating_add(lane.light_before / 8).max(0);
            lane.kept = light.min(lane.kept_each.saturating_mul(others)).min(left);
            lane.set_aside += lane.kept;
            left -= lane.kept;
        }
        let (share, mut over) = (left / waiting, left % waiting);
        while left > 0 {
            let Some((ticket, stream)) = lane.queue.pop_front() else { break };
            let granted = (share + i64::from(over > 0)).max(least);
            let seat = Seat { granted, used: 0, round: lane.round, ticket: 0 };
            let Some(stream) = stream.upgrade().filter(|stream| stream.grant(group, side, ticket, seat))
            else {
                continue;
            };
            over -= 1;
            left -= granted;
            lane.waiting -= 1;
            lane.active += 1;
            lane.set_aside += granted;
            resumed.push((stream, side));
        }
    }

    /// There is no limit any more: nobody waits.
    fn serve_all(&mut self, group: &Shared, side: Side, resumed: &mut Resumed) {
        let lane = &mut self.lanes[side as usize];
        for (ticket, stream) in std::mem::take(&mut lane.queue) {
            let stream = stream.upgrade().filter(|stream| stream.grant(group, side, ticket, Seat::default()));
            resumed.extend(stream.map(|stream| (stream, side)));
        }
        lane.waiting = 0;
    }
}
