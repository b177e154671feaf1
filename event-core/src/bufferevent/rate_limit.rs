//! A stream's rate limits: asked before anything moves, charged afterwards. A stream whose bucket is empty is suspended
//! until a tick fills it: by its own timer, or by its group.

use std::rc::Rc;

use super::BufferEvent;
use super::bucket::{Buckets, RateLimit};
use super::buffers::Side;
use super::group::{RateLimitGroup, Seat, Shared};
use super::inner::Inner;
use super::state::State;
use crate::clock::Time;
use crate::error::Error;

/// What a stream with a limit has.
#[derive(Default)]
pub(super) struct Limits {
    own: Option<Buckets>,
    member: Option<Member>,
}

struct Member {
    group: Rc<Shared>,
    seats: [Seat; 2],
}

impl BufferEvent {
    /// Limits how fast the stream moves bytes, or with `None` takes its limit away. It may be changed at any time: what
    /// the buckets hold stays, as far as the new ones hold it; a new limit starts with one tick's worth.
    ///
    /// A direction whose bucket is empty is suspended until the next tick that fills it: nothing is asked of the kernel,
    /// no callback comes, and its timeout does not run; the stream goes on holding the loop. Any kind of stream can be
    /// limited; over a filter what counts is what has passed it.
    ///
    /// # Errors
    /// - `Error::Invalid` if a burst is below its rate or above [`RateLimit::MAX`], or the tick is below a millisecond.
    /// - `Error::Stale` if the stream was freed; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_set_rate_limit")]
    pub fn set_rate_limit(&self, limit: Option<RateLimit>) -> Result<(), Error> {
        limit.map_or(Ok(()), |limit| limit.check())?;
        self.inner.start()?;
        let now = self.inner.handle.cached_now();
        self.inner.change_limits(|limits| match (limit, &mut limits.own) {
            (Some(limit), Some(own)) => own.set_limit(limit, now),
            (Some(limit), own) => *own = Some(Buckets::new(limit, now)),
            (None, own) => *own = None,
        });
        Ok(())
    }

    /// The stream's own limit.
    #[doc(alias = "bufferevent_get_token_bucket_cfg")]
    pub fn rate_limit(&self) -> Option<RateLimit> {
        self.inner.with_limits(|limits| limits.own.as_ref().map(|own| own.limit)).flatten()
    }

    /// How many bytes the stream's own bucket lets it read now. Less than nothing if it has had more than there was;
    /// `None` without a limit.
    #[doc(alias = "bufferevent_get_read_limit")]
    pub fn read_limit(&self) -> Option<i64> {
        self.inner.own_level(Side::Input)
    }

    /// How many bytes the stream's own bucket lets it write now.
    #[doc(alias = "bufferevent_get_write_limit")]
    pub fn write_limit(&self) -> Option<i64> {
        self.inner.own_level(Side::Output)
    }

    /// Takes bytes out of the stream's own bucket as if it had read them; a negative number puts them back, up to the
    /// burst.
    ///
    /// # Errors
    /// - `Error::Invalid` if the stream's reading has no limit of its own.
    #[doc(alias = "bufferevent_decrement_read_limit")]
    pub fn decrement_read_limit(&self, bytes: i64) -> Result<(), Error> {
        self.inner.decrement(Side::Input, bytes)
    }

    /// Takes bytes out of the stream's own bucket as if it had written them; a negative number puts them back.
    ///
    /// # Errors
    /// - `Error::Invalid` if the stream's writing has no limit of its own.
    #[doc(alias = "bufferevent_decrement_write_limit")]
    pub fn decrement_write_limit(&self, bytes: i64) -> Result<(), Error> {
        self.inner.decrement(Side::Output, bytes)
    }

    /// Puts the stream into a group, whose limit it shares, besides its own one; it leaves the group it was in. Freeing
    /// the stream leaves, too.
    ///
    /// # Errors
    /// - `Error::Invalid` if the group was freed or is of another loop.
    /// - `Error::Stale` if the stream was freed; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_add_to_rate_limit_group")]
    pub fn add_to_rate_limit_group(&self, group: &RateLimitGroup) -> Result<(), Error> {
        self.inner.start()?;
        let shared = group.shared();
        if self.inner.with_limits(|limits| limits.is_member_of(shared)) == Some(true) {
            return Ok(());
        }
        shared.join(&self.inner.handle)?;
        self.inner.leave_group();
        let member = Member { group: shared.clone(), seats: [Seat::default(); 2] };
        self.inner.change_limits(|limits| limits.member = Some(member));
        Ok(())
    }

