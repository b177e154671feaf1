//! Interim answers, and the end of HTTP on a connection.

use std::rc::Rc;

use event_core::{BufferEvent, Direction, StreamEvent};

use super::answer::{HEAD_ROOM, STREAM_MAX};
use super::{Connection, Stage};
use crate::conn::Seq;
use crate::encode::{self, Payload, ReplyHead};
use crate::error::{Caller, Error};
use crate::head::Headers;
use crate::server::{Progress, guarded};

pub(crate) type UpgradeCallback = Box<dyn FnOnce(BufferEvent)>;

impl Connection {
    /// Writes an answer that is not the last one of its request.
    pub(crate) fn interim(&self, seq: Seq, status: u16, headers: &Headers) -> Result<(), Error> {
        self.admit()?;
        let is_known = self.core.borrow().may_inform(seq)?;
        if !is_known {
            return Ok(());
        }
        self.append(seq, HEAD_ROOM, |out| encode::interim_head(out, status, headers))?;
        if status == 100 {
            self.core.borrow_mut().on_continued(seq, self.server.handle.elapsed());
        }
        self.arm_outside();
        Ok(())
    }

    /// Answers that the connection goes on as another protocol, and has it handed over when that was written.
    pub(crate) fn upgrade(
        self: &Rc<Self>,
        seq: Seq,
        head: &ReplyHead<'_>,
        callback: UpgradeCallback,
    ) -> Result<(), Error> {
        self.check()?;
        if !self.core.borrow().may_hand_over(seq) {
            return Err(Caller::NoUpgrade.into());
        }
        self.reply_head(seq, head, Payload::Handover, None)?;
        self.core.borrow_mut().hand_over(seq)?;
        self.mark(seq, Progress::Pending, Progress::Ended);
        self.extra(|extra| extra.upgrade = Some(callback));
        self.advance();
        Ok(())
    }

    /// HTTP is over: the next turn hands the stream on. Until then nothing is read, so that its end is not missed.
    pub(super) fn begin_hand_over(&self) {
        self.stage.set(Stage::Upgrading);
        self.bev.disable(Direction::READ);
        self.yields.set(self.bev.trigger(Direction::READ).is_ok());
    }

    /// Lets go of the stream.
    pub(super) fn hand_over(self: &Rc<Self>) {
        let callback = self.extra(|extra| extra.upgrade.take());
        let Some(callback) = callback else { return self.free() };
        self.stage.set(Stage::Upgraded);
        self.bev.set_deadline(None);
        self.bev.set_held(false);
        self.bev.set_watermark(Direction::WRITE, 0, None);
        self.bev.set_max(Some(STREAM_MAX), Some(STREAM_MAX));
        self.bev.clear_callbacks();
        self.over(Stage::Upgraded);
        let stream = self.bev.clone();
        if !guarded("an upgrade", || callback(stream)) || self.bev.enable(Direction::READ).is_err() {
            return self.bev.free();
        }
        if self.bev.pending_input() > 0 {
            let _ = self.bev.trigger(Direction::READ);
        }
        if self.finished.get() {
            let _ = self.bev.trigger_event(StreamEvent::EOF | StreamEvent::READING);
        }
    }
}
