//! A stream's buffers while they are in use: out of their cells, so that nothing is borrowed, and back again whatever
//! happens.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use super::inner::Inner;
use super::state::State;
use crate::buffer::Buffer;

impl Inner {
    /// Takes a buffer out of its cell until the result is dropped.
    pub(super) fn borrow<'a>(&'a self, cell: &'a Cell<Buffer>) -> Borrowed<'a> {
        let first = self.take_out(cell);
        let buffer = cell.take();
        Borrowed { inner: self, cell, first, before: buffer.len(), buffer }
    }

    /// Marks the output as out of its cell; whoever is the first says so when it is back.
    pub(super) fn take_out(&self, cell: &Cell<Buffer>) -> bool {
        let first = std::ptr::eq(cell, &self.output) && !self.has(State::OUTPUT_OUT);
        if first {
            self.set(State::OUTPUT_OUT, true);
        }
        first
    }

    /// Puts a buffer back where it was taken from; what came in the meantime stands behind it. That of a stream that
    /// was freed meanwhile is dropped.
    pub(super) fn put_back(&self, cell: &Cell<Buffer>, mut buffer: Buffer) {
        loop {
            let mut later = cell.take();
            if later.is_empty() {
                break;
            }
            // May let go of referenced memory, whose owner may add something again.
            buffer.add_buffer(&mut later);
        }
        if self.is_freed() {
            drop(buffer);
        } else {
            cell.set(buffer);
        }
    }
}

/// A buffer out of its cell. However that ends, also by a panic, the bytes go back in their order.
pub(super) struct Borrowed<'a> {
    inner: &'a Inner,
    cell: &'a Cell<Buffer>,
    first: bool,
    before: usize,
    buffer: Buffer,
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
    fn drop(&mut self) {
        let after = self.buffer.len();
        self.inner.put_back(self.cell, std::mem::take(&mut self.buffer));
        self.inner.note_change(std::ptr::eq(self.cell, &self.inner.input), self.before, after);
        if self.first {
            self.inner.set(State::OUTPUT_OUT, false);
        }
    }
}
