//! A buffer as a reader, a writer, a target of `write!` and a list of slices to send.

use std::fmt;
use std::io::{self, BufRead, IoSlice, Read, Write};

use super::chunk::Chunk;
use super::{Buffer, MAX_LEN, READ_BLOCK, SMALL_PIECE};

/// How many pieces one vectored write is given; systems take 1,024 at most, and a socket is full before.
const PIECES: usize = 64;

impl Buffer {
    /// Appends formatted text: this is what `write!(buffer, "..")` calls, which so needs no `?`.
    ///
    /// Adding cannot fail. If a `Display` of an argument returns an error, what it had written before stays
    /// and the rest is left out.
    ///
    /// ```
    /// # use event_core::Buffer;
    /// let mut buffer = Buffer::new();
    /// write!(buffer, "Content-Length: {}\r\n", 42);
    /// assert_eq!(buffer, "Content-Length: 42\r\n");
    /// ```
    #[doc(alias = "evbuffer_add_printf")]
    #[doc(alias = "evbuffer_add_vprintf")]
    pub fn write_fmt(&mut self, text: fmt::Arguments<'_>) {
        match text.as_str() {
            Some(text) => self.add(text.as_bytes()),
            None => {
                let _refused_by_an_argument = fmt::Write::write_fmt(self, text);
            }
        }
    }

    /// Fills `out` with slices of the first `max` bytes, for a vectored write; returns how many slices were
    /// filled.
    ///
    /// The slices are as many as `out` has room for; none is empty, the last is cut to `max`.
    ///
    /// ```
    /// # use event_core::Buffer;
    /// use std::io::{IoSlice, Write};
    ///
    /// let mut buffer = Buffer::from("a head and ");
    /// buffer.add_static(&[b'b'; 2000]);
    /// let mut slices = [IoSlice::new(&[]); 64];
    /// let n = buffer.io_slices(usize::MAX, &mut slices);
    /// let written = std::io::sink().write_vectored(&slices[..n])?;
    /// buffer.drain(written);
    /// # assert!(buffer.is_empty() && n == 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn io_slices<'a>(&'a self, max: usize, out: &mut [IoSlice<'a>]) -> usize {
        fill(out, self.list.pieces(0, max))
    }

    /// Appends what one read of at most `max` bytes from `from` gives; returns how much, 0 at the end (and for a `max` of 0).
    ///
    /// One call asks for at most 64 KiB. `from` is anything to read: a `File`, a `TcpStream`, a `&UnixStream`. Streams of
    /// the loop read by themselves.
    ///
    /// # Errors
    /// What `from` returns, `WouldBlock` among it; nothing has changed then.
    #[doc(alias = "evbuffer_read")]
    pub fn read_from(&mut self, mut from: impl Read, max: usize) -> io::Result<usize> {
        let max = max.min(READ_BLOCK).min(MAX_LEN - self.len());
        if max == 0 {
            return Ok(0);
        }
        let mut block = vec![0; max];
        // A reader that claims more than it was given room for is not believed.
        let n = from.read(&mut block)?.min(max);
        block.truncate(n);
        if n <= SMALL_PIECE {
            self.add(&block);
        } else {
            self.add_buffer(&mut Buffer::from(block));
        }
        Ok(n)
    }

    /// Gives the first bytes, at most `max`, to one vectored write; returns how many were taken, which are drained.
    ///
    /// `to` is anything to write to: a `File`, a `TcpStream`, a `&UnixStream`. Nothing is written if there is nothing to
    /// write. Streams of the loop write by themselves, and send files without reading them.
    ///
    /// # Errors
    /// What `to` returns, `WouldBlock` among it; nothing is drained then. What a file gives that cannot be read.
    #[doc(alias = "evbuffer_write")]
    #[doc(alias = "evbuffer_write_atmost")]
    pub fn write_to(&mut self, mut to: impl Write, max: usize) -> io::Result<usize> {
        let n = max.min(self.len());
        let n = if self.has_files() { self.load_some(n.min(READ_BLOCK))? } else { n };
        if n == 0 {
            return Ok(0);
        }
        let mut slices = [IoSlice::new(&[]); PIECES];
        let count = self.io_slices(n, &mut slices);
        let written = to.write_vectored(&slices[..count])?;
        Ok(self.drain(written.min(n)))
    }

    /// As `io_slices`, but reads no file: the slices end before the first.
    pub(crate) fn memory_slices<'a>(&'a self, max: usize, out: &mut [IoSlice<'a>]) -> usize {
        if !self.has_files() {
            return self.io_slices(max, out);
        }
        let mut left = max;
        let memory = self.list.iter().take_while(|chunk| !chunk.is_file()).map(Chunk::bytes);
        let cut = memory.map(|bytes| {
            let piece = &bytes[..bytes.len().min(left)];
            left -= piece.len();
            piece
        });
        fill(out, cut.take_while(|piece| !piece.is_empty()))
    }
}

/// Puts the pieces into the slots, as many as there are of both; returns how many.
fn fill<'a>(out: &mut [IoSlice<'a>], pieces: impl Iterator<Item = &'a [u8]>) -> usize {
    let mut filled = 0;
    for (slot, piece) in out.iter_mut().zip(pieces) {
        *slot = IoSlice::new(piece);
        filled += 1;
    }
    filled
}

impl fmt::Write for Buffer {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

/// Takes bytes from the front; `Ok(0)` if the buffer is empty. Fails only where a file cannot give its bytes, and takes
/// none then.
impl Read for Buffer {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.try_copyout(0, out)?;
        Ok(self.drain(n))
    }
}

