//! A stream's timeouts and deadline: one lazy timer of the loop for all of them.

use std::time::Duration;

use super::inner::Inner;
use super::state::{Due, State};
use crate::clock::Time;

impl Inner {
    pub(super) fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) {
        let now = self.handle.cached_now();
        self.rare_mut(|rare| {
            rare.read_timeout = read;
            rare.write_timeout = write;
            rare.last_read = now;
        });
        self.last_write.set(now);
        self.rearm();
    }

    #[inline]
    pub(super) fn set_deadline(&self, deadline: Time) {
        let before = self.deadline.replace(deadline);
        // The timer is never later than what was set before: nothing is to be done for what comes no sooner.
        if deadline < before {
            self.rearm();
        }
    }

    pub(super) fn touch_read(&self) {
        self.rare_if(|rare| {
            if rare.read_timeout.is_some() {
                rare.last_read = self.handle.cached_now();
            }
        });
    }

    #[inline]
    pub(super) fn touch_write(&self) {
        self.last_write.set(self.handle.cached_now());
    }

    /// When each timeout passes: reading, writing.
    pub(super) fn timeouts(&self) -> (Time, Time) {
        if !self.has(State::RARE) {
            return (Time::NEVER, Time::NEVER);
        }
        let (read, write, last_read) = self.rare((None, None, Time::default()), |rare| {
            (rare.read_timeout, rare.write_timeout, rare.last_read)
        });
        (
            read.filter(|_| self.may_read()).map_or(Time::NEVER, |timeout| last_read.after(timeout)),
            write
                .filter(|_| self.has_to_write())
                .map_or(Time::NEVER, |timeout| self.last_progress().after(timeout)),
        )
    }

    /// Whether output waits, other than for the program. A connect that gets nowhere is output that waits, whether or not
    /// there is any yet.
    fn has_to_write(&self) -> bool {
        let connecting = self.has(State::CONNECTING) && self.has(State::WRITE_ENABLED);
        connecting || self.may_write() && !self.is_sent()
    }

    /// Whether nothing waits to be sent in this stream or below it.
    fn is_sent(&self) -> bool {
        !self.has_output() && !self.ends_later() && (!self.has(State::FILTER) || self.is_filtered_and_sent())
    }

    pub(super) fn true_deadline(&self) -> Time {
        let (read, write) = self.timeouts();
        self.deadline.get().min(read).min(write).min(self.limit_deadline())
    }

    /// Arms the heap's timer if it would come too late. One that comes too early costs nothing until it fires.
    pub(super) fn rearm(&self) {
        let deadline = self.true_deadline();
        if deadline < self.handle.armed(self.id.get()) {
            self.handle.arm(self.id.get(), deadline);
        }
    }

    /// Which timeouts have passed.
    pub(super) fn expired(&self, now: Time) -> Due {
        let mut due = Due::empty();
        let (read, write) = self.timeouts();
        if read <= now {
            self.set(State::READ_ENABLED, false);
            due |= Due::READ_TIMEOUT;
        }
        if write <= now {
            self.set(State::WRITE_ENABLED, false);
            due |= Due::WRITE_TIMEOUT;
        }
        if self.deadline.get() <= now {
            self.deadline.set(Time::NEVER);
            due |= Due::DEADLINE;
        }
        due
    }
}
