//! Searching a buffer across its chunks: bytes, strings and line ends.

use memchr::{memchr, memchr_iter, memchr2, memmem};

use super::Buffer;

/// What ends a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "evbuffer_eol_style")]
pub enum Eol {
    /// CR LF, a lone LF or a lone CR. A CR that is the very last byte does not count yet, as its LF may be on
    /// the way.
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
    /// An empty needle is found at `from` if that is not beyond the end. Positions go stale when bytes are
    /// drained or prepended. Linear, unless the bytes lie in many chunks shorter than the needle: then up to
    /// the product of the two lengths.
    ///
    /// ```
    /// # use event_core::Buffer;
    /// let buffer = Buffer::from("one, two, three");
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
    /// An empty line is a line. Every call looks from the start: to bound the work for a line that trickles
    /// in, bound its length.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::few::few_under_miri;

    /// `text` in chunks that end at the given positions.
    fn cut(text: &[u8], at: &[usize]) -> Buffer {
        let mut buffer = Buffer::new();
        let mut from = 0;
        for &to in at.iter().chain([&text.len()]) {
            buffer.add_reference(bytes::Bytes::copy_from_slice(&text[from..to]));
            from = to;
        }
        buffer
    }

    fn naive(text: &[u8], needle: &[u8], from: usize, to: usize) -> Option<usize> {
        (from..=text.len()).find(|&at| at + needle.len() <= to && text[at..].starts_with(needle))
    }

    #[test]
    fn a_needle_is_found_wherever_the_chunks_end() {
        let text = b"ababcababab";
        for first in (0..=text.len()).step_by(few_under_miri(1, 5)) {
            for second in (first..=text.len()).step_by(few_under_miri(1, 5)) {
                let buffer = cut(text, &[first, second]);
                for needle in
                    [&b"a"[..], b"b", b"ab", b"abc", b"bab", b"ababab", b"abcab", b"ababcababab", b"ac", b""]
                {
                    for from in 0..=text.len() {
                        let want = naive(text, needle, from, text.len());
                        assert_eq!(
                            buffer.search(needle, from),
                            want,
                            "{needle:?} from {from}, {first} {second}"
                        );
                    }
                    for to in 0..=text.len() + 2 {
                        let want = naive(text, needle, 1, to.min(text.len()));
                        assert_eq!(buffer.search_range(needle, 1, to), want.filter(|_| to >= 1));
                    }
                }
            }
        }
    }

    #[test]
    fn positions_beyond_the_end_find_nothing() {
        let buffer = cut(b"abc", &[1]);
        assert_eq!(buffer.search(b"", 3), Some(3));
        assert_eq!(buffer.search(b"", 4), None);
        assert_eq!(buffer.search(b"a", usize::MAX), None);
        assert_eq!(buffer.search_range(b"a", 2, 1), None);
        assert_eq!(buffer.search_byte(b'c', 3), None);
        assert_eq!(buffer.search_eol(usize::MAX, Eol::Any), None);
        assert_eq!(Buffer::new().search_eol(0, Eol::Any), None);
        assert_eq!(Buffer::new().search(b"a", 0), None);
    }

    #[test]
    fn bytes_are_found_in_every_chunk() {
        let buffer = cut(b"abcabc", &[2, 3]);
        assert_eq!([0, 1, 3].map(|from| buffer.search_byte(b'a', from)), [Some(0), Some(3), Some(3)]);
        assert_eq!(buffer.search_byte(b'c', 3), Some(5));
        assert_eq!(buffer.search_byte(b'x', 0), None);
    }

    /// All lines of `text` at every pair of cuts, and what is left.
    fn lines(text: &[u8], eol: Eol) -> (Vec<String>, String) {
        let mut all = None;
        for first in (0..=text.len()).step_by(few_under_miri(1, 2)) {
            for second in (first..=text.len()).step_by(few_under_miri(1, 5)) {
                let mut buffer = cut(text, &[first, second]);
                let mut lines = Vec::new();
                while let Some(line) = buffer.readln(eol) {
                    lines.push(String::from_utf8_lossy(&line).into_owned());
                }
                let found = (lines, String::from_utf8_lossy(&buffer.to_vec()).into_owned());
                assert_eq!(all.get_or_insert_with(|| found.clone()), &found, "cut at {first} and {second}");
            }
        }
        all.unwrap_or_default()
    }

    #[test]
    fn each_style_ends_lines_its_own_way() {
        let text = b"a\r\nb\nc\rd\0e\r\r\nf";
        let check = |eol, want: &[&str], rest: &str| {
            let (found, left) = lines(text, eol);
            assert_eq!(
                (found.iter().map(|l| &l[..]).collect::<Vec<_>>(), &left[..]),
                (want.to_vec(), rest),
                "{eol:?}"
            );
        };
        check(Eol::Any, &["a", "b", "c", "d\0e", ""], "f");
        check(Eol::Crlf, &["a", "b", "c\rd\0e\r"], "f");
        check(Eol::CrlfStrict, &["a", "b\nc\rd\0e\r"], "f");
        check(Eol::Lf, &["a\r", "b", "c\rd\0e\r\r"], "f");
        check(Eol::Nul, &["a\r\nb\nc\rd"], "e\r\r\nf");
    }

    #[test]
    fn an_empty_line_is_a_line_in_every_style() {
        for eol in [Eol::Any, Eol::Crlf, Eol::CrlfStrict] {
            let (found, left) = lines(b"A: b\r\n\r\nbody", eol);
            assert_eq!((found, &left[..]), (vec!["A: b".to_string(), String::new()], "body"));
        }
        assert_eq!(lines(b"\n\n", Eol::Any).0, ["", ""]);
    }

    #[test]
    fn a_line_end_that_may_be_half_there_is_waited_for() {
        let mut buffer = Buffer::from("line\r");
        for eol in [Eol::Any, Eol::Crlf, Eol::CrlfStrict, Eol::Lf, Eol::Nul] {
            assert_eq!(buffer.readln(eol), None);
        }
        buffer.add(b"\nnext\rlast");
        assert_eq!(buffer.readln(Eol::Any).as_deref(), Some(&b"line"[..]));
        assert_eq!(buffer.readln(Eol::Any).as_deref(), Some(&b"next"[..]));
        assert_eq!(buffer, "last");
    }

    #[test]
    fn a_carriage_return_before_the_start_does_not_count() {
        let buffer = Buffer::from("a\r\nb");
        assert_eq!(buffer.search_eol(2, Eol::Crlf), Some((2, 1)));
        assert_eq!(buffer.search_eol(1, Eol::Crlf), Some((1, 2)));
        assert_eq!(buffer.search_eol(4, Eol::Crlf), None);
    }
}