/// Shows the first chunk, or some of a file; an empty buffer is the end. Fails only where a file cannot give its bytes.
impl BufRead for Buffer {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.contiguous().is_empty() && !self.is_empty() {
            self.load_some(1)?;
        }
        Ok(self.contiguous())
    }

    fn consume(&mut self, n: usize) {
        self.drain(n);
    }
}

/// Appends. Never fails.
impl Write for Buffer {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.add(data);
        Ok(data.len())
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        data.iter().for_each(|piece| self.add(piece));
        Ok(data.iter().map(|piece| piece.len()).sum())
    }

    fn write_all(&mut self, data: &[u8]) -> io::Result<()> {
        self.add(data);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes or gives a few bytes at a time, and fails every other time.
    struct Moody<T>(T, usize);

    impl<T> Moody<T> {
        fn mood(&mut self, len: usize) -> io::Result<usize> {
            self.1 += 1;
            if self.1.is_multiple_of(2) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(len.min(self.1)) }
        }
    }

    impl Read for Moody<&[u8]> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let n = self.mood(out.len())?;
            self.0.read(&mut out[..n])
        }
    }

    impl Write for Moody<Vec<u8>> {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            let n = self.mood(data.len())?;
            self.0.extend_from_slice(&data[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_read_and_written_in_short_counts_arrives_whole() {
        let text: Vec<u8> = (0..20_000).map(|n| (n % 251) as u8).collect();
        let (mut from, mut to) = (Moody(&text[..], 0), Moody(Vec::new(), 0));
        let mut buffer = Buffer::new();
        for limit in (0..).map(|n| n % 100) {
            let before = buffer.len();
            let read = buffer.read_from(&mut from, limit).unwrap_or(0);
            assert!(read <= limit && buffer.len() == before + read);
            let written = buffer.write_to(&mut to, limit).unwrap_or(0);
            assert!(written <= limit && buffer.len() == before + read - written);
            if to.0.len() == text.len() {
                break;
            }
        }
        assert_eq!((to.0 == text, buffer.is_empty()), (true, true));
    }

    #[test]
    fn many_small_reads_share_memory_and_a_large_one_is_bounded() {
        let mut buffer = Buffer::new();
        (0..1000).for_each(|_| assert_eq!(buffer.read_from(&b"0123456789"[..], 7).unwrap(), 7));
        assert!(buffer.chunks().count() < 16 && buffer.held() <= 4 * buffer.len() + 512);
        assert_eq!(buffer.read_from(io::repeat(1), usize::MAX).unwrap(), READ_BLOCK);
        assert_eq!(buffer.read_from(io::empty(), 9).unwrap(), 0);
        assert_eq!(buffer.len(), 7000 + READ_BLOCK);
    }

    #[test]
    fn nothing_to_write_asks_nobody() {
        struct Never;
        impl Write for Never {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                unreachable!()
            }
            fn flush(&mut self) -> io::Result<()> {
                unreachable!()
            }
        }
        assert_eq!(Buffer::new().write_to(Never, 10).unwrap(), 0);
        assert_eq!(Buffer::from("x").write_to(Never, 0).unwrap(), 0);
    }

    /// A `Display` that writes and then refuses.
    struct Refusing;

    impl fmt::Display for Refusing {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("some")?;
            Err(fmt::Error)
        }
    }

    #[test]
    fn write_needs_no_result_even_where_the_write_traits_are_in_scope() {
        use std::{fmt::Write as _, io::Write as _};
        let mut buffer = Buffer::new();
        // The type annotations fail to compile if a trait's method, which returns a result, were chosen.
        let () = write!(buffer, "a{}", 1);
        let by_reference = &mut buffer;
        let () = write!(by_reference, "b{}", 2);
        let () = writeln!(buffer, "c");
        assert!(buffer.write_str("d").is_ok() && buffer.write_all(b"e").is_ok());
        assert_eq!(buffer, "a1b2c\nde");
    }

    #[test]
    fn a_display_that_fails_leaves_what_it_wrote() {
        let mut buffer = Buffer::new();
        write!(buffer, "[{}]", Refusing);
        assert_eq!(buffer, "[some");
    }

    #[test]
    fn the_io_traits_read_lines_and_write_pieces() -> io::Result<()> {
        let mut buffer = Buffer::new();
        buffer.write_all(b"one\ntw")?;
        buffer.add_static(&[b'o'; 2000]);
        assert_eq!(buffer.write_vectored(&[IoSlice::new(b"\nthr"), IoSlice::new(b"ee")])?, 6);
        let mut line = String::new();
        buffer.read_line(&mut line)?;
        assert_eq!(line, "one\n");
        line.clear();
        buffer.read_line(&mut line)?;
        assert_eq!(line.len(), 2003);
        let mut rest = Vec::new();
        buffer.read_to_end(&mut rest)?;
        assert_eq!((rest, buffer.read(&mut [0; 4])?), (b"three".to_vec(), 0));
        Ok(())
    }

    #[test]
    fn slices_are_bounded_by_the_room_and_by_the_bytes_asked_for() {
        let mut buffer = Buffer::new();
        for _ in 0..10 {
            buffer.add_reference(bytes::Bytes::from_static(b"0123456789"));
        }
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(buffer.io_slices(usize::MAX, &mut slices), 4);
        assert_eq!(buffer.io_slices(25, &mut slices), 3);
        assert_eq!(slices[2].len(), 5);
        assert_eq!(buffer.io_slices(0, &mut slices), 0);
        assert_eq!(Buffer::new().io_slices(9, &mut slices), 0);
    }
}
