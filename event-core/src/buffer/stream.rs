//! What a stream needs of its buffers: reading into blocks of the loop's pool and giving them back.

use super::chunk::{Chunk, MIN_CHUNK, Own};
use super::{Buffer, Pool, READ_BLOCK, WRITE_BLOCK};

impl Buffer {
    /// Lets `f` append to a vector with room for `at_least` more bytes (at most `READ_BLOCK`): the end of this buffer
    /// if that has the room, else a block of the pool, which becomes the end unless `f` appends nothing.
    ///
    /// `f` only appends, and not so much that the vector grows if the block is to be recycled.
    pub(crate) fn with_tail<R>(
        &mut self,
        at_least: usize,
        pool: &Pool,
        f: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> R {
        let at_least = at_least.min(READ_BLOCK);
        if let Some(own) = self.list.only_own()
            && own.spare() >= at_least
        {
            return own.append_with(f);
        }
        // Taken out while `f` runs, so that lengths are right whatever it does.
        let has_room = self.list.back().is_some_and(|chunk| chunk.spare() >= at_least);
        let (mut own, pooled) = match has_room.then(|| self.list.pop_back()).flatten() {
            Some(Chunk::Own { own, pooled }) => (own, pooled),
            // Not a shared chunk: those have no room, and `at_least` zero means nothing is asked for.
            _ if at_least <= WRITE_BLOCK => (Own::new(pool.take_write()), true),
            _ => (Own::new(pool.take_read()), true),
        };
        let result = own.append_with(f);
        if own.len() == 0 {
            pool.give(own.into_mem());
        } else {
            // Before a read block small memory stays as it is: `settle` is about to append what was read to it.
            self.close_back(if at_least > WRITE_BLOCK { MIN_CHUNK } else { 0 });
            self.list.push_back(Chunk::Own { own, pooled });
        }
        result
    }

    /// Appends a block of the pool with what was written to it.
    pub(crate) fn push_block(&mut self, block: Vec<u8>) {
        if self.may_take(block.len()) {
            self.push_back(Chunk::Own { own: Own::new(block), pooled: true });
        }
    }

    /// Tidies up after a callback or a flush: an end that is under a quarter of its block is copied into memory of its
    /// own size, and the block goes back to the pool, as does one that is empty. A fuller block stays. O(1) chunks.
    #[inline]
    pub(crate) fn settle(&mut self, pool: &Pool) {
        if self.list.count() > 0 {
            self.settle_some(pool);
        }
    }

    /// As `drain`, but hands the emptied blocks to the pool.
    pub(crate) fn drain_to_pool(&mut self, n: usize, pool: &Pool) {
        let mut left = n.min(self.len());
        while left > 0 {
            let len = self.list.front().map_or(0, Chunk::len);
            if len > left {
                self.drain(left);
                return;
            }
            left -= len;
            give(self.list.pop_front(), pool);
        }
        if self.is_empty() {
            // Reserved or emptied memory.
            give(self.list.pop_front(), pool);
        }
    }

    fn settle_some(&mut self, pool: &Pool) {
        while self.list.back().is_some_and(Chunk::is_empty) {
            give(self.list.pop_back(), pool);
        }
        let is_wasteful = |chunk: &Chunk| chunk.block() > MIN_CHUNK && chunk.is_loose();
        if self.list.count() > 1
            && self.list.back().is_some_and(is_wasteful)
            && let Some(chunk) = self.list.pop_back()
        {
            // Behind the bytes before it, where there may be room: a peer that sends byte by byte must not make a
            // chunk of each.
            self.add(chunk.bytes());
            give(Some(chunk), pool);
        }
        if self.list.front().is_some_and(is_wasteful)
            && let Some(chunk) = self.list.pop_front()
        {
            self.list.push_front(Chunk::own(Own::from(chunk.bytes())));
            give(Some(chunk), pool);
        }
    }
}

/// Hands the memory of a chunk to the pool; drops a shared one.
fn give(chunk: Option<Chunk>, pool: &Pool) {
    if let Some(Chunk::Own { own, .. }) = chunk {
        pool.give(own.into_mem());
    }
}
