//! Buffers made from and into other types, cloned, compared and shown.

use std::{borrow::Cow, fmt};

use bytes::Bytes;

use super::chunk::{Chunk, Own};
use super::list::List;
use super::take::trim;
use super::{Buffer, SMALL_PIECE};

/// The bytes of a buffer that its `Debug` form shows.
const SHOWN: usize = 64;

impl Buffer {
    /// The bytes as one vector: moved, not copied, if they lie in one chunk of the buffer's own memory.
    pub fn into_vec(mut self) -> Vec<u8> {
        if self.list.count() > 1 || self.has_files() {
            return self.to_vec();
        }
        match self.list.pop_front() {
            Some(Chunk::Own { own, .. }) => own.into_vec(),
            Some(shared) => shared.bytes().to_vec(),
            None => Vec::new(),
        }
    }

    /// A buffer of one chunk; of none if that would be empty.
    fn of(mut chunk: Chunk) -> Buffer {
        if chunk.is_empty() {
            return Buffer::new();
        }
        trim(&mut chunk);
        Buffer { list: List::one(chunk) }
    }
}

/// Copies the buffer's own memory and shares what is shared already; [`Buffer::share`] shares all of it.
impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        let mut copy = Buffer::new();
        for chunk in self.list.iter() {
            match chunk {
                Chunk::Own { own, .. } if own.len() > SMALL_PIECE || copy.list.count() == 0 => {
                    copy.push_back(Chunk::own(Own::from(own.bytes())));
                }
                Chunk::Own { own, .. } => copy.add(own.bytes()),
                Chunk::File(part) => copy.push_back(Chunk::File(Box::new(part.share()))),
                Chunk::Shared { bytes, block } => {
                    copy.push_back(Chunk::Shared { bytes: bytes.clone(), block: *block });
                }
            }
        }
        copy
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chunks = self.list.iter().filter(|chunk| !chunk.is_empty()).count();
        write!(f, "Buffer {{ len: {}, chunks: {chunks}, bytes: \"", self.len())?;
        // No file is read for it.
        let mut shown = 0;
        for chunk in self.list.iter().take_while(|chunk| !chunk.is_file()) {
            let piece = &chunk.bytes()[..chunk.len().min(SHOWN - shown)];
            write!(f, "{}", piece.escape_ascii())?;
            shown += piece.len();
        }
        f.write_str(if self.len() > shown { "\".. }" } else { "\" }" })
    }
}

/// A copy, in memory of exactly its size.
impl From<&[u8]> for Buffer {
    fn from(data: &[u8]) -> Buffer {
        Buffer::of(Chunk::own(Own::from(data)))
    }
}

/// A copy, in memory of exactly its size.
impl<const N: usize> From<&[u8; N]> for Buffer {
    fn from(data: &[u8; N]) -> Buffer {
        Buffer::from(&data[..])
    }
}

/// A copy, in memory of exactly its size.
impl From<&str> for Buffer {
    fn from(text: &str) -> Buffer {
        Buffer::from(text.as_bytes())
    }
}

/// Takes the memory as it is; its spare room will be used.
impl From<Vec<u8>> for Buffer {
    fn from(mem: Vec<u8>) -> Buffer {
        Buffer::of(Chunk::own(Own::new(mem)))
    }
}

/// Takes the memory as it is; its spare room will be used.
impl From<String> for Buffer {
    fn from(text: String) -> Buffer {
        Buffer::from(text.into_bytes())
    }
}

/// Takes the memory as it is.
impl From<Box<[u8]>> for Buffer {
    fn from(data: Box<[u8]>) -> Buffer {
        Buffer::from(data.into_vec())
    }
}

/// Copies what is borrowed and takes what is owned.
impl From<Cow<'_, str>> for Buffer {
    fn from(text: Cow<'_, str>) -> Buffer {
        match text {
            Cow::Borrowed(text) => Buffer::from(text),
            Cow::Owned(text) => Buffer::from(text),
        }
    }
}

/// Copies what is borrowed and takes what is owned.
impl From<Cow<'_, [u8]>> for Buffer {
    fn from(data: Cow<'_, [u8]>) -> Buffer {
        match data {
            Cow::Borrowed(data) => Buffer::from(data),
            Cow::Owned(data) => Buffer::from(data),
        }
    }
}

/// Refers to the bytes, without a copy.
impl From<Bytes> for Buffer {
    fn from(bytes: Bytes) -> Buffer {
        Buffer::of(Chunk::foreign(bytes))
    }
}

impl From<Buffer> for Vec<u8> {
    fn from(buffer: Buffer) -> Vec<u8> {
        buffer.into_vec()
    }
}

/// Reads what lies in files. Bytes that a file cannot give are equal to nothing.
impl PartialEq for Buffer {
    fn eq(&self, other: &Buffer) -> bool {
        let mut at = 0;
        self.len() == other.len()
            && self.chunks().all(|piece| {
                let mut same = piece;
                other.peek_from(at, piece.len()).all(|theirs| {
                    let (ours, rest) = same.split_at(theirs.len());
                    same = rest;
                    ours == theirs
                }) && {
                    at += piece.len();
                    same.is_empty()
                }
            })
            && at == self.len()
    }
}

