//! When the hooks of a connection's requests run: never inside a call of the program's.

use event_core::Direction;

use super::{Connection, Stage};
use crate::conn::{Seq, State};
use crate::server::{Completion, Gone, Hook, Progress, RoomCallback, guarded};

impl Connection {
    pub(crate) fn add_hook(&self, hook: Hook) {
        match self.stage.get() {
            Stage::Closed => self.server.queue_hook(hook, Completion::ClientGone),
            Stage::ServerGone => self.server.queue_hook(hook, Completion::ServerGone),
            _ => {
                if hook.is_gone() && self.finished.get() {
                    // Told in the next turn, by `drained`.
                    let _ = self.bev.trigger(Direction::WRITE);
                }
                self.extra(|extra| extra.hooks.push(hook));
            }
        }
    }

    /// The answer of `seq` got on.
    pub(super) fn mark(&self, seq: Seq, from: Progress, to: Progress) {
        if let Some(mut extra) = self.extra.take() {
            let its = extra.hooks.iter_mut().filter(|hook| hook.seq == seq && hook.progress == from);
            its.for_each(|hook| hook.progress = to);
            self.extra.set(Some(extra));
        }
    }

    /// Takes out the hooks that `wanted` picks.
    pub(super) fn take_hooks(&self, wanted: impl FnMut(&mut Hook) -> bool) -> Vec<Hook> {
        let Some(mut extra) = self.extra.take() else { return Vec::new() };
        let taken = extra.hooks.extract_if(.., wanted).collect();
        self.extra.set(Some(extra).filter(|extra| !extra.is_empty()));
        taken
    }

    /// Takes out the hooks of answers that are written as a whole.
    pub(super) fn written_hooks(&self) -> Vec<Hook> {
        self.take_hooks(|hook| hook.progress == Progress::Written)
    }

    /// Queues the hooks of answers that have left, if no flush is to come that tells them.
    pub(super) fn settle_hooks(&self) {
        if self.bev.pending_output() == 0 {
            for hook in self.written_hooks() {
                self.server.queue_hook(hook, Completion::Sent);
            }
        }
    }

    /// Has `cb` called whenever bytes have left and few are unsent, as long as the answer of `seq` goes on.
    pub(crate) fn watch_room(&self, seq: Seq, cb: RoomCallback) {
        self.bev.set_watermark(Direction::WRITE, self.room() / 2, None);
        self.add_hook(Hook::on_room(seq, cb));
    }

    pub(super) fn run_room_hooks(&self) {
        for mut hook in self.take_hooks(|hook| hook.is_room()) {
            let again = match self.is_streaming(hook.seq) {
                true if self.pending_output(hook.seq) <= self.room() / 2 => hook.call_room(),
                streaming => streaming,
            };
            // The call may have ended the answer.
            if again && self.is_streaming(hook.seq) {
                self.add_hook(hook);
            }
        }
    }

    pub(super) fn is_streaming(&self, seq: Seq) -> bool {
        self.check().is_ok()
            && self.core.borrow().exchange(seq).is_some_and(|e| matches!(e.state, State::Streaming(_)))
    }

    /// Tells every request that is out that the client has left.
    pub(super) fn run_gone_hooks(&self, gone: Gone) {
        let Some(mut extra) = self.extra.take() else { return };
        let pending = extra.hooks.iter_mut().filter(|hook| hook.progress == Progress::Pending);
        let callbacks: Vec<_> = pending.filter_map(|hook| hook.take_gone()).collect();
        self.extra.set(Some(extra));
        for callback in callbacks {
            guarded("on_client_gone", || callback(gone));
        }
    }
}
