//! A stream's buffers while they are in use: out of their cells, so that nothing is borrowed, and back again whatever
//! happens.

use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};

use super::buffers::{Side, forget_bare};
use super::inner::Inner;
use super::state::State;
use crate::buffer::Buffer;

impl Inner {
    /// Takes a buffer out of its cell until the result is dropped.
    #[inline]
    pub(super) fn borrow(&self, side: Side) -> Borrowed<'_> {
        let first = self.take_out(side);
        let buffer = self.take(side);
        let before = self.has(State::COUNTS_CHANGES).then(|| buffer.len());
        Borrowed { inner: self, side, first, before, buffer: ManuallyDrop::new(buffer) }
    }

    /// Marks the output as out of its cell; whoever is the first says so when it is back.
    #[inline]
    pub(super) fn take_out(&self, side: Side) -> bool {
        let first = side == Side::Output && !self.has(State::OUTPUT_OUT);
        if first {
            self.set(State::OUTPUT_OUT, true);
        }
        first
    }

    /// Puts a buffer back where it was taken from; what came in the meantime stands behind it. That of a stream that
    /// was freed meanwhile is dropped.
    #[inline]
    pub(super) fn put_back(&self, side: Side, buffer: &mut Buffer) {
        if self.lies(side) {
            self.put_before(side, buffer);
        }
        if side == Side::Input && buffer.is_empty() {
            // Its block goes back to the loop, and there is nothing to keep.
            buffer.settle(self.handle.pool());
        }
        if !buffer.is_bare() && !self.is_freed() {
            self.put(side, mem::take(buffer));
        }
    }

    #[cold]
    fn put_before(&self, side: Side, buffer: &mut Buffer) {
        loop {
            let mut later = self.take(side);
            if later.is_empty() {
                break;
            }
            // May let go of referenced memory, whose owner may add something again.
            buffer.add_buffer(&mut later);
        }
    }
}

/// A buffer out of its cell. However that ends, also by a panic, the bytes go back in their order.
pub(super) struct Borrowed<'a> {
    inner: &'a Inner,
    side: Side,
    first: bool,
    /// Its length then, if anybody counts.
    before: Option<usize>,
    /// Dropped by our own `Drop`: as a rule there is nothing to drop.
    buffer: ManuallyDrop<Buffer>,
}

impl Deref for Borrowed<'_> {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        &self.buffer
    }
}

impl DerefMut for Borrowed<'_> {
    fn deref_mut(&mut self) -> &mut Buffer {
        &mut self.buffer
    }
}

impl Drop for Borrowed<'_> {
    #[inline]
    fn drop(&mut self) {
        // Nothing is left there that would have to be dropped once more.
        let mut buffer = mem::take(&mut *self.buffer);
        let counts = self.before.map(|before| (before, buffer.len()));
        self.inner.put_back(self.side, &mut buffer);
        if let Some((before, after)) = counts {
            self.inner.note_change(self.side, before, after);
        }
        if self.first {
            self.inner.set(State::OUTPUT_OUT, false);
        }
        if buffer.is_bare() {
            forget_bare(buffer);
        }
    }
}
