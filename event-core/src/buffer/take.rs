//! Looking at the bytes of a buffer and taking them out: peek, copy, pull up, remove, drain.

use std::{io, mem};

use super::Buffer;
use super::chunk::{Chunk, MAX_CHUNK, Own};

impl Buffer {
    /// Moves the first bytes out into `out`, as many as there are; returns how many.
    ///
    /// Those in a file are read straight into `out`, and none is lost if that fails: [`std::io::Read`] says why.
    #[doc(alias = "evbuffer_remove")]
    pub fn remove(&mut self, out: &mut [u8]) -> usize {
        let n = self.copyout(out);
        self.drain(n)
    }

    /// Drops the first `n` bytes, or all if there are fewer; returns how many.
    ///
    /// Afterwards the rest of a block larger than 64 KiB is copied if that is under a quarter of it and at
    /// most 64 KiB.
    #[inline]
    #[doc(alias = "evbuffer_drain")]
    pub fn drain(&mut self, n: usize) -> usize {
        match self.list.only_own() {
            Some((own, _)) if n < own.len() && own.capacity() <= MAX_CHUNK => {
                own.advance(n);
                n
            }
            // A block that the loop's pool lent stays for `settle` to hand back.
            Some((own, true)) if n >= own.len() => {
                let n = own.len();
                own.clear();
                n
            }
            _ => self.drain_slow(n),
        }
    }

    /// Drops all but the first `n` bytes.
    pub fn truncate(&mut self, n: usize) {
        if n == 0 {
            return self.drain_all();
        }
        while self.len() > n {
            let over = self.len() - n;
            match self.list.back().map_or(0, Chunk::len) {
                len if len <= over => drop(self.list.pop_back()),
                len => {
                    self.list.edit_back(|chunk| {
                        chunk.truncate(len - over);
                        trim(chunk);
                    });
                }
            }
        }
    }

    /// Drops all bytes and all memory.
    #[inline]
    pub fn clear(&mut self) {
        drop(mem::take(&mut self.list));
    }

    /// Moves everything out and leaves this buffer empty, without memory.
    ///
    /// (Not `take`, which would be hidden by `std::io::Read::take` wherever that trait is in scope.)
    #[inline]
    #[must_use = "use `clear` to drop the bytes"]
    pub fn take_all(&mut self) -> Buffer {
        let mut all = mem::take(self);
        // What the loop lent is now for this user to keep or drop.
        all.list.edit_front(Chunk::unpool);
        all.list.edit_back(Chunk::unpool);
        all
    }

    /// Makes the first `n` bytes one piece and returns them; `None` if there are fewer.
    ///
    /// Copies at most what is not in one piece already. O(1) if the first chunk has the bytes. `None` too if some of them
    /// lie in a file that cannot give them ([`load`](Buffer::load) says why).
    ///
    /// ```
    /// # use event_core::Buffer;
    /// let mut buffer = Buffer::from("he");
    /// buffer.add_buffer(&mut Buffer::from("llo"));
    /// assert_eq!(buffer.pullup(4), Some(&b"hell"[..]));
    /// assert_eq!(buffer.pullup(6), None);
    /// ```
    #[inline]
    #[doc(alias = "evbuffer_pullup")]
    pub fn pullup(&mut self, n: usize) -> Option<&[u8]> {
        if n > self.contiguous().len() {
            if n > self.len() || self.load_some(n).ok()? < n {
                return None;
            }
            if n > self.contiguous().len() {
                self.linearise(n);
            }
        }
        self.contiguous().get(..n)
    }

    /// The bytes that lie in one piece at the front: all of the first chunk, or some of a file's first bytes. Empty only if
    /// the buffer is, or if a file cannot give them.
    #[inline]
    #[doc(alias = "evbuffer_get_contiguous_space")]
    pub fn contiguous(&self) -> &[u8] {
        match self.list.only_own_bytes() {
            Some(bytes) => bytes,
            None => self.other_contiguous(),
        }
    }

    #[inline(never)]
    fn other_contiguous(&self) -> &[u8] {
        self.list.front().map_or(&[], Chunk::bytes)
    }

