//! `Buffer`: a queue of bytes in chunks, libevent's evbuffer.

mod chunk;
mod convert;
mod file;
mod io;
mod list;
#[cfg(test)]
mod model;
mod moves;
mod pool;
mod search;
mod segment;
mod stream;
mod take;

use bytes::Bytes;

use crate::error::Error;
use chunk::{Chunk, MAX_CHUNK, MIN_CHUNK, Own};
use list::List;

pub(crate) use pool::{Pool, READ_BLOCK, WRITE_BLOCK};
pub use search::Eol;
pub use segment::FileSegment;

/// The most bytes a buffer may hold, as in libevent: every length and every sum of two is then in range.
const MAX_LEN: usize = isize::MAX as usize;

/// A piece up to this size is copied when it fits behind the last bytes of where it goes: that costs less
/// than a chunk of its own, in memory and in the number of pieces to send.
const SMALL_PIECE: usize = 1024;

/// A queue of bytes: added at the end, taken from the front, moved to another buffer without a copy.
///
/// The bytes lie in chunks. A chunk is memory of the buffer's own, which takes further bytes while it has
/// room, or a share of memory that does not change: a static string, a [`Bytes`], what another buffer has
/// too; or a part of a file ([`add_file`](Buffer::add_file)), which is read when somebody looks. Memory that holds bytes is never enlarged by moving them, and no byte moves because the `Buffer`
/// itself does: a pointer to them stays good until this buffer is modified.
///
/// An empty buffer is 40 bytes and owns no memory; the first chunk costs one allocation, its memory. Memory
/// kept is at most four times the bytes in it, apart from the blocks at the two ends: see
/// [`held`](Buffer::held).
///
/// A buffer is `Send`: another thread may build an answer. It is for one owner at a time; libevent's
/// `evbuffer_lock` is Rust's `&mut`. What owns referenced memory ([`add_reference`](Buffer::add_reference))
/// is dropped inside the call that lets go of its last byte, or with the buffer.
///
/// A buffer holds at most `isize::MAX` bytes. As only references to the same memory, repeated, could be more,
/// the calls that take them do nothing then (and fail a debug assertion) instead of returning an error each
/// time.
///
/// # Examples
/// ```
/// use event_core::{Buffer, Eol};
///
/// let mut buffer = Buffer::new();
/// buffer.add(b"GET / HTTP/1.1\r\nHost: ");
/// write!(buffer, "{}:{}\r\n", "localhost", 8080);
/// assert_eq!(buffer.readln(Eol::CrlfStrict).as_deref(), Some(&b"GET / HTTP/1.1"[..]));
/// assert_eq!(buffer, "Host: localhost:8080\r\n");
/// ```
#[derive(Default)]
#[doc(alias = "evbuffer")]
#[doc(alias = "evbuffer_free")]
pub struct Buffer {
    list: List,
}

impl Buffer {
    /// Makes an empty buffer. Allocates nothing.
    #[inline]
    #[doc(alias = "evbuffer_new")]
    pub const fn new() -> Buffer {
        Buffer { list: List::new() }
    }

    /// Makes a buffer that refers to `bytes`. Allocates nothing.
    pub const fn from_static(bytes: &'static [u8]) -> Buffer {
        Buffer { list: List::one(Chunk::foreign(Bytes::from_static(bytes))) }
    }

    /// Appends a copy of `data`.
    ///
    /// What does not fit behind the last bytes goes into new memory: as large as the piece if that is large,
    /// else twice the last memory, from 512 bytes to 64 KiB, and no more than the buffer's length asks for.
    #[inline]
    #[doc(alias = "evbuffer_add")]
    pub fn add(&mut self, data: &[u8]) {
        match self.list.only_own() {
            Some((own, _)) if own.spare() >= data.len() => {
                own.fill(data);
            }
            _ => self.add_slow(data),
        }
    }

