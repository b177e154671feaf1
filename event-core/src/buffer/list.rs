//! The sequence of a buffer's chunks and their total length: nothing, one chunk in place, or a boxed queue.

use std::{collections::VecDeque, mem, slice};

use super::chunk::{Chunk, Own};
use super::file::Part;

/// Chunks in order.
///
/// No chunk is empty but the last, which may be reserved or emptied memory. The bytes of a chunk do not move
/// when a list moves, because a list holds descriptors only.
#[derive(Default)]
pub(super) struct List {
    repr: Repr,
}

#[derive(Default)]
enum Repr {
    #[default]
    Empty,
    One(Chunk),
    /// Made by the second chunk, kept until no chunk is left. What only few buffers will need (frozen ends,
    /// counts of changes) has its place in the box, so that the others stay small.
    Many(Box<Many>),
}

struct Many {
    /// The sum of the chunks' lengths.
    len: usize,
    /// The part of it that lies in files.
    file_len: usize,
    chunks: VecDeque<Chunk>,
}

impl List {
    pub(super) const fn new() -> List {
        List { repr: Repr::Empty }
    }

    pub(super) const fn one(chunk: Chunk) -> List {
        List { repr: Repr::One(chunk) }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        // Asked first: one comparison tells this from all others.
        if let Repr::One(Chunk::Own { own, .. }) = &self.repr {
            own.len()
        } else if self.is_bare() {
            0
        } else {
            self.other_len()
        }
    }

    #[inline(never)]
    fn other_len(&self) -> usize {
        match &self.repr {
            Repr::Empty => 0,
            Repr::One(chunk) => chunk.len(),
            Repr::Many(many) => many.len,
        }
    }

    /// The part of `len` that lies in files.
    #[inline]
    pub(super) fn file_len(&self) -> usize {
        match &self.repr {
            Repr::Empty => 0,
            Repr::One(chunk) => chunk.file_len(),
            Repr::Many(many) => many.file_len,
        }
    }

    /// Number of chunks, an empty last one included.
    pub(super) fn count(&self) -> usize {
        match &self.repr {
            Repr::Empty => 0,
            Repr::One(_) => 1,
            Repr::Many(many) => many.chunks.len(),
        }
    }

    /// Whether there is no chunk at all, not even an empty one.
    #[inline]
    pub(super) fn is_bare(&self) -> bool {
        matches!(self.repr, Repr::Empty)
    }

    /// The memory of the only chunk, if it can be written to, and whether the pool lent it.
    #[inline]
    pub(super) fn only_own(&mut self) -> Option<(&mut Own, bool)> {
        match &mut self.repr {
            Repr::One(Chunk::Own { own, pooled }) => Some((own, *pooled)),
            _ => None,
        }
    }

