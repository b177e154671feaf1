//! Blocks of memory that a loop lends to its buffers and takes back, so that a warm exchange allocates none.

use std::cell::RefCell;

/// Capacity of a block to read into. Reading 64 KiB at once is where more per system call stops to pay, and
/// the block goes back after the callback, so one loop needs about one.
pub(crate) const READ_BLOCK: usize = 64 * 1024;

/// Capacity of a block to encode small answers into: a page holds any usual head and a short body.
pub(crate) const WRITE_BLOCK: usize = 4 * 1024;

/// Read blocks kept: one in use at a time, and a few that come back late from output that had to wait (256
/// KiB).
const KEEP_READ: usize = 4;

/// Write blocks kept: more than the 32 callbacks after which waiting output is flushed can have in use (256
/// KiB).
const KEEP_WRITE: usize = 64;

/// The recycled blocks of one loop. No borrow outlives a call, and no call runs code of the user.
#[derive(Default)]
pub(crate) struct Pool {
    reads: RefCell<Vec<Vec<u8>>>,
    writes: RefCell<Vec<Vec<u8>>>,
}

impl Pool {
    pub(crate) fn new() -> Pool {
        Pool::default()
    }

    /// An empty block of at least `READ_BLOCK` bytes.
    pub(crate) fn take_read(&self) -> Vec<u8> {
        let kept = self.reads.borrow_mut().pop();
        kept.unwrap_or_else(|| Vec::with_capacity(READ_BLOCK))
    }

    /// An empty block of at least `WRITE_BLOCK` bytes.
    pub(crate) fn take_write(&self) -> Vec<u8> {
        let kept = self.writes.borrow_mut().pop();
        kept.unwrap_or_else(|| Vec::with_capacity(WRITE_BLOCK))
    }

    /// The smaller of the two kinds that has room for `at_least` bytes, the larger if neither has.
    #[inline]
    pub(crate) fn take(&self, at_least: usize) -> Vec<u8> {
        if at_least <= WRITE_BLOCK { self.take_write() } else { self.take_read() }
    }

    /// Takes a block back and forgets its bytes. A block of another size, or one too many, is freed.
    pub(crate) fn give(&self, mut block: Vec<u8>) {
        let capacity = block.capacity();
        let (list, keep) = if (READ_BLOCK..2 * READ_BLOCK).contains(&capacity) {
            (&self.reads, KEEP_READ)
        } else if (WRITE_BLOCK..2 * WRITE_BLOCK).contains(&capacity) {
            (&self.writes, KEEP_WRITE)
        } else {
            return;
        };
        block.clear();
        let mut list = list.borrow_mut();
        if list.len() < keep {
            list.push(block);
        }
    }

    /// Bytes of memory that lie in the pool now.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let sum = |list: &RefCell<Vec<Vec<u8>>>| list.borrow().iter().map(Vec::capacity).sum::<usize>();
        sum(&self.reads) + sum(&self.writes)
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