    /// Puts a copy of `data` before the first byte, using the room that drained bytes have left.
    ///
    /// ```
    /// # use event_core::Buffer;
    /// let mut buffer = Buffer::from("body");
    /// buffer.prepend(b"head ");
    /// assert_eq!(buffer, "head body");
    /// ```
    #[doc(alias = "evbuffer_prepend")]
    pub fn prepend(&mut self, data: &[u8]) {
        if data.is_empty() || !self.may_take(data.len()) {
            return;
        }
        if self.is_empty() {
            return self.add(data);
        }
        let filled = self.list.edit_front(|chunk| match chunk {
            Chunk::Own { own, .. } => own.fill_front(data),
            Chunk::File(_) | Chunk::Shared { .. } => 0,
        });
        let rest = &data[..data.len() - filled.unwrap_or(0)];
        if !rest.is_empty() {
            let block = self.list.front().map_or(0, Chunk::block);
            self.push_front(Chunk::own(Own::ending_with(rest, self.growth(block))));
        }
    }

    /// Appends a reference to `bytes`, without a copy.
    ///
    /// The memory lives until its last byte has left every buffer it came to; its owner is dropped then
    /// ([`Bytes::from_owner`] takes any).
    ///
    /// ```
    /// # use event_core::{Buffer, Bytes};
    /// let page = Bytes::from_owner(vec![b'x'; 100_000].into_boxed_slice());
    /// let mut buffer = Buffer::from("page: ");
    /// buffer.add_reference(page.clone());
    /// assert_eq!(buffer.len(), 100_006);
    /// ```
    #[doc(alias = "evbuffer_add_reference")]
    pub fn add_reference(&mut self, bytes: Bytes) {
        if self.may_take(bytes.len()) {
            self.push_back(Chunk::foreign(bytes));
        }
    }

    /// Appends a reference to `bytes`; a few bytes that fit behind the last ones are copied instead.
    pub fn add_static(&mut self, bytes: &'static [u8]) {
        if self.is_small_for_back(bytes.len()) {
            self.add(bytes);
        } else {
            self.add_reference(Bytes::from_static(bytes));
        }
    }

    /// Makes sure that at least `n` more bytes can be added in one piece without an allocation.
    ///
    /// # Errors
    /// `Error::Invalid` if the buffer would be longer than `isize::MAX` bytes or the memory is not there;
    /// nothing has changed then.
    #[doc(alias = "evbuffer_expand")]
    pub fn reserve(&mut self, n: usize) -> Result<(), Error> {
        if self.list.back().map_or(0, Chunk::spare) >= n {
            return Ok(());
        }
        if n > MAX_LEN - self.len() {
            return Err(Error::Invalid("the buffer would be longer than isize::MAX bytes"));
        }
        let mut mem = Vec::new();
        if mem.try_reserve_exact(n.max(MIN_CHUNK)).is_err() {
            return Err(Error::Invalid("there is no memory of the size to reserve"));
        }
        self.close_back();
        self.list.push_back(Chunk::own(Own::new(mem)));
        Ok(())
    }

    /// Has `write` put bytes in place: it gets `room` zero bytes behind the last one, and what it says it has written is
    /// appended, at most `room`. Returns how many.
    ///
    /// This is `evbuffer_reserve_space` and `evbuffer_commit_space` in one call, always in one piece. If `write` panics
    /// nothing is appended.
    ///
    /// ```
    /// # use event_core::Buffer;
    /// let mut buffer = Buffer::from("n = ");
    /// buffer.add_with(20, |room| {
    ///     room[..2].copy_from_slice(b"42");
    ///     2
    /// })?;
    /// assert_eq!(buffer, "n = 42");
    /// # Ok::<(), event_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`reserve`](Buffer::reserve); `write` is not called then.
    #[doc(alias = "evbuffer_reserve_space")]
    #[doc(alias = "evbuffer_commit_space")]
    pub fn add_with(&mut self, room: usize, write: impl FnOnce(&mut [u8]) -> usize) -> Result<usize, Error> {
        if room > MAX_LEN - self.len() {
            return Err(Error::Invalid("the buffer would be longer than isize::MAX bytes"));
        }
        self.reserve(room)?;
        let written = self.list.edit_back(|chunk| match chunk {
            Chunk::Own { own, .. } => own.fill_with(room, write),
            // Not reached: only memory of the buffer's own has room, and for no bytes there is nothing to do.
            Chunk::File(_) | Chunk::Shared { .. } => 0,
        });
        Ok(written.unwrap_or(0))
    }

