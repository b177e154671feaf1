//! When a connection has waited long enough, and for what.

use std::rc::Rc;
use std::time::Duration;

use event_core::Direction;

use super::{Connection, Stage};
use crate::conn::{Linger, Rules, Seq, State, Step};
use crate::encode::ErrorReply;

impl Connection {
    pub(super) fn expired(self: &Rc<Self>) {
        let now = self.server.handle.elapsed();
        let rules = self.server.rules();
        let output = self.bev.pending_output() > 0;
        if output && self.answer_deadline(&rules).is_some_and(|deadline| deadline <= now) {
            // The client does not read.
            self.reset();
            return;
        }
        if self.stage.get() == Stage::Lingering {
            let over = self.extra(|extra| {
                extra.linger.as_ref().is_none_or(|l| l.deadline().is_some_and(|deadline| deadline <= now))
            });
            if over {
                return self.free();
            }
        }
        if self.stage.get() == Stage::Open && self.give_up_late_answers(now, &rules) {
            return self.arm();
        }
        if self.stage.get() == Stage::Open && !self.body_waits() {
            let step = self.core.borrow_mut().on_deadline(now, &rules.limits, output);
            if let Some(Step::Fail { seq, error }) = step {
                self.lingers.set(true);
                let unfinished = self.take_incoming();
                self.fail(seq, &error);
                super::body::fail(unfinished, error);
                self.close_if_ended();
            }
        }
        self.arm();
    }

    /// When the client must have read something of what is written.
    fn answer_deadline(&self, rules: &Rules) -> Option<Duration> {
        let since = self.bev.last_written();
        rules.limits.answer_timeout.map(|timeout| since.saturating_add(timeout))
    }

    /// Output that is written outside of `pump`, which arms by itself, must be read in time as well.
    pub(super) fn arm_outside(&self) {
        if !self.pumping.get() {
            self.arm();
        }
    }

    /// Sets the nearest deadline. Law: whenever a connection waits, something will wake it.
    pub(super) fn arm(&self) {
        let output = self.bev.pending_output() > 0;
        let deadline = self.server.with_rules(|rules| self.nearest_deadline(rules, output));
        self.bev.set_deadline(deadline);
        self.core.borrow_mut().set_told(deadline.map(|_| self.server.rules_age()));
        debug_assert!(
            output || deadline.is_some() || self.is_awaited(),
            "nobody wakes a connection that is {:?}",
            self.stage.get()
        );
    }

    /// Whether the deadline that is set comes before any that a connection without output, on which nothing is under way,
    /// needs: it was set under the rules of now, by which an answer has to be read before an idle connection closes. When
    /// it fires, it goes back for the rest.
    #[inline]
    pub(super) fn has_near_deadline(&self) -> bool {
        self.core.borrow().told() == self.server.near_age()
    }

    fn nearest_deadline(&self, rules: &Rules, output: bool) -> Option<Duration> {
        let mut deadline = match self.stage.get() {
            Stage::Open if self.body_waits() => None,
            Stage::Open => self.core.borrow().deadline(&rules.limits, output),
            Stage::Lingering => self.extra(|extra| extra.linger.as_ref().and_then(Linger::deadline)),
            _ => None,
        };
        if output && let Some(answer) = self.answer_deadline(rules) {
            deadline = Some(deadline.map_or(answer, |deadline| deadline.min(answer)));
        }
        if rules.limits.handler_timeout.is_some()
            && let Some(handler) = self.handler_deadline(rules)
        {
            deadline = Some(deadline.map_or(handler, |deadline| deadline.min(handler)));
        }
        deadline
    }

    /// Whether a read, the next turn or the program will go on with this connection, or nothing has to.
    fn is_awaited(&self) -> bool {
        let reads = self.bev.enabled().contains(Direction::READ) && !self.finished.get();
        // The stream itself closes behind what it has sent.
        let closes = self.stage.get() == Stage::Closing || self.bev.is_freed();
        reads || closes || self.yields.get() || self.lent.get() > 0
    }

    /// A request is with the program, and its answer has a deadline.
    pub(super) fn note_handed(&self, seq: Seq) {
        if self.is_waiting(seq) {
            let now = self.server.handle.elapsed();
            self.extra(|extra| {
                if !extra.handed.iter().any(|&(handed, _)| handed == seq) {
                    extra.handed.push((seq, now));
                }
            });
        }
    }

    /// It has none any more.
    pub(super) fn forget_handed(&self, seq: Seq) {
        self.extra(|extra| extra.handed.retain(|&(handed, _)| handed != seq));
    }

    /// Whether the head of the answer of `seq` is not written.
    fn is_waiting(&self, seq: Seq) -> bool {
        self.core.borrow().exchange(seq).is_some_and(|exchange| exchange.state == State::Waiting)
    }

    fn handler_deadline(&self, rules: &Rules) -> Option<Duration> {
        let timeout = rules.limits.handler_timeout?;
        let since = self.extra(|extra| {
            extra.handed.retain(|&(seq, _)| self.is_waiting(seq));
            extra.handed.iter().map(|&(_, since)| since).min()
        });
        Some(since?.saturating_add(timeout))
    }

    /// Answers for handlers that have had their time; false if there are none.
    fn give_up_late_answers(self: &Rc<Self>, now: Duration, rules: &Rules) -> bool {
        let Some(timeout) = rules.limits.handler_timeout else { return false };
        let late = self.extra(|extra| {
            extra.handed.extract_if(.., |(_, since)| since.saturating_add(timeout) <= now).collect::<Vec<_>>()
        });
        for &(seq, _) in &late {
            if self.is_waiting(seq) {
                log::warn!("503 to {:?}: its handler has not answered in time", self.peer());
                let _ = self.reply_error(seq, &ErrorReply::of(503));
            }
        }
        !late.is_empty()
    }
}
