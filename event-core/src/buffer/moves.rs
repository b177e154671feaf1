//! Moving and sharing bytes between buffers: a piece under a quarter of its block is copied, any other moved.

use super::chunk::{Chunk, MIN_CHUNK};
use super::{Buffer, SMALL_PIECE, trim};

impl Buffer {
    /// Moves all bytes of `from` to the end of this buffer; O(chunks of `from`).
    ///
    /// Chunks move as they are. Copied are a piece under a quarter of its block (the block would be kept for
    /// little), and one of at most 1 KiB that fits behind the last bytes here.
    ///
    /// ```
    /// # use event_core::Buffer;
    /// let mut all = Buffer::from("first ");
    /// let mut more = Buffer::from("second");
    /// all.add_buffer(&mut more);
    /// assert_eq!(all, "first second");
    /// assert!(more.is_empty());
    /// ```
    #[doc(alias = "evbuffer_add_buffer")]
    pub fn add_buffer(&mut self, from: &mut Buffer) {
        if !self.may_take(from.len()) {
            return;
        }
        while !from.is_empty() {
            let Some(chunk) = from.list.pop_front() else { break };
            if let Some(chunk) = self.take_back(chunk) {
                from.keep_lent(chunk);
            }
        }
    }

    /// Moves all bytes of `from` before the first of this buffer, under the rule of
    /// [`add_buffer`](Buffer::add_buffer).
    #[doc(alias = "evbuffer_prepend_buffer")]
    pub fn prepend_buffer(&mut self, from: &mut Buffer) {
        if !self.may_take(from.len()) {
            return;
        }
        while !from.is_empty() {
            let Some(mut chunk) = from.list.pop_back() else { break };
            let small = chunk.len() <= SMALL_PIECE
                && self.list.front().is_some_and(|front| !front.is_empty() && front.slack() >= chunk.len());
            if small || is_copied(&chunk) {
                self.prepend(chunk.bytes());
                from.keep_lent(chunk);
            } else {
                chunk.unpool();
                self.push_front(chunk);
            }
        }
    }

    /// Appends the bytes of `other`, which keeps them: its larger chunks become shared, without a copy.
    ///
    /// One body can so stand in the output of any number of streams. Shared bytes never change; what is added to `other`
    /// later goes into new memory. Neither buffer depends on the other afterwards.
    ///
    /// ```
    /// # use event_core::Buffer;
    /// let mut news = Buffer::from(vec![b'n'; 100_000]);
    /// let mut outputs = [Buffer::from("to a: "), Buffer::from("to b: ")];
    /// for output in &mut outputs {
    ///     output.add_buffer_reference(&mut news);
    /// }
    /// assert_eq!((outputs[1].len(), news.len()), (100_006, 100_000));
    /// ```
    #[doc(alias = "evbuffer_add_buffer_reference")]
    pub fn add_buffer_reference(&mut self, other: &mut Buffer) {
        if !self.may_take(other.len()) {
            return;
        }
        other.list.for_each_mut(|chunk| {
            let is_foreign = chunk.block() == 0;
            if is_copied(chunk)
                || self.is_small_for_back(chunk.len())
                || !is_foreign && chunk.len() <= SMALL_PIECE
            {
                self.add(chunk.bytes());
            } else {
                self.push_back(chunk.share());
            }
        });
    }

    /// A second buffer with the same bytes, which both share where they are many:
    /// [`add_buffer_reference`](Buffer::add_buffer_reference) to a new buffer.
    ///
    /// `clone`, which may not change this buffer, copies what is not shared yet.
    #[must_use]
    pub fn share(&mut self) -> Buffer {
        let mut other = Buffer::new();
        other.add_buffer_reference(self);
        other
    }

    /// Moves the first `n` bytes, or all if there are fewer, to the end of `to`; returns how many.
    ///
    /// As [`add_buffer`](Buffer::add_buffer). A chunk that has to be cut in two goes with the larger part and the other is
    /// copied, if that is under a quarter of the block; else both share it.
    #[doc(alias = "evbuffer_remove_buffer")]
    pub fn remove_buffer(&mut self, to: &mut Buffer, n: usize) -> usize {
        let n = n.min(self.len());
        if !to.may_take(n) {
            return 0;
        }
        if n == self.len() {
            to.add_buffer(self);
            return n;
        }
        let mut left = n;
        while left > 0 {
            let len = self.list.front().map_or(0, Chunk::len);
            if len <= left {
                let Some(chunk) = self.list.pop_front() else { break };
                left -= len;
                // The block of a chunk that was copied goes: there is more in this buffer to keep.
                drop(to.take_back(chunk));
            } else {
                if to.is_small_for_back(left) {
                    to.add(&self.contiguous()[..left]);
                    self.drain(left);
                } else if let Some(piece) = self.list.edit_front(|chunk| chunk.split_to(left)) {
                    drop(to.take_back(piece));
                    self.list.edit_front(trim);
                }
                left = 0;
            }
        }
        n
    }

    /// Moves the first `n` bytes, or all if there are fewer, out into a buffer of their own.
    ///
    /// ```
    /// # use event_core::Buffer;
    /// let mut buffer = Buffer::from("headbody");
    /// assert_eq!(buffer.split_to(4), "head");
    /// assert_eq!(buffer, "body");
    /// ```
    #[must_use = "use `drain` to drop the bytes"]
    pub fn split_to(&mut self, n: usize) -> Buffer {
        let mut piece = Buffer::new();
        self.remove_buffer(&mut piece, n);
        piece
    }

    /// Appends a chunk out of another buffer; gives it back if its bytes were copied.
    #[must_use = "a chunk given back is dropped or kept by the buffer it is from"]
    fn take_back(&mut self, mut chunk: Chunk) -> Option<Chunk> {
        if is_copied(&chunk) || self.is_small_for_back(chunk.len()) {
            self.add(chunk.bytes());
            return Some(chunk);
        }
        chunk.unpool();
        self.push_back(chunk);
        None
    }
}

/// The quarter rule. The smallest memory moves in any case: a copy would be given no less.
fn is_copied(chunk: &Chunk) -> bool {
    chunk.block() > MIN_CHUNK && chunk.is_loose()
}
