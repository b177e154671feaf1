//! Owners of a stream, and of one of its buffers, for a while.

use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use super::BufferEvent;
use super::buffers::Side;
use super::inner::Inner;
use super::state::State;
use crate::buffer::Buffer;

/// A stream that is freed when this is dropped.
#[derive(Debug)]
#[must_use = "dropping it frees the stream"]
pub struct Scoped {
    pub(super) stream: BufferEvent,
}

impl Deref for Scoped {
    type Target = BufferEvent;

    fn deref(&self) -> &BufferEvent {
        &self.stream
    }
}

impl Drop for Scoped {
    fn drop(&mut self) {
        self.stream.free();
    }
}

/// A stream's input or output, taken out for use and put back when this is dropped.
#[derive(Debug)]
pub struct BufferGuard {
    inner: Rc<Inner>,
    /// Dropped by our own `Drop`: of an empty one there is nothing to drop.
    buffer: ManuallyDrop<Buffer>,
    side: Side,
    before: usize,
    /// Whether this is who took the output out of its cell.
    first: bool,
}

impl BufferGuard {
    #[inline]
    pub(super) fn take(inner: &Rc<Inner>, side: Side) -> BufferGuard {
        let first = inner.take_out(side);
        let buffer = inner.take(side);
        BufferGuard {
            inner: inner.clone(),
            before: buffer.len(),
            buffer: ManuallyDrop::new(buffer),
            side,
            first,
        }
    }
}

impl Deref for BufferGuard {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        &self.buffer
    }
}

impl DerefMut for BufferGuard {
    fn deref_mut(&mut self) -> &mut Buffer {
        &mut self.buffer
    }
}

impl Drop for BufferGuard {
    #[inline]
    fn drop(&mut self) {
        if self.side == Side::Input
            && self.inner.rests_without(Side::Input)
            && self.buffer.give_emptied(self.inner.handle.pool())
        {
            // All was taken in the stream's own step, which sees to the rest.
            return;
        }
        // Nothing is left there that would have to be dropped once more.
        let buffer = mem::take(&mut *self.buffer);
        self.put_back(buffer);
    }
}

impl BufferGuard {
    fn put_back(&mut self, mut buffer: Buffer) {
        let after = buffer.len();
        let grown = self.before == 0 && after > 0;
        self.inner.put_back(self.side, &mut buffer);
        if self.first {
            self.inner.set(State::OUTPUT_OUT, false);
        }
        self.inner.note_change(self.side, self.before, after);
        if self.side == Side::Input {
            self.inner.input_changed();
        } else {
            if grown {
                self.inner.touch_write();
            }
            self.inner.output_changed();
        }
    }
}
