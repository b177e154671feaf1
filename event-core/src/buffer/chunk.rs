//! One chunk of a buffer: memory of its own that takes more bytes, a share of memory that never changes, or a part of
//! a file.

use bytes::{Buf, Bytes};

use super::file::Part;

/// The smallest memory an append allocates. An allocator serves 512 bytes as fast as 16, one answer head or
/// one line of a protocol fits, and ten thousand buffers that hold a few bytes each still cost only 5 MB.
pub(super) const MIN_CHUNK: usize = 512;

/// The largest memory an append of small pieces allocates ahead of need: as large as a read block, so that
/// the spare room of a long buffer is never more than that.
pub(super) const MAX_CHUNK: usize = 64 * 1024;

/// The most that is copied to let go of a block that is mostly empty: copying this takes a few microseconds.
/// A longer piece keeps its block, however large.
pub(super) const MAX_COPY: usize = 64 * 1024;

/// Size of the unit in which a shared chunk remembers its block, so that the number fits beside the enum's
/// tag.
const UNIT: usize = 64;

/// Memory that belongs to one chunk: live bytes, room behind them, and perhaps room before them.
#[derive(Default)]
pub(super) struct Own {
    mem: Vec<u8>,
    /// Where the live bytes begin: `0 <= start <= mem.len()`.
    start: usize,
}

impl Own {
    pub(super) fn new(mem: Vec<u8>) -> Own {
        Own { mem, start: 0 }
    }

    pub(super) fn with_capacity(capacity: usize) -> Own {
        Own::new(Vec::with_capacity(capacity))
    }

    /// Memory of `capacity` bytes, or more if `data` is longer, with `data` at its very end: further prepends
    /// fit before it.
    pub(super) fn ending_with(data: &[u8], capacity: usize) -> Own {
        let start = capacity.saturating_sub(data.len());
        let mut mem = Vec::with_capacity(start + data.len());
        mem.resize(start, 0);
        mem.extend_from_slice(data);
        Own { mem, start }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.mem[self.start..]
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.mem.len() - self.start
    }

    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.mem.capacity()
    }

    /// Room behind the live bytes.
    #[inline]
    pub(super) fn spare(&self) -> usize {
        self.mem.capacity() - self.mem.len()
    }

    /// Room before the live bytes.
    pub(super) fn slack(&self) -> usize {
        self.start
    }

    /// Appends as much of `data` as fits without moving a byte; returns how much.
    #[inline]
    pub(super) fn fill(&mut self, data: &[u8]) -> usize {
        let n = data.len().min(self.spare());
        self.mem.extend_from_slice(&data[..n]);
        n
    }

    /// Lets `write` fill `room` zero bytes behind the live ones, `room <= spare`, and keeps what it says it wrote; nothing
    /// if it panics.
    pub(super) fn fill_with(&mut self, room: usize, write: impl FnOnce(&mut [u8]) -> usize) -> usize {
        struct Cut<'a>(&'a mut Vec<u8>, usize);
        impl Drop for Cut<'_> {
            fn drop(&mut self) {
                self.0.truncate(self.1);
            }
        }
        let len = self.mem.len();
        self.mem.resize(len + room, 0);
        let mut cut = Cut(&mut self.mem, len);
        let written = write(&mut cut.0[len..]).min(room);
        cut.1 = len + written;
        written
    }

    /// Puts as much of the end of `data` as fits before the live bytes; returns how much.
    pub(super) fn fill_front(&mut self, data: &[u8]) -> usize {
        let n = data.len().min(self.start);
        self.mem[self.start - n..self.start].copy_from_slice(&data[data.len() - n..]);
        self.start -= n;
        n
    }

    /// Lets `f` append to the memory.
    #[inline]
    pub(super) fn append_with<R>(&mut self, f: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let result = f(&mut self.mem);
        debug_assert!(self.start <= self.mem.len(), "a tail may only be appended to");
        self.start = self.start.min(self.mem.len());
        result
    }

    /// Forgets the first `n` live bytes, `n <= len`.
    #[inline]
    pub(super) fn advance(&mut self, n: usize) {
        debug_assert!(n <= self.len());
        self.start += n;
    }

    /// Forgets all live bytes and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.mem.clear();
        self.start = 0;
    }

    /// Takes the memory out with its bytes.
    #[inline]
    pub(super) fn take_mem(&mut self) -> Vec<u8> {
        self.start = 0;
        std::mem::take(&mut self.mem)
    }

    pub(super) fn into_mem(self) -> Vec<u8> {
        self.mem
    }

    /// The live bytes as a vector; they move only if some were drained before them.
    pub(super) fn into_vec(mut self) -> Vec<u8> {
        if self.start > 0 {
            self.mem.drain(..self.start);
        }
        self.mem
    }

    /// Makes the memory as large as the live bytes.
    fn shrink(&mut self) {
        if self.start == 0 {
            self.mem.shrink_to_fit();
        } else {
            *self = Own::from(self.bytes());
        }
    }
}

/// A copy in memory of exactly its size.
impl From<&[u8]> for Own {
    fn from(data: &[u8]) -> Own {
        Own::new(data.to_vec())
    }
}

