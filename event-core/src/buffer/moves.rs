//! Moving and sharing bytes between buffers: a piece under a quarter of its block is copied, any other moved.

use super::chunk::{Chunk, MIN_CHUNK, Own, is_loose_in};
use super::take::trim;
use super::{Buffer, SMALL_PIECE};

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
                && !chunk.is_file()
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
    /// One body can so stand in the output of any number of streams. Shared bytes never change; what is added
    /// to `other` later goes into new memory. Neither buffer depends on the other afterwards.
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
                || !chunk.is_file() && self.is_small_for_back(chunk.len())
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
    /// As [`add_buffer`](Buffer::add_buffer). A chunk that has to be cut in two goes with the larger part and
    /// the other is copied, if that is under a quarter of the block; else both share it.
    #[doc(alias = "evbuffer_remove_buffer")]
    pub fn remove_buffer(&mut self, to: &mut Buffer, n: usize) -> usize {
        let n = n.min(self.len());
        if !to.may_take(n) {
            return 0;
        }
        // As below, for what is cut out of one block most often.
        if n > 0
            && to.list.is_bare()
            && let Some((own, _)) = self.list.only_own()
            && own.capacity() > MIN_CHUNK
            && is_loose_in(n, own.capacity())
        {
            to.list.set(Chunk::own(Own::from(&own.bytes()[..n])));
            return self.drain(n);
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
                let in_file = self.list.front().is_some_and(Chunk::is_file);
                if !in_file && to.is_small_for_back(left) || self.is_crumb_for(to, left) {
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

    /// Whether the first `n` bytes, which are less than the first chunk, are copied behind others in any case: into
    /// memory that grows, for a chunk for each of them would be many times their length.
    fn is_crumb_for(&self, to: &Buffer, n: usize) -> bool {
        n <= SMALL_PIECE && !to.is_empty() && self.list.front().is_some_and(|chunk| chunk.is_loose_for(n))
    }

    /// Appends a chunk out of another buffer; gives it back if its bytes were copied.
    #[must_use = "a chunk given back is dropped or kept by the buffer it is from"]
    fn take_back(&mut self, mut chunk: Chunk) -> Option<Chunk> {
        if is_copied(&chunk) || !chunk.is_file() && self.is_small_for_back(chunk.len()) {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::few::few_under_miri;

    /// A buffer of one own chunk: `len` bytes in memory of `capacity`.
    fn block(capacity: usize, len: usize) -> Buffer {
        let mut mem = Vec::with_capacity(capacity);
        mem.extend_from_slice(&vec![b'b'; len]);
        Buffer::from(mem)
    }

    #[test]
    fn a_piece_under_a_quarter_of_its_block_is_copied_and_any_other_moved() {
        for (len, moved) in [(16_384, true), (16_383, false)] {
            let mut from = block(65_536, len);
            let at = from.contiguous().as_ptr();
            let mut to = Buffer::new();
            to.add_buffer(&mut from);
            assert_eq!((to.len(), to.contiguous().as_ptr() == at), (len, moved));
            assert_eq!((from.len(), from.held()), (0, 0));
            assert!(to.held() <= 4 * len);
        }
    }

    #[test]
    fn a_small_piece_goes_behind_the_last_bytes() {
        let mut to = block(4096, 100);
        to.add_buffer(&mut Buffer::from("small"));
        to.add_buffer(&mut Buffer::from_static(b"static"));
        to.add_static(b"\r\n");
        assert_eq!((to.len(), to.chunks().count()), (113, 1));
        to.add_buffer(&mut block(2000, 2000));
        assert_eq!(to.chunks().count(), 2);
    }

    #[test]
    fn moving_nothing_changes_nothing() {
        let mut to = Buffer::from("to");
        let mut from = Buffer::new();
        to.add_buffer(&mut from);
        to.prepend_buffer(&mut from);
        to.add_buffer_reference(&mut from);
        assert_eq!(to.remove_buffer(&mut from, 0), 0);
        assert_eq!(from.remove_buffer(&mut to, 9), 0);
        assert_eq!((&to, to.chunks().count(), from.held()), (&Buffer::from("to"), 1, 0));
        from.add_buffer(&mut to);
        assert_eq!((from, to), (Buffer::from("to"), Buffer::new()));
    }

    #[test]
    fn prepending_a_buffer_keeps_the_order_of_its_chunks() {
        let mut to = Buffer::from("end");
        let mut from = block(2000, 2000);
        from.add_reference(Bytes::from_static(b"-middle-"));
        to.prepend_buffer(&mut from);
        assert_eq!(to.peek_from(1998, 99).collect::<Vec<_>>().concat(), b"bb-middle-end");
        assert!(from.is_empty());
        to.drain(2001);
        to.prepend_buffer(&mut Buffer::from("x"));
        assert_eq!(to, "xmiddle-end");
        // Into the room that drained bytes left.
        let mut to = Buffer::from("12345");
        to.drain(4);
        to.prepend_buffer(&mut Buffer::from("abc"));
        assert_eq!((&to, to.chunks().count()), (&Buffer::from("abc5"), 1));
    }

    #[test]
    fn a_body_referred_to_from_many_buffers_is_there_once() {
        let mut body = block(100_000, 100_000);
        let at = body.contiguous().as_ptr();
        let mut outputs: Vec<Buffer> = (0..3).map(|n| Buffer::from(format!("{n}: "))).collect();
        for output in &mut outputs {
            output.add_buffer_reference(&mut body);
        }
        assert_eq!(body.contiguous().as_ptr(), at);
        body.add(b"only here");
        drop(body);
        for (n, output) in outputs.iter().enumerate() {
            let chunks: Vec<&[u8]> = output.chunks().collect();
            assert_eq!(chunks[0], format!("{n}: ").as_bytes());
            assert_eq!((chunks[1].as_ptr(), chunks[1].len()), (at, 100_000));
        }
        // A reference to a reference is one too.
        let mut again = Buffer::new();
        again.add_buffer_reference(&mut outputs[0]);
        assert_eq!(again.chunks().last().map(<[u8]>::as_ptr), Some(at));
    }

    #[test]
    fn sharing_a_little_out_of_a_large_block_copies_it() {
        let mut from = block(65_536, 2000);
        let copy = from.share();
        assert_eq!((copy.len(), copy.held()), (2000, 2000));
        from.add(&[b'x'; 1000]);
        assert_eq!((from.chunks().count(), copy.len()), (1, 2000), "the block still takes bytes");
    }

    #[test]
    fn the_owner_of_referenced_memory_goes_with_its_last_byte() {
        struct Owner {
            _alive: Arc<()>,
        }
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                &[b'o'; 10_000]
            }
        }
        let count = Arc::new(());
        let mut buffer = Buffer::from("before");
        buffer.add_reference(Bytes::from_owner(Owner { _alive: count.clone() }));
        buffer.add(b"after");
        let mut other = Buffer::new();
        other.add_buffer_reference(&mut buffer);
        let part = buffer.split_to(5_000);
        drop(part);
        buffer.drain(5_006);
        assert_eq!((&buffer, Arc::strong_count(&count)), (&Buffer::from("after"), 2));
        other.drain(10_005);
        assert_eq!(Arc::strong_count(&count), 2);
        other.drain(1);
        assert_eq!(Arc::strong_count(&count), 1);
    }

    #[test]
    fn a_part_of_a_buffer_is_split_off_at_every_position() {
        for at in (0..=3010).step_by(few_under_miri(1, 215)) {
            let mut buffer = Buffer::from("0123456789");
            buffer.add_buffer(&mut block(2000, 2000));
            buffer.add_static(&[b's'; 1000]);
            let whole = buffer.to_vec();
            let head = buffer.split_to(at);
            assert_eq!(
                (head.len(), &head.to_vec()[..], &buffer.to_vec()[..]),
                (at, &whole[..at], &whole[at..])
            );
        }
        let mut buffer = Buffer::from("short");
        assert_eq!(buffer.split_to(usize::MAX), "short");
        assert!(buffer.is_empty());
    }
}