    /// The bytes of the only chunk, if that is the buffer's own memory.
    #[inline]
    pub(super) fn only_own_bytes(&self) -> Option<&[u8]> {
        match &self.repr {
            Repr::One(Chunk::Own { own, .. }) => Some(own.bytes()),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&Chunk> {
        match &self.repr {
            Repr::Empty => None,
            Repr::One(chunk) => Some(chunk),
            Repr::Many(many) => many.chunks.front(),
        }
    }

    #[inline]
    pub(super) fn back(&self) -> Option<&Chunk> {
        match &self.repr {
            Repr::Empty => None,
            Repr::One(chunk) => Some(chunk),
            Repr::Many(many) => many.chunks.back(),
        }
    }

    /// Changes the first chunk and the total with it.
    pub(super) fn edit_front<R>(&mut self, f: impl FnOnce(&mut Chunk) -> R) -> Option<R> {
        match &mut self.repr {
            Repr::Empty => None,
            Repr::One(chunk) => Some(f(chunk)),
            Repr::Many(many) => edit(&mut many.len, &mut many.file_len, many.chunks.front_mut()?, f),
        }
    }

    /// Changes the last chunk and the total with it.
    pub(super) fn edit_back<R>(&mut self, f: impl FnOnce(&mut Chunk) -> R) -> Option<R> {
        match &mut self.repr {
            Repr::Empty => None,
            Repr::One(chunk) => Some(f(chunk)),
            Repr::Many(many) => edit(&mut many.len, &mut many.file_len, many.chunks.back_mut()?, f),
        }
    }

    /// Takes the memory of the only chunk, if it is the buffer's own.
    #[inline]
    pub(super) fn take_only_mem(&mut self) -> Option<Vec<u8>> {
        let Repr::One(Chunk::Own { own, .. }) = &mut self.repr else { return None };
        let mem = own.take_mem();
        // Nothing that would have to be dropped is left in it, and this is done for each request.
        mem::forget(mem::take(&mut self.repr));
        Some(mem)
    }

    /// Sets the first chunk of a bare list.
    #[inline]
    pub(super) fn set(&mut self, chunk: Chunk) {
        debug_assert!(self.is_bare());
        self.repr = Repr::One(chunk);
    }

    /// The caller has seen to it that the sum of the lengths is one that a buffer may have.
    pub(super) fn push_back(&mut self, chunk: Chunk) {
        self.repr = match mem::take(&mut self.repr) {
            Repr::Empty => Repr::One(chunk),
            Repr::One(first) => Repr::Many(Many::of(first, chunk)),
            Repr::Many(mut many) => {
                many.len += chunk.len();
                many.file_len += chunk.file_len();
                many.chunks.push_back(chunk);
                Repr::Many(many)
            }
        };
    }

    /// As `push_back`, at the other end.
    pub(super) fn push_front(&mut self, chunk: Chunk) {
        self.repr = match mem::take(&mut self.repr) {
            Repr::Empty => Repr::One(chunk),
            Repr::One(last) => Repr::Many(Many::of(chunk, last)),
            Repr::Many(mut many) => {
                many.len += chunk.len();
                many.file_len += chunk.file_len();
                many.chunks.push_front(chunk);
                Repr::Many(many)
            }
        };
    }

    pub(super) fn pop_front(&mut self) -> Option<Chunk> {
        match &mut self.repr {
            Repr::Many(many) if many.chunks.len() > 1 => {
                let chunk = many.chunks.pop_front()?;
                many.len -= chunk.len();
                many.file_len -= chunk.file_len();
                Some(chunk)
            }
            _ => self.take_only(),
        }
    }

    pub(super) fn pop_back(&mut self) -> Option<Chunk> {
        match &mut self.repr {
            Repr::Many(many) if many.chunks.len() > 1 => {
                let chunk = many.chunks.pop_back()?;
                many.len -= chunk.len();
                many.file_len -= chunk.file_len();
                Some(chunk)
            }
            _ => self.take_only(),
        }
    }

    /// Calls `f` for every chunk; `f` must not change a length.
    pub(super) fn for_each_mut(&mut self, f: impl FnMut(&mut Chunk)) {
        match &mut self.repr {
            Repr::Empty => {}
            Repr::One(chunk) => slice::from_mut(chunk).iter_mut().for_each(f),
            Repr::Many(many) => many.chunks.iter_mut().for_each(f),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        let (first, second) = self.halves();
        first.iter().chain(second)
    }

    /// The bytes from position `skip` on, at most `max` of them, in pieces none of which is empty. Those of files are read;
    /// where one cannot give them the pieces end.
    pub(super) fn pieces(&self, skip: usize, max: usize) -> Pieces<'_> {
        let (first, second) = self.halves();
        Pieces {
            first: first.iter(),
            second: second.iter(),
            file: None,
            skip,
            left: max.min(self.len().saturating_sub(skip)),
        }
    }

    fn halves(&self) -> (&[Chunk], &[Chunk]) {
        match &self.repr {
            Repr::Empty => (&[], &[]),
            Repr::One(chunk) => (slice::from_ref(chunk), &[]),
            Repr::Many(many) => many.chunks.as_slices(),
        }
    }

    /// Takes the first chunk of a list of one, and the box with it if there is one.
    #[inline]
    pub(super) fn take_only(&mut self) -> Option<Chunk> {
        match mem::take(&mut self.repr) {
            Repr::Empty => None,
            Repr::One(chunk) => Some(chunk),
            Repr::Many(mut many) => many.chunks.pop_front(),
        }
    }
}

impl Many {
    fn of(first: Chunk, second: Chunk) -> Box<Many> {
        let mut chunks = VecDeque::with_capacity(4);
        let len = first.len() + second.len();
        let file_len = first.file_len() + second.file_len();
        chunks.push_back(first);
        chunks.push_back(second);
        Box::new(Many { len, file_len, chunks })
    }
}

fn edit<R>(
    len: &mut usize,
    file_len: &mut usize,
    chunk: &mut Chunk,
    f: impl FnOnce(&mut Chunk) -> R,
) -> Option<R> {
    let (rest, file_rest) = (*len - chunk.len(), *file_len - chunk.file_len());
    let result = f(chunk);
    *len = rest + chunk.len();
    *file_len = file_rest + chunk.file_len();
    Some(result)
}

/// A range of a buffer's bytes, piece by piece.
#[derive(Clone)]
pub(super) struct Pieces<'a> {
    first: slice::Iter<'a, Chunk>,
    second: slice::Iter<'a, Chunk>,
    /// A part of a file that is given out in several pieces, and how far it is.
    file: Option<(&'a Part, usize)>,
    /// Bytes to pass over before the next piece.
    skip: usize,
    /// Bytes still to give out.
    left: usize,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while self.left > 0 {
            if self.file.is_some()
                && let Some(piece) = self.next_of_file()
            {
                return Some(piece);
            }
            let chunk = self.first.next().or_else(|| self.second.next())?;
            if let Chunk::File(part) = chunk {
                self.file = Some((part, 0));
                continue;
            }
            let bytes = chunk.bytes();
            if bytes.len() <= self.skip {
                self.skip -= bytes.len();
                continue;
            }
            let bytes = &bytes[mem::take(&mut self.skip)..];
            let bytes = &bytes[..bytes.len().min(self.left)];
            self.left -= bytes.len();
            return Some(bytes);
        }
        None
    }
}

impl<'a> Pieces<'a> {
    /// The next piece of the part of a file that is being given out, if there is one.
    #[cold]
    fn next_of_file(&mut self) -> Option<&'a [u8]> {
        let (part, at) = self.file.take()?;
        let passed = self.skip.min(part.len() - at);
        self.skip -= passed;
        let at = at + passed;
        if at == part.len() {
            return None;
        }
        let piece = part.piece(at);
        let piece = &piece[..piece.len().min(self.left)];
        if piece.is_empty() {
            // It cannot give them: nothing behind it is shown either, or there would be a hole.
            (self.left, self.first, self.second) = (0, [].iter(), [].iter());
            return None;
        }
        self.left -= piece.len();
        self.file = Some((part, at + piece.len()));
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(text: &[u8]) -> Chunk {
        Chunk::own(Own::from(text))
    }