/// One contiguous run of a buffer's bytes.
pub(super) enum Chunk {
    /// Bytes that lie in a file: no memory to fill, to cut or to let go.
    File(Box<Part>),
    /// Memory of this chunk alone. `pooled` marks a block that the loop's pool lent to this very buffer:
    /// emptied, it stays, so that `settle` can hand it back.
    Own { own: Own, pooled: bool },
    /// Bytes that do not change and that others may see too. `block` is the size, in units rounded down, of
    /// the memory that was ours before it was shared; 0 for memory of others, whose size is not known and
    /// which is never copied to let go of it.
    Shared { bytes: Bytes, block: u32 },
}

/// Whether `n` bytes are few enough to be copied out of a block of that size.
#[inline]
pub(super) fn is_loose_in(n: usize, block: usize) -> bool {
    n < block.div_ceil(4) && n <= MAX_COPY
}

impl Chunk {
    pub(super) fn own(own: Own) -> Chunk {
        Chunk::Own { own, pooled: false }
    }

    /// A share of memory that was never ours.
    pub(super) const fn foreign(bytes: Bytes) -> Chunk {
        Chunk::Shared { bytes, block: 0 }
    }

    /// The bytes; of a file, which this reads, some of the first, and none if it cannot give them.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Own { own, .. } => own.bytes(),
            Chunk::File(part) => part.piece(0),
            Chunk::Shared { bytes, .. } => bytes,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Chunk::Own { own, .. } => own.len(),
            Chunk::File(part) => part.len(),
            Chunk::Shared { bytes, .. } => bytes.len(),
        }
    }

    /// Number of bytes that lie in a file.
    #[inline]
    pub(super) fn file_len(&self) -> usize {
        match self {
            Chunk::File(part) => part.len(),
            Chunk::Own { .. } | Chunk::Shared { .. } => 0,
        }
    }

    #[inline]
    pub(super) fn is_file(&self) -> bool {
        matches!(self, Chunk::File(_))
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Room behind the live bytes; none in what is not the buffer's own.
    pub(super) fn spare(&self) -> usize {
        match self {
            Chunk::Own { own, .. } => own.spare(),
            Chunk::File(_) | Chunk::Shared { .. } => 0,
        }
    }

    /// Room before the live bytes; none in what is not the buffer's own.
    pub(super) fn slack(&self) -> usize {
        match self {
            Chunk::Own { own, .. } => own.slack(),
            Chunk::File(_) | Chunk::Shared { .. } => 0,
        }
    }

    /// Size of the memory that this chunk keeps alive and that a copy would let go; 0 for memory of others.
    #[inline]
    pub(super) fn block(&self) -> usize {
        match self {
            Chunk::Own { own, .. } => own.capacity(),
            Chunk::File(_) => 0,
            Chunk::Shared { block, .. } => (*block as usize).saturating_mul(UNIT),
        }
    }

    /// Bytes of memory this chunk keeps alive, as far as they are known.
    pub(super) fn held(&self) -> usize {
        match self {
            Chunk::File(part) => part.held(),
            Chunk::Own { .. } | Chunk::Shared { .. } => self.block().max(self.len()),
        }
    }

    /// Whether the live bytes are under a quarter of their block and worth copying to let go of it.
    #[inline]
    pub(super) fn is_loose(&self) -> bool {
        self.is_loose_for(self.len())
    }

    /// The same question for a piece of `n` of the live bytes.
    #[inline]
    pub(super) fn is_loose_for(&self, n: usize) -> bool {
        is_loose_in(n, self.block())
    }

    /// Forgets the first `n` bytes, `n <= len`.
    pub(super) fn advance(&mut self, n: usize) {
        match self {
            Chunk::Own { own, .. } => own.advance(n),
            Chunk::File(part) => part.advance(n),
            Chunk::Shared { bytes, .. } => bytes.advance(n),
        }
    }

    /// Forgets all but the first `n` bytes.
    pub(super) fn truncate(&mut self, n: usize) {
        match self {
            Chunk::Own { own, .. } => own.mem.truncate(own.start.saturating_add(n)),
            Chunk::File(part) => part.truncate(n),
            Chunk::Shared { bytes, .. } => bytes.truncate(n),
        }
    }

    /// Makes the memory fit the bytes if they are under a quarter of it.
    pub(super) fn fit(&mut self) {
        if !self.is_loose() {
            return;
        }
        match self {
            Chunk::Own { own, pooled } => {
                own.shrink();
                *pooled = false;
            }
            Chunk::Shared { bytes, .. } => *self = Chunk::own(Own::from(&bytes[..])),
            // Not reached: it holds no block.
            Chunk::File(_) => {}
        }
    }

    /// Marks the memory as no longer lent by the pool to the buffer it is in.
    pub(super) fn unpool(&mut self) {
        if let Chunk::Own { pooled, .. } = self {
            *pooled = false;
        }
    }

    /// A second view of the same bytes, which become shared without moving.
    pub(super) fn share(&mut self) -> Chunk {
        let block = u32::try_from(self.block() / UNIT).unwrap_or(u32::MAX);
        if let Chunk::Own { own, .. } = self {
            let Own { mem, start } = std::mem::take(own);
            let mut bytes = Bytes::from(mem);
            bytes.advance(start);
            *self = Chunk::Shared { bytes, block };
        }
        match self {
            Chunk::File(part) => Chunk::File(Box::new(part.share())),
            Chunk::Shared { bytes, block } => Chunk::Shared { bytes: bytes.clone(), block: *block },
            // Not reached: the chunk was made a shared one above.
            Chunk::Own { own, .. } => Chunk::own(Own::from(own.bytes())),
        }
    }

    /// Takes the first `n` bytes off, `n <= len`, without copying more than a piece that is under a quarter
    /// of its block. Both sides keep the block alive if both are a quarter of it or more.
    pub(super) fn split_to(&mut self, n: usize) -> Chunk {
        let rest = self.len() - n;
        if self.is_loose_for(n) {
            let piece = Own::from(&self.bytes()[..n]);
            self.advance(n);
            return Chunk::own(piece);
        }
        if self.is_loose_for(rest) {
            let rest = Own::from(&self.bytes()[n..]);
            let mut piece = std::mem::replace(self, Chunk::own(rest));
            piece.truncate(n);
            return piece;
        }
        let mut piece = self.share();
        piece.truncate(n);
        self.advance(n);
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(capacity: usize, len: usize) -> Own {
        let mut own = Own::with_capacity(capacity);
        own.fill(&vec![7; len]);
        own
    }

    #[test]
    fn own_memory_fills_its_room_and_no_more() {
        let mut own = Own::with_capacity(8);
        let room = own.spare();
        assert_eq!(own.fill(&vec![1; room + 5]), room);
        assert_eq!((own.len(), own.spare(), own.fill(b"x")), (room, 0, 0));
        own.advance(3);
        assert_eq!(own.fill_front(b"abcde"), 3);
        assert_eq!(&own.bytes()[..4], b"cde\x01");
        assert_eq!(own.fill_front(b"z"), 0);
    }

    #[test]
    fn memory_for_prepending_has_its_room_in_front() {
        let mut own = Own::ending_with(b"tail", 16);
        assert_eq!((own.bytes(), own.slack()), (&b"tail"[..], 12));
        assert_eq!(own.fill_front(b"head "), 5);
        assert_eq!(own.bytes(), b"head tail");
        assert_eq!(Own::ending_with(b"long", 2).bytes(), b"long");
    }

    #[test]
    fn sharing_moves_no_byte_and_remembers_the_block() {
        let mut chunk = Chunk::own(filled(1000, 500));
        chunk.advance(20);
        let at = chunk.bytes().as_ptr();
        let other = chunk.share();
        assert_eq!((chunk.bytes().as_ptr(), other.bytes().as_ptr()), (at, at));
        assert_eq!((chunk.len(), other.len()), (480, 480));
        assert!(other.block() > 1000 - UNIT && other.block() <= chunk.block());
        assert_eq!(chunk.spare(), 0);

        let mut quarter = Chunk::own(filled(1000, 250));
        assert!(!quarter.is_loose() && !quarter.share().is_loose(), "the units must not make it loose");
    }

    #[test]
    fn a_split_copies_a_piece_under_a_quarter_of_its_block_and_nothing_else() {
        let mut chunk = Chunk::own(filled(4096, 4096));
        let at = chunk.bytes().as_ptr() as usize;
        let small = chunk.split_to(1000);
        assert_ne!(small.bytes().as_ptr() as usize, at);
        assert_eq!((small.len(), chunk.len(), chunk.block()), (1000, 3096, 4096));
        let big = chunk.split_to(2500);
        assert_eq!(big.bytes().as_ptr() as usize, at + 1000, "the large piece keeps the block");
        assert_eq!((big.len(), chunk.len(), chunk.block()), (2500, 596, 596));

        let mut even = Chunk::own(filled(4096, 4096));
        let first = even.split_to(2048);
        assert_eq!(even.bytes().as_ptr() as usize, first.bytes().as_ptr() as usize + 2048);
        assert!(matches!((&even, &first), (Chunk::Shared { .. }, Chunk::Shared { .. })));
    }

    #[test]
    fn foreign_memory_is_never_loose() {
        let mut chunk = Chunk::foreign(Bytes::from_static(&[0; 100_000]));
        chunk.advance(99_999);
        assert!(!chunk.is_loose());
        assert_eq!((chunk.block(), chunk.held()), (0, 1));
    }

    #[test]
    fn fitting_lets_go_of_a_loose_block() {
        let mut behind = Chunk::own(filled(10_000, 100));
        behind.fit();
        assert!(behind.block() < 400);
        let mut before = Chunk::own(filled(10_000, 10_000));
        before.advance(9_900);
        before.fit();
        assert_eq!((before.len(), before.block()), (100, 100));
        let mut shared = Chunk::own(filled(10_000, 10_000));
        let _other = shared.share();
        shared.truncate(100);
        shared.fit();
        assert!(matches!(shared, Chunk::Own { .. }));
        assert_eq!(shared.bytes(), &[7; 100]);
    }
}
