//! The flush list: streams that somebody else's callback wrote to, written together when the batch ends.

use std::rc::Rc;

use crate::reactor::{LoopHandle, Source};

/// At most this many streams are written in one go; the rest waits for the next turn.
const STREAMS_PER_FLUSH: usize = 256;

/// At most this many bytes are written in one go; the rest waits for the next turn.
const BYTES_PER_FLUSH: usize = 1 << 20;

/// A stream with unsent output.
pub(super) struct Unflushed {
    priority: u8,
    source: Rc<dyn Source>,
}

impl LoopHandle {
    /// Puts a stream on the list; the stream sees to it that it stands there once.
    pub(crate) fn push_unflushed(&self, priority: u8, source: Rc<dyn Source>) {
        self.reactor.flush_list.borrow_mut().push_back(Unflushed { priority, source });
        // Written while the loop waits: it must not sleep on.
        let _ = self.touched();
    }

    /// Writes what stands on the list, most urgent first.
    pub(super) fn flush_all(&self) {
        let mut list = self.reactor.flush_list.take();
        if list.is_empty() {
            return;
        }
        if list.iter().any(|entry| entry.priority != list[0].priority) {
            list.make_contiguous().sort_by_key(|entry| entry.priority);
        }
        let mut bytes = 0;
        let mut streams = 0;
        while streams < STREAMS_PER_FLUSH && bytes < BYTES_PER_FLUSH {
            let Some(next) = list.pop_front() else { break };
            streams += 1;
            let written = next.source.flush();
            if written > 0 {
                self.note_progress();
            }
            bytes += written;
        }
        // What a referenced block's Drop wrote in the meantime stands behind what was left.
        let mut current = self.reactor.flush_list.borrow_mut();
        if current.is_empty() {
            *current = list;
        } else if !list.is_empty() {
            list.append(&mut current);
            *current = list;
        }
    }

    pub(super) fn has_unflushed(&self) -> bool {
        !self.reactor.flush_list.borrow().is_empty()
    }
}