    /// All bytes, piece by piece; no piece is empty. They end early where a file cannot give them.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.list.pieces(0, usize::MAX)
    }

    /// The first `n` bytes, piece by piece, the last piece cut to the length.
    #[doc(alias = "evbuffer_peek")]
    pub fn peek(&self, n: usize) -> impl Iterator<Item = &[u8]> + Clone {
        self.list.pieces(0, n)
    }

    /// As [`peek`](Buffer::peek), from position `from` on.
    pub fn peek_from(&self, from: usize, n: usize) -> impl Iterator<Item = &[u8]> + Clone {
        self.list.pieces(from, n)
    }

    /// Copies the first bytes to `out`, as many as there are; returns how many.
    #[doc(alias = "evbuffer_copyout")]
    pub fn copyout(&self, out: &mut [u8]) -> usize {
        self.copyout_from(0, out)
    }

    /// As [`copyout`](Buffer::copyout), from position `from` on; nothing if that is beyond the end.
    #[doc(alias = "evbuffer_copyout_from")]
    pub fn copyout_from(&self, from: usize, out: &mut [u8]) -> usize {
        self.try_copyout(from, out).unwrap_or(0)
    }

    /// As `copyout_from`, with why a file gave not even one byte.
    pub(super) fn try_copyout(&self, from: usize, out: &mut [u8]) -> io::Result<usize> {
        if self.has_files() {
            return self.copyout_files(from, out);
        }
        let mut done = 0;
        for piece in self.list.pieces(from, out.len()) {
            out[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        }
        Ok(done)
    }

    /// Reads what lies in files to where it is wanted, and keeps none of it.
    fn copyout_files(&self, from: usize, out: &mut [u8]) -> io::Result<usize> {
        let (mut skip, mut done) = (from, 0);
        for chunk in self.list.iter() {
            if skip >= chunk.len() {
                skip -= chunk.len();
                continue;
            }
            let at = mem::take(&mut skip);
            let n = (chunk.len() - at).min(out.len() - done);
            if n == 0 {
                break;
            }
            let room = &mut out[done..done + n];
            let copied = match chunk {
                Chunk::File(part) => match part.read(at, room) {
                    Err(error) if done == 0 => return Err(error),
                    read => read.unwrap_or(0),
                },
                Chunk::Own { .. } | Chunk::Shared { .. } => {
                    room.copy_from_slice(&chunk.bytes()[at..at + n]);
                    n
                }
            };
            done += copied;
            if copied < n {
                break;
            }
        }
        Ok(done)
    }

    /// A copy of all bytes, as far as files can give them.
    pub fn to_vec(&self) -> Vec<u8> {
        if self.has_files() {
            let mut all = vec![0; self.len()];
            let n = self.copyout(&mut all);
            all.truncate(n);
            return all;
        }
        let mut all = Vec::with_capacity(self.len());
        self.chunks().for_each(|piece| all.extend_from_slice(piece));
        all
    }

    #[inline(never)]
    fn drain_slow(&mut self, n: usize) -> usize {
        let n = n.min(self.len());
        if n == self.len() {
            self.drain_all();
            return n;
        }
        let mut left = n;
        while left > 0 {
            match self.list.front().map_or(0, Chunk::len) {
                len if len <= left => {
                    left -= len;
                    drop(self.list.pop_front());
                }
                _ => {
                    self.list.edit_front(|chunk| chunk.advance(left));
                    left = 0;
                }
            }
        }
        self.list.edit_front(trim);
        n
    }

    /// Drops all bytes. A block that the loop's pool lent stays for `settle` to hand back; a user's memory
    /// goes.
    fn drain_all(&mut self) {
        let mut all = mem::take(&mut self.list);
        if let Some(chunk) = all.pop_back() {
            self.keep_lent(chunk);
        }
    }

    /// Keeps the emptied memory of a chunk that was taken out, if the pool lent it and there is nothing else
    /// here.
    pub(super) fn keep_lent(&mut self, mut chunk: Chunk) {
        if let Chunk::Own { own, pooled: true } = &mut chunk
            && self.list.count() == 0
        {
            own.clear();
            self.list.push_back(chunk);
        }
    }

    /// Makes the first `n` bytes, all of them in memory, one piece; `contiguous().len() < n <= len`.
    fn linearise(&mut self, n: usize) {
        let n = self.whole_pieces(n);
        let (mut own, pooled) = match self.list.pop_front() {
            Some(Chunk::Own { own, pooled }) if own.spare() >= n - own.len() => (own, pooled),
            Some(first) => {
                // Room for as much again, so that a caller that asks for a little more each time copies it
                // seldom.
                let room = if n <= MAX_CHUNK { n.next_power_of_two() } else { n };
                let mut own = Own::with_capacity(room);
                own.fill(first.bytes());
                (own, false)
            }
            None => return,
        };
        while own.len() < n {
            let missing = n - own.len();
            let Some(mut chunk) = self.list.pop_front() else { break };
            if chunk.len() <= missing {
                own.fill(chunk.bytes());
            } else {
                own.fill(&chunk.bytes()[..missing]);
                chunk.advance(missing);
                self.list.push_front(chunk);
            }
        }
        self.list.push_front(Chunk::Own { own, pooled });
    }

    /// The end of the piece that position `n` lies in if leaving the rest of it would leave a loose chunk in
    /// the middle or a large one at the end, else `n`.
    fn whole_pieces(&self, n: usize) -> usize {
        let mut end = 0;
        let mut chunks = self.list.iter().peekable();
        while let Some(chunk) = chunks.next() {
            end += chunk.len();
            if end >= n {
                let must_fit = chunks.peek().is_some() || chunk.block() > MAX_CHUNK;
                return if must_fit && chunk.is_loose_for(end - n) { end } else { n };
            }
        }
        n
    }
}

