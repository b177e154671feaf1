//! Searching a buffer across its chunks: bytes, strings and line ends.

use memchr::{memchr, memchr_iter, memchr2, memmem};

use super::Buffer;

/// What ends a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "evbuffer_eol_style")]
pub enum Eol {
    /// CR LF, a lone LF or a lone CR. A CR that is the very last byte does not count yet, as its LF may be on the way.
    ///
    /// Each is one line end: unlike libevent, a run of them is not swallowed, so empty lines are seen.
    #[doc(alias = "EVBUFFER_EOL_ANY")]
    Any,
    /// LF, with or without one CR before it.
    #[doc(alias = "EVBUFFER_EOL_CRLF")]
    Crlf,
    /// CR LF and nothing else.
    #[doc(alias = "EVBUFFER_EOL_CRLF_STRICT")]
    CrlfStrict,
    /// LF; a CR before it belongs to the line.
    #[doc(alias = "EVBUFFER_EOL_LF")]
    Lf,
    /// A zero byte.
    #[doc(alias = "EVBUFFER_EOL_NUL")]
    Nul,
}

impl Buffer {
    /// Position of the first `needle` that begins at `from` or later.
    ///
    /// An empty needle is found at `from` if that is not beyond the end. Positions go stale when bytes are drained or
    /// prepended. Linear, unless the bytes lie in many chunks shorter than the needle: then up to the product of the
    /// two lengths.
    ///
    /// ```
    /// # use event_core::Buffer;
    /// let mut buffer = Buffer::from("one, two, three");
    /// assert_eq!(buffer.search(b", ", 0), Some(3));
    /// assert_eq!(buffer.search(b", ", 4), Some(8));
    /// assert_eq!(buffer.search(b"four", 0), None);
    /// ```
    #[doc(alias = "evbuffer_search")]
    pub fn search(&self, needle: &[u8], from: usize) -> Option<usize> {
        self.search_range(needle, from, self.len())
    }

    /// Position of the first `needle` that lies between `from` and `to`, the whole of it.
    #[doc(alias = "evbuffer_search_range")]
    pub fn search_range(&self, needle: &[u8], from: usize, to: usize) -> Option<usize> {
        let to = to.min(self.len());
        let room = to.checked_sub(from)?;
        let Some((&first, others)) = needle.split_first() else { return Some(from) };
        if needle.len() > room {
            return None;
        }
        let finder = memmem::Finder::new(needle);
        let mut at = from;
        let mut pieces = self.list.pieces(from, room);
        while let Some(piece) = pieces.next() {
            if let Some(found) = finder.find(piece) {
                return Some(at + found);
            }
            // It may still begin among the last bytes of this piece and go on in the next.
            let last = piece.len() - others.len().min(piece.len());
            for begin in memchr_iter(first, &piece[last..]) {
                let head = &piece[last + begin..];
                if needle.starts_with(head) && begins_with(pieces.clone(), &needle[head.len()..]) {
                    return Some(at + last + begin);
                }
            }
            at += piece.len();
        }
        None
    }

    /// Position of the first `byte` at `from` or later.
    #[inline]
    pub fn search_byte(&self, byte: u8, from: usize) -> Option<usize> {
        self.scan(from, |piece| memchr(byte, piece))
    }

    /// Position and length of the first line end at `from` or later.
    ///
    /// ```
    /// # use event_core::{Buffer, Eol};
    /// let buffer = Buffer::from("a\r\nb\n");
    /// assert_eq!(buffer.search_eol(0, Eol::Crlf), Some((1, 2)));
    /// assert_eq!(buffer.search_eol(3, Eol::Crlf), Some((4, 1)));
    /// assert_eq!(buffer.search_eol(3, Eol::CrlfStrict), None);
    /// ```
    #[doc(alias = "evbuffer_search_eol")]
    pub fn search_eol(&self, from: usize, eol: Eol) -> Option<(usize, usize)> {
        match eol {
            Eol::Any => {
                let at = self.scan(from, |piece| memchr2(b'\r', b'\n', piece))?;
                match (self.byte(at), self.byte(at + 1)) {
                    (Some(b'\r'), Some(b'\n')) => Some((at, 2)),
                    (Some(b'\r'), None) => None,
                    _ => Some((at, 1)),
                }
            }
            Eol::Crlf => {
                let at = self.search_byte(b'\n', from)?;
                let has_cr = at > from && self.byte(at - 1) == Some(b'\r');
                Some(if has_cr { (at - 1, 2) } else { (at, 1) })
            }
            Eol::CrlfStrict => self.search(b"\r\n", from).map(|at| (at, 2)),
            Eol::Lf => self.search_byte(b'\n', from).map(|at| (at, 1)),
            Eol::Nul => self.search_byte(0, from).map(|at| (at, 1)),
        }
    }

    /// Takes the first line out and its end off; `None` if no whole line is there.
    ///
    /// An empty line is a line. Every call looks from the start: to bound the work for a line that trickles in, bound its
    /// length.
    #[doc(alias = "evbuffer_readln")]
    #[doc(alias = "evbuffer_readline")]
    pub fn readln(&mut self, eol: Eol) -> Option<Vec<u8>> {
        let (len, end) = self.search_eol(0, eol)?;
        let mut line = Vec::with_capacity(len);
        self.list.pieces(0, len).for_each(|piece| line.extend_from_slice(piece));
        self.drain(len + end);
        Some(line)
    }

    /// The byte at `at`.
    fn byte(&self, at: usize) -> Option<u8> {
        self.list.pieces(at, 1).next()?.first().copied()
    }

    /// Position of the first byte that `find` finds in a piece.
    fn scan(&self, from: usize, find: impl Fn(&[u8]) -> Option<usize>) -> Option<usize> {
        let mut at = from;
        for piece in self.list.pieces(from, usize::MAX) {
            if let Some(found) = find(piece) {
                return Some(at + found);
            }
            at += piece.len();
        }
        None
    }
}

/// Whether the pieces, put together, begin with all of `text`.
fn begins_with<'a>(pieces: impl Iterator<Item = &'a [u8]>, mut text: &[u8]) -> bool {
    for piece in pieces {
        if text.len() <= piece.len() {
            return piece.starts_with(text);
        }
        let (head, rest) = text.split_at(piece.len());
        if head != piece {
            return false;
        }
        text = rest;
    }
    text.is_empty()
}
