//! Blocks of memory that a loop lends to its buffers and takes back, so that a warm exchange allocates none.

use std::cell::{Cell, RefCell};

/// Capacity of a block to read into. Reading 64 KiB at once is where more per system call stops to pay, and
/// the block goes back after the callback, so one loop needs about one.
pub(crate) const READ_BLOCK: usize = 64 * 1024;

/// Capacity of a block to encode small answers into: a page holds any usual head and a short body.
pub(crate) const WRITE_BLOCK: usize = 4 * 1024;

/// A block is as large as this at most: the allocator may have given more than was asked for.
const READ_BLOCK_END: usize = 2 * READ_BLOCK;
const WRITE_BLOCK_END: usize = 2 * WRITE_BLOCK;

/// Read blocks kept: one in use at a time, and a few that come back late from output that had to wait (256
/// KiB).
const KEEP_READ: usize = 4;

/// Write blocks kept: more than the 32 callbacks after which waiting output is flushed can have in use (256
/// KiB).
const KEEP_WRITE: usize = 64;

/// The recycled blocks of one loop. No borrow outlives a call, and no call runs code of the user.
#[derive(Default)]
pub(crate) struct Pool {
    reads: Shelf,
    writes: Shelf,
}

/// Blocks of one size.
#[derive(Default)]
struct Shelf {
    /// The one that came back last, or none: without capacity. One loop mostly has one of a kind in use at a time.
    hot: Cell<Vec<u8>>,
    others: RefCell<Vec<Vec<u8>>>,
}

impl Shelf {
    #[inline]
    fn take(&self, size: usize) -> Vec<u8> {
        let hot = self.hot.take();
        if hot.capacity() > 0 { hot } else { self.take_other(size) }
    }

    fn take_other(&self, size: usize) -> Vec<u8> {
        let kept = self.others.borrow_mut().pop();
        kept.unwrap_or_else(|| Vec::with_capacity(size))
    }

    #[inline]
    fn give(&self, block: Vec<u8>, keep: usize) {
        let old = self.hot.replace(block);
        if old.capacity() > 0 {
            self.give_other(old, keep);
        }
    }

    fn give_other(&self, block: Vec<u8>, keep: usize) {
        let mut others = self.others.borrow_mut();
        if others.len() + 1 < keep {
            others.push(block);
        }
    }

    #[cfg(test)]
    fn held(&self) -> usize {
        let hot = self.hot.take();
        let held = hot.capacity();
        self.hot.set(hot);
        held + self.others.borrow().iter().map(Vec::capacity).sum::<usize>()
    }
}

impl Pool {
    pub(crate) fn new() -> Pool {
        Pool::default()
    }

    /// An empty block of at least `READ_BLOCK` bytes.
    #[inline]
    pub(crate) fn take_read(&self) -> Vec<u8> {
        self.reads.take(READ_BLOCK)
    }

    /// An empty block of at least `WRITE_BLOCK` bytes.
    #[inline]
    pub(crate) fn take_write(&self) -> Vec<u8> {
        self.writes.take(WRITE_BLOCK)
    }

    /// The smaller of the two kinds that has room for `at_least` bytes, the larger if neither has.
    #[inline]
    pub(crate) fn take(&self, at_least: usize) -> Vec<u8> {
        if at_least <= WRITE_BLOCK { self.take_write() } else { self.take_read() }
    }

    /// Takes a block back and forgets its bytes. A block of another size, or one too many, is freed.
    #[inline]
    pub(crate) fn give(&self, mut block: Vec<u8>) {
        block.clear();
        match block.capacity() {
            READ_BLOCK..READ_BLOCK_END => self.reads.give(block, KEEP_READ),
            WRITE_BLOCK..WRITE_BLOCK_END => self.writes.give(block, KEEP_WRITE),
            _ => {}
        }
    }

    /// Bytes of memory that lie in the pool now.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.reads.held() + self.writes.held()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_given_back_is_the_next_one_taken_and_is_empty() {
        let pool = Pool::new();
        let (mut read, mut write) = (pool.take_read(), pool.take_write());
        read.extend_from_slice(b"secret");
        write.extend_from_slice(b"secret");
        let at = (read.as_ptr(), write.as_ptr());
        pool.give(write);
        pool.give(read);
        assert_eq!(pool.held(), READ_BLOCK + WRITE_BLOCK);
        let (read, write) = (pool.take_read(), pool.take_write());
        assert_eq!((read.as_ptr(), write.as_ptr()), at);
        assert!(read.is_empty() && write.is_empty());
        assert_eq!(pool.held(), 0);
    }

    #[test]
    fn the_pool_keeps_a_bounded_number_and_only_blocks_of_its_sizes() {
        let pool = Pool::new();
        for _ in 0..200 {
            pool.give(Vec::with_capacity(READ_BLOCK));
            pool.give(Vec::with_capacity(WRITE_BLOCK));
            pool.give(Vec::with_capacity(1 << 20));
            pool.give(Vec::with_capacity(10));
            pool.give(Vec::new());
        }
        assert_eq!(pool.held(), KEEP_READ * READ_BLOCK + KEEP_WRITE * WRITE_BLOCK);
    }
}