    /// Number of bytes in the buffer. O(1).
    #[inline]
    #[doc(alias = "evbuffer_get_length")]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are no bytes. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that this buffer keeps alive; O(chunks).
    ///
    /// Memory of its own counts with its capacity, memory shared with other buffers in each of them,
    /// referenced memory with the bytes referred to, a file with those that were looked at. It is at most four times the length, plus: the block at
    /// either end, which is at most 64 KiB unless something larger was put in whole and more than 64 KiB of
    /// that are left; what [`reserve`](Buffer::reserve) asked for; and 512 bytes.
    pub fn held(&self) -> usize {
        self.list.iter().fold(0, |sum: usize, chunk| sum.saturating_add(chunk.held()))
    }

    /// Whether `n` more bytes are a length that a buffer may have.
    #[inline]
    fn may_take(&self, n: usize) -> bool {
        let may = n <= MAX_LEN - self.len();
        debug_assert!(may, "a buffer holds at most isize::MAX bytes");
        may
    }

    #[inline(never)]
    fn add_slow(&mut self, data: &[u8]) {
        if !data.is_empty() && self.may_take(data.len()) {
            self.append(data, MAX_CHUNK);
        }
    }

    /// Appends; new memory is at most `limit`, unless the data is more.
    fn append(&mut self, data: &[u8], limit: usize) {
        let filled = self.list.edit_back(|chunk| match chunk {
            Chunk::Own { own, .. } => (own.fill(data), own.capacity()),
            Chunk::File(_) | Chunk::Shared { .. } => (0, 0),
        });
        let (filled, block) = filled.unwrap_or((0, 0));
        let rest = &data[filled..];
        if !rest.is_empty() {
            let mut own = Own::with_capacity(rest.len().max(self.growth(block).min(limit)));
            own.fill(rest);
            self.push_back(Chunk::own(own));
        }
    }

    /// Size of the memory that a small piece is given beside a chunk of `block` bytes: double, as long as the
    /// buffer is of that length, so that the new memory is never most of what is held.
    fn growth(&self, block: usize) -> usize {
        let double = block.saturating_mul(2).min(MAX_CHUNK);
        double.min(self.len().min(MAX_CHUNK).next_power_of_two()).max(MIN_CHUNK)
    }

    /// Appends a chunk, which must not be empty unless it may be dropped.
    fn push_back(&mut self, chunk: Chunk) {
        if !chunk.is_empty() {
            self.close_back();
            self.list.push_back(chunk);
        }
    }

    fn push_front(&mut self, chunk: Chunk) {
        if chunk.is_empty() {
            return;
        }
        if self.is_empty() {
            self.clear();
        } else if self.list.count() > 1 {
            // The front of several becomes a middle chunk, which must not be loose.
            self.list.edit_front(Chunk::fit);
        }
        self.list.push_front(chunk);
    }

    /// Prepares the last chunk for one behind it: no empty chunk stays, and none in the middle that is under
    /// a quarter full.
    fn close_back(&mut self) {
        self.drop_empty_back();
        if self.list.count() > 1 {
            self.list.edit_back(Chunk::fit);
        }
    }

    fn drop_empty_back(&mut self) {
        while self.list.back().is_some_and(Chunk::is_empty) {
            self.list.pop_back();
        }
    }