    /// Takes the stream out of its group, if it is in one. What the group had suspended goes on.
    #[doc(alias = "bufferevent_remove_from_rate_limit_group")]
    pub fn remove_from_rate_limit_group(&self) {
        self.inner.leave_group();
        self.inner.change_limits(|_| {});
    }
}

impl Limits {
    fn is_member_of(&self, group: &Rc<Shared>) -> bool {
        self.member.as_ref().is_some_and(|member| Rc::ptr_eq(&member.group, group))
    }

    fn seat(&mut self, side: Side) -> Option<&mut Seat> {
        self.member.as_mut().map(|member| &mut member.seats[side as usize])
    }
}

impl Inner {
    fn with_limits<T>(&self, f: impl FnOnce(&mut Limits) -> T) -> Option<T> {
        if !self.has(State::LIMITED) {
            return None;
        }
        self.rare_if(|rare| rare.limits.as_deref_mut().map(f)).flatten()
    }

    fn suspended(side: Side) -> State {
        match side {
            Side::Input => State::READ_LIMITED,
            Side::Output => State::WRITE_LIMITED,
        }
    }

    fn change_limits(self: &Rc<Self>, change: impl FnOnce(&mut Limits)) {
        if self.is_freed() {
            return;
        }
        let is_limited = self.rare_mut(|rare| {
            let limits = rare.limits.get_or_insert_default();
            change(limits);
            let is_limited = limits.own.is_some() || limits.member.is_some();
            if !is_limited {
                rare.limits = None;
            }
            is_limited
        });
        self.set(State::LIMITED, is_limited);
        for side in [Side::Input, Side::Output] {
            if self.has(Inner::suspended(side)) && !self.waits_for_limit(side) {
                self.resume(side);
            }
        }
        // A nearer tick, perhaps.
        self.rearm();
    }

    /// Whether its own bucket is empty, or its group keeps it waiting.
    fn waits_for_limit(&self, side: Side) -> bool {
        let now = self.handle.cached_now();
        self.with_limits(|limits| {
            let is_empty = limits.own.as_mut().is_some_and(|own| {
                own.refill(now);
                own.is_empty(side)
            });
            is_empty || limits.seat(side).is_some_and(|seat| seat.is_waiting())
        })
        .unwrap_or(false)
    }

    fn own_level(&self, side: Side) -> Option<i64> {
        let now = self.handle.cached_now();
        self.with_limits(|limits| {
            let own = limits.own.as_mut()?;
            own.refill(now);
            own.level(side)
        })
        .flatten()
    }

    fn decrement(self: &Rc<Self>, side: Side, bytes: i64) -> Result<(), Error> {
        self.check()?;
        if self.own_level(side).is_none() {
            return Err(Error::Invalid("there is no limit to take from"));
        }
        self.change_limits(|limits| {
            if let Some(own) = &mut limits.own {
                own.take(side, bytes);
            }
        });
        Ok(())
    }

    /// How many bytes the limits let pass now. If none, that direction is suspended, and will be woken.
    pub(super) fn quota(self: &Rc<Self>, side: Side) -> usize {
        if self.has(Inner::suspended(side)) {
            return 0;
        }
        let own = self.own_level(side).map_or(usize::MAX, |level| usize::try_from(level).unwrap_or(0));
        let quota = if own == 0 { 0 } else { own.min(self.group_quota(side)) };
        if quota == 0 {
            self.set(Inner::suspended(side), true);
            self.rearm();
        }
        quota
    }

    /// What the group lets pass now. If nothing, the stream waits there.
    fn group_quota(self: &Rc<Self>, side: Side) -> usize {
        let member = self.with_limits(|limits| {
            limits.member.as_ref().map(|of| (of.group.clone(), of.seats[side as usize]))
        });
        let Some((group, mut seat)) = member.flatten() else { return usize::MAX };
        let quota = group.ask(side, &mut seat, self);
        self.with_limits(|limits| limits.seat(side).map(|place| *place = seat));
        quota
    }

