//! A buffer as a reader, a writer, a target of `write!` and a list of slices to send.

use std::fmt;
use std::io::{self, BufRead, IoSlice, Read, Write};

use super::Buffer;
use super::chunk::Chunk;

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
    #[doc(alias = "evbuffer_peek")]
    pub fn io_slices<'a>(&'a self, max: usize, out: &mut [IoSlice<'a>]) -> usize {
        fill(out, self.list.pieces(0, max))
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