    /// Whether a piece of `n` bytes is better copied behind the last bytes than put into a chunk of its own.
    fn is_small_for_back(&self, n: usize) -> bool {
        n <= SMALL_PIECE && self.list.back().is_some_and(|chunk| chunk.spare() >= n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::few::few_under_miri;

    fn is_send<T: Send>() {}

    #[test]
    fn a_buffer_is_send_small_and_without_memory_when_empty() {
        is_send::<Buffer>();
        assert!(size_of::<Buffer>() <= 40, "{}", size_of::<Buffer>());
        assert_eq!(Buffer::new().held(), 0);
        let mut buffer = Buffer::from("gone");
        buffer.drain(4);
        assert_eq!((buffer.len(), buffer.held()), (0, 0));
    }

    #[test]
    fn absurd_lengths_are_refused_and_change_nothing() {
        let mut buffer = Buffer::from("text");
        // Miri ends at what an allocator only refuses.
        let refused = few_under_miri(&[isize::MAX as usize, isize::MAX as usize - 4][..], &[]);
        for &n in [usize::MAX, usize::MAX - 1].iter().chain(refused) {
            assert!(matches!(buffer.reserve(n), Err(Error::Invalid(_))), "{n}");
        }
        assert_eq!((&buffer, buffer.held(), buffer.chunks().count()), (&Buffer::from("text"), 4, 1));
        assert_eq!(buffer.pullup(usize::MAX), None);
        assert_eq!(buffer.peek(usize::MAX).count(), 1);
        assert_eq!(buffer.peek_from(usize::MAX, usize::MAX).count(), 0);
        assert_eq!(buffer.copyout_from(usize::MAX, &mut [0; 4]), 0);
        buffer.truncate(usize::MAX);
        assert_eq!(buffer.drain(usize::MAX), 4);
        assert_eq!(buffer.drain(usize::MAX), 0);
    }

    #[test]
    fn reserving_does_not_change_the_order_of_what_is_added() -> Result<(), Error> {
        let mut buffer = Buffer::new();
        buffer.reserve(12)?;
        buffer.add(b"fourteen bytes");
        buffer.reserve(2048)?;
        buffer.add(b", then ten");
        write!(buffer, ", then {:?}", 7);
        buffer.reserve(1)?;
        buffer.add_reference(Bytes::from_static(b", then a reference"));
        buffer.reserve(100)?;
        buffer.prepend(b"first: ");
        buffer.add(b".");
        assert_eq!(buffer, "first: fourteen bytes, then ten, then 7, then a reference.");
        Ok(())
    }

    #[test]
    fn reserved_room_is_one_piece_and_takes_the_bytes_without_an_allocation() -> Result<(), Error> {
        let mut buffer = Buffer::from("x");
        buffer.reserve(100_000)?;
        let held = buffer.held();
        buffer.add(&[b'y'; 60_000]);
        buffer.add(&[b'z'; 40_000]);
        assert_eq!((buffer.held(), buffer.chunks().count()), (held, 2));
        Ok(())
    }

    #[test]
    fn bytes_are_written_in_place_and_only_what_was_written_counts() -> Result<(), Error> {
        let mut buffer = Buffer::from_static(b"a");
        let fill = |byte: u8, n: usize| {
            move |room: &mut [u8]| {
                assert!(room.iter().all(|old| *old == 0), "what was there before is not shown");
                room.fill(byte);
                n
            }
        };
        assert_eq!(buffer.add_with(5, fill(b'b', 2))?, 2);
        let at = buffer.chunks().last().map(<[u8]>::as_ptr);
        assert_eq!(buffer.add_with(300, fill(b'c', 0))?, 0);
        assert_eq!(buffer.add_with(2, fill(b'd', usize::MAX))?, 2);
        assert_eq!(buffer.chunks().last().map(<[u8]>::as_ptr), at, "there was room");
        assert_eq!(buffer.add_with(0, fill(b'e', 9))?, 0);
        assert_eq!(Buffer::from_static(b"s").add_with(0, fill(b'e', 9))?, 0);
        assert!(buffer.add_with(usize::MAX, fill(b'f', 1)).is_err());
        assert!(buffer.add_with(isize::MAX as usize - 4, fill(b'f', 1)).is_err());
        assert_eq!((&buffer, Buffer::new().add_with(1, fill(b'g', 1))?), (&Buffer::from("abbdd"), 1));
        Ok(())
    }

    #[test]
    fn a_panic_while_bytes_are_written_in_place_appends_nothing() {
        let mut buffer = Buffer::from("kept");
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            buffer.add_with(100, |room| {
                room.fill(1);
                panic!("on purpose")
            })
        }));
        assert!(broken.is_err());
        buffer.add(b" on");
        assert_eq!((buffer.len(), buffer.to_vec()), (7, b"kept on".to_vec()));
    }

    #[test]
    fn an_empty_chunk_is_never_inside() -> Result<(), Error> {
        let mut buffer = Buffer::from("a");
        buffer.add_reference(Bytes::new());
        buffer.reserve(1000)?;
        buffer.add_buffer(&mut Buffer::from_static(b""));
        buffer.add_reference(Bytes::from_static(b"b"));
        buffer.reserve(1000)?;
        let mut other = Buffer::new();
        other.reserve(10)?;
        other.add_buffer_reference(&mut buffer);
        other.prepend_buffer(&mut buffer);
        assert_eq!((&other, buffer.len()), (&Buffer::from("abab"), 0));
        assert!(other.list.iter().all(|chunk| !chunk.is_empty()));
        assert_eq!(buffer.remove(&mut [0; 4]), 0);
        Ok(())
    }

    #[test]
    fn adding_moves_no_byte_and_neither_does_moving_the_buffer() {
        let mut buffer = Buffer::new();
        buffer.add(b"first");
        let at = buffer.contiguous().as_ptr();
        for _ in 0..few_under_miri(10_000, 500) {
            buffer.add(b"more and more");
        }
        let buffer = Box::new(buffer);
        assert_eq!(buffer.contiguous().as_ptr(), at);
    }

    #[test]
    fn small_pieces_share_memory_that_doubles_and_a_large_one_gets_its_size() {
        let mut buffer = Buffer::new();
        for _ in 0..few_under_miri(100_000, 300) {
            buffer.add(b"0123456789");
        }
        // 512 bytes to 32 KiB, then 64 KiB each.
        assert!(buffer.chunks().count() <= 24, "{}", buffer.chunks().count());
        assert!(buffer.held() < buffer.len() + MAX_CHUNK);
        let mut large = Buffer::new();
        large.add(&vec![0; 1 << 20]);
        assert_eq!((large.held(), large.chunks().count()), (1 << 20, 1));
    }

    #[test]
    fn thousands_of_small_pieces_waste_less_than_an_eighth() {
        let mut buffer = Buffer::new();
        for n in 0..few_under_miri(100_000, 200) {
            write!(buffer, "piece {n} of some text; ");
            let waste = buffer.held() - buffer.len();
            assert!(waste * 8 < buffer.len() || buffer.len() < 512 << 10, "{waste} of {}", buffer.held());
        }
    }

    #[test]
    fn a_queue_that_has_become_short_takes_little_memory_for_what_is_added() {
        let mut buffer = Buffer::from(vec![0; MAX_CHUNK]);
        buffer.drain(MAX_CHUNK - 10);
        buffer.add(b"x");
        assert_eq!((buffer.len(), buffer.held()), (11, MAX_CHUNK + MIN_CHUNK));
    }

    #[test]
    fn repeated_prepends_share_memory_too() {
        let mut buffer = Buffer::from("end");
        for n in 0..1000 {
            buffer.prepend(format!("{n} ").as_bytes());
        }
        assert!(buffer.to_vec().starts_with(b"999 998 997 ") && buffer.to_vec().ends_with(b" 1 0 end"));
        assert!(buffer.chunks().count() < 8, "{}", buffer.chunks().count());
    }

    #[test]
    fn referenced_memory_between_small_additions_does_not_strand_room() {
        let mut buffer = Buffer::new();
        for _ in 0..few_under_miri(1000, 100) {
            buffer.add(b"0123456789");
            buffer.add_reference(Bytes::from_static(b"0123456789"));
        }
        assert!(buffer.held() <= 4 * buffer.len() + 2 * MIN_CHUNK, "{}", buffer.held());
    }
}
