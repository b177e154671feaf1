//! The flush list: streams that somebody else's callback wrote to, written together when the batch ends.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::reactor::{LoopHandle, Source, Uses};

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
        self.reactor.extras.set(Uses::UNFLUSHED, true);
        // Written while the loop waits: it must not sleep on.
        let _ = self.touched();
    }

    /// Writes what stands on the list, most urgent first.
    #[inline]
    pub(super) fn flush_all(&self) {
        if self.has_unflushed() {
            self.flush_listed();
        }
    }

    #[cold]
    fn flush_listed(&self) {
        let mut list = self.reactor.flush_list.take();
        self.reactor.extras.set(Uses::UNFLUSHED, false);
        if list.iter().any(|entry| entry.priority != list[0].priority) {
            list.make_contiguous().sort_by_key(|entry| entry.priority);
        }
        let mut rest = Rest { handle: self, list, writing: None };
        let mut bytes = 0;
        let mut streams = 0;
        while streams < STREAMS_PER_FLUSH && bytes < BYTES_PER_FLUSH {
            let Some(next) = rest.list.pop_front() else { break };
            streams += 1;
            rest.writing = Some(next.source.clone());
            let written = next.source.flush();
            rest.writing = None;
            if written > 0 {
                self.note_progress();
            }
            bytes += written;
        }
    }

    #[inline]
    pub(super) fn has_unflushed(&self) -> bool {
        self.reactor.extras.has(Uses::UNFLUSHED)
    }
}

/// What is left of the list while it is worked on: however that ends, it goes back.
struct Rest<'a> {
    handle: &'a LoopHandle,
    list: VecDeque<Unflushed>,
    /// Whose turn it is; if the `Drop` of what it sent panics, it ends as if that were its callback.
    writing: Option<Rc<dyn Source>>,
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if !self.list.is_empty() {
            // What was written in the meantime, by a referenced block's Drop, stands behind what was left.
            let mut current = self.handle.reactor.flush_list.borrow_mut();
            self.list.append(&mut current);
            std::mem::swap(&mut self.list, &mut current);
            self.handle.reactor.extras.set(Uses::UNFLUSHED, true);
        }
        if let Some(source) = self.writing.take() {
            source.teardown();
        }
    }
}