    fn text(list: &List) -> Vec<u8> {
        let bytes: Vec<u8> = list.pieces(0, usize::MAX).flatten().copied().collect();
        assert_eq!(bytes.len(), list.len());
        bytes
    }

    #[test]
    fn both_ends_push_and_pop_in_order() {
        let mut list = List::new();
        assert!(list.pop_front().is_none() && list.pop_back().is_none());
        list.push_back(chunk(b"cd"));
        list.push_front(chunk(b"b"));
        list.push_front(chunk(b"a"));
        list.push_back(chunk(b"efg"));
        assert_eq!((text(&list), list.count()), (b"abcdefg".to_vec(), 4));
        assert_eq!(list.pop_back().map(|c| c.len()), Some(3));
        assert_eq!(list.pop_front().map(|c| c.len()), Some(1));
        assert_eq!(text(&list), b"bcd");
        list.edit_back(|c| c.truncate(1));
        list.edit_front(|c| c.advance(1));
        assert_eq!(list.len(), 1);
        list.pop_front();
        list.pop_front();
        assert_eq!((list.len(), list.count()), (0, 0));
    }

    #[test]
    fn pieces_begin_and_end_inside_chunks_and_are_never_empty() {
        let mut list = List::new();
        for part in [&b"ab"[..], b"cde", b"f", b"gh"] {
            list.push_back(chunk(part));
        }
        list.push_back(Chunk::own(Own::with_capacity(10)));
        for skip in 0..10 {
            for max in 0..10 {
                let pieces: Vec<&[u8]> = list.pieces(skip, max).collect();
                assert!(pieces.iter().all(|p| !p.is_empty()));
                let want: Vec<u8> = b"abcdefgh".iter().copied().skip(skip).take(max).collect();
                assert_eq!(pieces.concat(), want, "skip {skip}, max {max}");
            }
        }
    }
}