impl Eq for Buffer {}

impl PartialEq<[u8]> for Buffer {
    fn eq(&self, other: &[u8]) -> bool {
        let mut rest = other;
        self.len() == other.len()
            && self.chunks().all(|piece| {
                let (ours, more) = rest.split_at(piece.len());
                rest = more;
                ours == piece
            })
            && rest.is_empty()
    }
}

impl PartialEq<&[u8]> for Buffer {
    fn eq(&self, other: &&[u8]) -> bool {
        *self == **other
    }
}

impl<const N: usize> PartialEq<[u8; N]> for Buffer {
    fn eq(&self, other: &[u8; N]) -> bool {
        *self == other[..]
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Buffer {
    fn eq(&self, other: &&[u8; N]) -> bool {
        *self == other[..]
    }
}

impl PartialEq<Vec<u8>> for Buffer {
    fn eq(&self, other: &Vec<u8>) -> bool {
        *self == other[..]
    }
}

impl PartialEq<str> for Buffer {
    fn eq(&self, other: &str) -> bool {
        *self == *other.as_bytes()
    }
}

impl PartialEq<&str> for Buffer {
    fn eq(&self, other: &&str) -> bool {
        *self == *other.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_gives_its_bytes_and_an_empty_one_gives_no_chunk() {
        let sources = |text: &'static str| {
            let bytes = text.as_bytes();
            [
                Buffer::from(text),
                Buffer::from(bytes),
                Buffer::from(text.to_string()),
                Buffer::from(bytes.to_vec()),
                Buffer::from(Bytes::from_static(bytes)),
                Buffer::from(Box::<[u8]>::from(bytes)),
                Buffer::from(Cow::Borrowed(text)),
                Buffer::from(Cow::<str>::Owned(text.to_string())),
                Buffer::from(Cow::Borrowed(bytes)),
                Buffer::from_static(bytes),
            ]
        };
        for buffer in sources("bytes") {
            assert_eq!(buffer, "bytes");
            assert_eq!(buffer.chunks().count(), 1);
        }
        for buffer in sources("") {
            assert_eq!(buffer, b"");
            assert_eq!((buffer.chunks().count(), buffer.held(), buffer.contiguous()), (0, 0, &b""[..]));
        }
        assert_eq!(Buffer::from(b"array"), b"array");
    }

    #[test]
    fn a_vector_goes_in_and_comes_out_without_a_copy() {
        let mut mem = Vec::with_capacity(1000);
        mem.extend_from_slice(b"some");
        let at = mem.as_ptr();
        let mut buffer = Buffer::from(mem);
        buffer.add(b" more");
        let mem = Vec::from(buffer);
        assert_eq!((mem.as_ptr(), &mem[..]), (at, &b"some more"[..]));

        let mut buffer = Buffer::from(mem);
        buffer.drain(5);
        assert_eq!(buffer.into_vec(), b"more");
        assert_eq!(Buffer::new().into_vec(), b"");
        assert_eq!(Buffer::from_static(b"static").into_vec(), b"static");
        let mut buffer = Buffer::from("a");
        buffer.add_reference(Bytes::from_static(b"b"));
        assert_eq!(buffer.into_vec(), b"ab");
    }

    #[test]
    fn a_clone_stands_alone_and_shares_what_was_shared() {
        let page = Bytes::from(vec![b'p'; 5000]);
        let mut buffer = Buffer::from("head");
        buffer.add_reference(page.clone());
        buffer.add(b"tail");
        let mut copy = buffer.clone();
        assert_eq!(copy, buffer);
        let shared: Vec<&[u8]> = copy.chunks().collect();
        assert_eq!(shared[1].as_ptr(), page.as_ptr());
        copy.add(b"!");
        buffer.drain(2);
        assert_eq!((copy.len(), buffer.len()), (5009, 5006));
    }

    #[test]
    fn comparison_does_not_see_the_chunks() {
        let mut parts = Buffer::from("ab");
        for piece in [&b"c"[..], b"def", b"gh"] {
            parts.add_reference(Bytes::copy_from_slice(piece));
        }
        let mut others = Buffer::from("abcde");
        others.add_reference(Bytes::from_static(b"fgh"));
        assert_eq!(parts, others);
        assert_eq!(others, parts);
        assert_eq!(parts, Buffer::from("abcdefgh"));
        for other in ["abcdefgx", "xbcdefgh", "abcxefgh", "abcdefg", ""] {
            assert_ne!(parts, Buffer::from(other));
            assert_ne!(parts, other);
        }
        assert_eq!(parts, b"abcdefgh".to_vec());
        assert_eq!(parts, b"abcdefgh"[..]);
        assert_eq!(parts, *"abcdefgh");
    }

    #[test]
    fn debug_shows_lengths_and_a_bounded_start() {
        let mut buffer = Buffer::from("a\"\n");
        assert_eq!(format!("{buffer:?}"), r#"Buffer { len: 3, chunks: 1, bytes: "a\"\n" }"#);
        buffer.add(&[0xff; 1000]);
        let shown = format!("{buffer:?}");
        assert!(shown.starts_with("Buffer { len: 1003,") && shown.ends_with(r#"\xff".. }"#), "{shown}");
        assert!(shown.len() < 400);
    }
}