/// Lets go of a large block at one of the ends of which only a little is left.
pub(super) fn trim(chunk: &mut Chunk) {
    if chunk.block() > MAX_CHUNK {
        chunk.fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn draining_exactly_everything_is_safe_in_every_state() -> Result<(), Error> {
        let mut shared = Buffer::from(vec![b's'; 2000]);
        let _other = shared.share();
        let mut reserved = Buffer::from("reserved");
        reserved.reserve(1000)?;
        let mut many = Buffer::from("many");
        many.add_static(&[b'm'; 2000]);
        many.reserve(1000)?;
        let mut drained = Buffer::from("drained");
        drained.drain(3);
        let mut unused = Buffer::new();
        unused.reserve(10)?;
        for mut buffer in [Buffer::new(), shared, reserved, many, drained, unused, Buffer::from_static(b"s")]
        {
            let len = buffer.len();
            assert_eq!(buffer.drain(len), len);
            assert_eq!((buffer.len(), buffer.is_empty(), buffer.contiguous()), (0, true, &b""[..]));
            assert_eq!(buffer.drain(1), 0);
            buffer.add(b"again");
            assert_eq!(buffer, "again");
        }
        Ok(())
    }

    #[test]
    fn a_peek_gives_no_more_than_was_asked_for() {
        let mut buffer = Buffer::from(vec![b'p'; 4096]);
        assert_eq!(buffer.peek(10).map(<[u8]>::len).collect::<Vec<_>>(), [10]);
        buffer.add_static(&[b'q'; 2000]);
        assert_eq!(buffer.peek(5000).map(<[u8]>::len).collect::<Vec<_>>(), [4096, 904]);
        assert_eq!(buffer.peek_from(4090, 10).collect::<Vec<_>>(), [b"pppppp".as_slice(), b"qqqq"]);
    }

    #[test]
    fn pulling_up_copies_only_what_lies_apart() {
        let mut buffer = Buffer::from(vec![b'a'; 2000]);
        let at = buffer.contiguous().as_ptr();
        buffer.add_static(&[b'b'; 2000]);
        assert_eq!(buffer.pullup(0), Some(&b""[..]));
        assert_eq!(buffer.pullup(2000).map(<[u8]>::as_ptr), Some(at));
        let up = buffer.pullup(2001).unwrap();
        assert_eq!((up.len(), up[2000]), (2001, b'b'));
        assert_eq!(buffer.len(), 4000);
        assert_eq!(buffer.pullup(4000).map(<[u8]>::len), Some(4000));
        assert_eq!((buffer.chunks().count(), buffer.pullup(4001)), (1, None));
        assert_eq!(Buffer::new().pullup(0), Some(&b""[..]));
    }

    #[test]
    fn a_large_block_is_let_go_when_little_of_it_is_left() {
        let mut buffer = Buffer::from(vec![b'l'; 1 << 20]);
        buffer.drain((1 << 20) - 70_000);
        assert_eq!(buffer.held(), 1 << 20);
        buffer.drain(10_000);
        assert_eq!((buffer.len(), buffer.held()), (60_000, 60_000));
        let mut buffer = Buffer::from(vec![b'l'; 1 << 20]);
        buffer.truncate(10);
        assert_eq!((buffer.len(), buffer.held()), (10, 10));
        let spacious = Buffer::from(Vec::with_capacity(1 << 20));
        assert_eq!(spacious.held(), 0);
    }

    #[test]
    fn truncating_keeps_the_front() {
        let mut buffer = Buffer::from("abc");
        buffer.add_reference(bytes::Bytes::from_static(b"def"));
        buffer.truncate(4);
        assert_eq!(buffer, "abcd");
        buffer.truncate(3);
        assert_eq!((&buffer, buffer.chunks().count()), (&Buffer::from("abc"), 1));
        buffer.truncate(0);
        assert_eq!((buffer.len(), buffer.held()), (0, 0));
    }
}