    /// How many bytes the limits would let pass now.
    pub(super) fn peek_quota(&self, side: Side) -> usize {
        let own = self.own_level(side).map_or(usize::MAX, |level| usize::try_from(level).unwrap_or(0));
        let group = self.with_limits(|limits| {
            limits.member.as_ref().map(|of| of.group.peek(side, &of.seats[side as usize]))
        });
        own.min(group.flatten().unwrap_or(usize::MAX))
    }

    /// So many bytes have moved; `wants_more` says whether there would have been more.
    pub(super) fn charge(self: &Rc<Self>, side: Side, bytes: usize, wants_more: bool) {
        let charged = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.with_limits(|limits| {
            if let Some(own) = &mut limits.own {
                own.take(side, charged);
            }
            if let Some(member) = &mut limits.member {
                member.group.charge(side, &mut member.seats[side as usize], charged);
            }
        });
        if wants_more {
            // Suspends it if that was all.
            self.quota(side);
        }
    }

    /// Its turn in the group has come, with so many bytes. Says whether it is still that which waits.
    pub(super) fn grant(&self, group: &Shared, side: Side, ticket: u64, granted: Seat) -> bool {
        self.with_limits(|limits| match &mut limits.member {
            Some(member) if std::ptr::eq(&*member.group, group) => {
                let seat = &mut member.seats[side as usize];
                let is_it = seat.has_ticket(ticket);
                if is_it {
                    *seat = granted;
                }
                is_it
            }
            _ => false,
        })
        .unwrap_or(false)
    }

    /// The group lets it go on, unless its own bucket does not.
    pub(super) fn resume_granted(self: &Rc<Self>, side: Side) {
        if !self.is_freed() && self.has(Inner::suspended(side)) && !self.waits_for_limit(side) {
            self.resume(side);
        }
    }

    fn resume(self: &Rc<Self>, side: Side) {
        self.set(Inner::suspended(side), false);
        if side == Side::Output {
            self.touch_write();
        }
        if self.has(State::IN_STEP) {
            // Which ends with all that is done here.
            return;
        }
        match side {
            Side::Input => self.input_changed(),
            Side::Output => {
                if self.may_write() && self.has_output() && !self.has(State::BLOCKED) {
                    self.push_unflushed();
                }
                self.update();
            }
        }
        if self.has(State::FILTER) {
            self.wake_filter();
        }
    }

    /// When its own bucket lets a suspended direction go on.
    pub(super) fn limit_deadline(&self) -> Time {
        if !self.has(State::READ_LIMITED | State::WRITE_LIMITED) {
            return Time::NEVER;
        }
        let sides = [Side::Input, Side::Output].into_iter().filter(|side| self.has(Inner::suspended(*side)));
        self.with_limits(|limits| {
            let own = limits.own.as_ref()?;
            let at = |side| match own.is_empty(side) {
                true => own.filled_at(side),
                // Filled by now, and not told yet.
                false => Time::default(),
            };
            let waits = |side| limits.member.as_ref().is_some_and(|of| of.seats[side as usize].is_waiting());
            sides.filter(|side| own.is_empty(*side) || !waits(*side)).map(at).min()
        })
        .flatten()
        .unwrap_or(Time::NEVER)
    }

    /// Time has passed, in this stream's own step: what its bucket held up may go on.
    pub(super) fn refill_limits(self: &Rc<Self>) {
        for side in [Side::Input, Side::Output] {
            if self.has(Inner::suspended(side)) && !self.waits_for_limit(side) {
                self.resume(side);
            }
        }
    }

    /// Whether somebody wakes a suspended direction, or its rate is 0.
    pub(super) fn is_woken_by_limit(&self, side: Side) -> bool {
        self.with_limits(|limits| {
            limits.own.is_some() || limits.seat(side).is_some_and(|seat| seat.is_waiting())
        })
        .unwrap_or(false)
    }

    pub(super) fn leave_group(&self) {
        let member = self.with_limits(|limits| limits.member.take()).flatten();
        if let Some(Member { group, seats }) = member {
            group.leave(&seats);
        }
    }
}
