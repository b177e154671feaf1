//! What a stream needs of its buffers: reading into blocks of the loop's pool and giving them back.

use super::chunk::{Chunk, MIN_CHUNK, Own};
use super::list::List;
use super::{Buffer, Pool, READ_BLOCK, WRITE_BLOCK};

impl Buffer {
    /// Whether it holds no memory, so that a new one is as good.
    #[inline]
    pub(crate) fn is_bare(&self) -> bool {
        self.list.is_bare()
    }

    /// A buffer of one block of the pool, which is not empty.
    #[inline]
    pub(crate) fn of_block(block: Vec<u8>) -> Buffer {
        Buffer { list: List::one(Chunk::Own { own: Own::new(block), pooled: true }) }
    }

    /// All bytes, if they lie in one piece of the buffer's own memory: letting go of that runs no code of anybody's.
    #[inline]
    pub(crate) fn only_own(&mut self) -> Option<&[u8]> {
        self.list.only_own().map(|(own, _)| own.bytes())
    }

    /// Gives that piece to the pool, bytes and all.
    #[inline]
    pub(crate) fn give_only_own(&mut self, pool: &Pool) {
        if let Some(mem) = self.list.take_only_mem() {
            pool.give(mem);
        }
    }

    /// Gives that piece to the pool if it has no bytes left, so that no memory is left; false if there is none like that.
    #[inline]
    pub(crate) fn give_emptied(&mut self, pool: &Pool) -> bool {
        let is_emptied = self.list.only_own().is_some_and(|(own, _)| own.len() == 0);
        if is_emptied {
            self.give_only_own(pool);
        }
        is_emptied
    }

    /// Lets `f` append to a vector with room for `at_least` more bytes (at most `READ_BLOCK`): the end of
    /// this buffer if that has the room, else a block of the pool, which becomes the end unless `f` appends
    /// nothing.
    ///
    /// `f` only appends, and not so much that the vector grows if the block is to be recycled.
    pub(crate) fn with_tail<R>(
        &mut self,
        at_least: usize,
        pool: &Pool,
        f: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> R {
        let at_least = at_least.clamp(1, READ_BLOCK);
        if self.list.is_bare() {
            let mut own = Own::new(pool.take(at_least));
            let result = own.append_with(f);
            match own.len() {
                0 => pool.give(own.into_mem()),
                _ => self.list.set(Chunk::Own { own, pooled: true }),
            }
            return result;
        }
        match self.list.only_own() {
            Some((own, _)) if own.spare() >= at_least => own.append_with(f),
            _ => self.with_new_tail(at_least, pool, f),
        }
    }

    fn with_new_tail<R>(&mut self, at_least: usize, pool: &Pool, f: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        // Taken out while `f` runs, so that lengths are right whatever it does.
        let has_room = self.list.back().is_some_and(|chunk| chunk.spare() >= at_least);
        let (mut own, pooled) = match has_room.then(|| self.list.pop_back()).flatten() {
            Some(Chunk::Own { own, pooled }) => (own, pooled),
            // Never a shared chunk that was taken out: those have no room, and one byte is asked for at
            // least.
            _ => (Own::new(pool.take(at_least)), true),
        };
        let result = own.append_with(f);
        if own.len() == 0 {
            pool.give(own.into_mem());
        } else {
            if at_least > WRITE_BLOCK {
                // The memory before a read block keeps its room: `settle` may append to it what was read.
                self.drop_empty_back();
            } else {
                self.close_back();
            }
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

    /// Tidies up after a callback or a flush: an end that is under a quarter of its block is copied into
    /// memory of its own size, and the block goes back to the pool, as does one that is empty. A fuller block
    /// stays. Afterwards the memory held is at most four times the bytes, and 1 KiB.
    #[inline]
    pub(crate) fn settle(&mut self, pool: &Pool) {
        if self.list.is_bare() {
            return;
        }
        match self.list.only_own() {
            Some((own, _)) if own.len() == 0 => give(self.list.take_only(), pool),
            Some((own, _)) if own.len() >= own.capacity().div_ceil(4) => {}
            _ => self.settle_some(pool),
        }
    }

    /// As `drain`, but hands the emptied blocks to the pool.
    #[inline]
    pub(crate) fn drain_to_pool(&mut self, n: usize, pool: &Pool) {
        match self.list.only_own() {
            Some((own, _)) if n >= own.len() => give(self.list.take_only(), pool),
            Some((own, _)) if own.capacity() <= READ_BLOCK => own.advance(n),
            _ => self.drain_chunks_to_pool(n, pool),
        }
    }

    fn drain_chunks_to_pool(&mut self, n: usize, pool: &Pool) {
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
            && let Some(chunk) = self.list.pop_back()
        {
            if is_wasteful(&chunk) {
                // Behind the bytes before it, where there may be room: a peer that sends byte by byte must
                // not make a chunk of each.
                let has_room = self.list.back().is_some_and(|back| back.spare() >= chunk.len());
                let may_hold = if has_room {
                    0
                } else {
                    (self.len() + chunk.len()).saturating_mul(4).saturating_sub(self.held())
                };
                self.append(chunk.bytes(), may_hold.max(MIN_CHUNK));
                give(Some(chunk), pool);
            } else {
                self.push_back(chunk);
            }
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
#[inline]
fn give(chunk: Option<Chunk>, pool: &Pool) {
    match chunk {
        Some(Chunk::Own { own, .. }) => pool.give(own.into_mem()),
        other => let_go(other),
    }
}

#[cold]
fn let_go(chunk: Option<Chunk>) {
    drop(chunk);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::few::few_under_miri;

    fn receive(buffer: &mut Buffer, pool: &Pool, data: &[u8]) {
        buffer.with_tail(READ_BLOCK, pool, |tail| tail.extend_from_slice(data));
    }

    #[test]
    fn a_warm_exchange_takes_its_blocks_from_the_pool_and_gives_them_back() {
        let pool = Pool::new();
        let (mut input, mut output) = (Buffer::new(), Buffer::new());
        let mut blocks = Vec::new();
        for _ in 0..10 {
            receive(&mut input, &pool, b"a request");
            let read_at = input.contiguous().as_ptr();
            input.drain(input.len());
            input.settle(&pool);
            output.with_tail(100, &pool, |tail| tail.extend_from_slice(b"an answer"));
            blocks.push((read_at, output.contiguous().as_ptr()));
            output.drain_to_pool(output.len(), &pool);
            assert_eq!((input.held(), output.held(), pool.held()), (0, 0, READ_BLOCK + WRITE_BLOCK));
        }
        blocks.dedup();
        assert_eq!(blocks.len(), 1);
    }

    #[test]
    fn a_read_that_brings_nothing_leaves_no_trace() {
        let pool = Pool::new();
        for mut buffer in [Buffer::new(), Buffer::from("before"), Buffer::from_static(b"before")] {
            let before = buffer.to_vec();
            buffer.with_tail(READ_BLOCK, &pool, |tail| assert!(tail.capacity() - tail.len() >= READ_BLOCK));
            buffer.with_tail(0, &pool, |tail| assert!(tail.capacity() > tail.len()));
            assert_eq!(buffer, before);
            assert_eq!(pool.held(), READ_BLOCK + WRITE_BLOCK);
        }
    }

    #[test]
    fn a_small_leftover_gets_memory_of_its_size_and_a_large_one_keeps_the_block() {
        let pool = Pool::new();
        let mut input = Buffer::new();
        receive(&mut input, &pool, &[b'x'; 20_000]);
        let at = input.contiguous().as_ptr();
        input.settle(&pool);
        assert_eq!((input.contiguous().as_ptr(), pool.held()), (at, 0));
        input.drain(5_000);
        input.settle(&pool);
        assert_eq!((input.len(), input.held(), pool.held()), (15_000, 15_000, READ_BLOCK));
    }

    #[test]
    fn a_peer_that_sends_byte_by_byte_makes_few_chunks() {
        let pool = Pool::new();
        let mut input = Buffer::new();
        for _ in 0..few_under_miri(20_000, 50) {
            receive(&mut input, &pool, b"x");
            input.settle(&pool);
            assert!(input.held() <= 4 * input.len() + MIN_CHUNK);
        }
        assert!(input.chunks().count() < 12, "{}", input.chunks().count());
        assert_eq!(pool.held(), READ_BLOCK);
    }

    #[test]
    fn a_long_body_is_read_into_blocks_that_stay() {
        let pool = Pool::new();
        let mut input = Buffer::new();
        receive(&mut input, &pool, &[1; READ_BLOCK]);
        let at = input.contiguous().as_ptr();
        for _ in 0..10 {
            receive(&mut input, &pool, &[2; READ_BLOCK]);
            input.settle(&pool);
        }
        assert_eq!((input.contiguous().as_ptr(), input.chunks().count()), (at, 11));
        assert_eq!(input.held(), input.len());
        input.drain_to_pool(usize::MAX, &pool);
        assert_eq!((input.len(), input.held(), pool.held()), (0, 0, 4 * READ_BLOCK));
    }

    #[test]
    fn an_echo_moves_the_bytes_and_the_block_still_comes_back() {
        let pool = Pool::new();
        for len in [10, 20_000] {
            let (mut input, mut output) = (Buffer::new(), Buffer::new());
            receive(&mut input, &pool, &vec![b'e'; len]);
            output.add_buffer(&mut input);
            input.settle(&pool);
            assert_eq!((input.held(), output.len()), (0, len));
            output.drain_to_pool(len, &pool);
            assert_eq!(pool.held(), READ_BLOCK, "after {len} bytes");
        }
    }

    #[test]
    fn a_block_of_the_pool_leaves_with_the_bytes_when_a_user_takes_them() {
        let pool = Pool::new();
        let mut input = Buffer::new();
        receive(&mut input, &pool, &[b'x'; 30_000]);
        let mut kept = input.take_all();
        kept.drain(30_000);
        assert_eq!(kept.held(), 0, "no 64 KiB for an empty buffer of the user's");

        receive(&mut input, &pool, &[b'x'; READ_BLOCK]);
        receive(&mut input, &pool, &[b'y'; 30_000]);
        let mut kept = input.take_all();
        kept.drain(usize::MAX);
        assert_eq!(kept.held(), 0);
    }

    #[test]
    fn a_user_who_drains_everything_leaves_the_block_for_the_pool() {
        let pool = Pool::new();
        let mut input = Buffer::from("left over, then ");
        receive(&mut input, &pool, &[b'x'; 30_000]);
        input.drain(usize::MAX);
        assert_eq!((input.len(), input.held()), (0, READ_BLOCK));
        input.settle(&pool);
        assert_eq!((input.held(), pool.held()), (0, READ_BLOCK));
    }

    #[test]
    fn answers_between_references_do_not_strand_their_blocks() {
        let pool = Pool::new();
        let mut output = Buffer::new();
        for _ in 0..100 {
            output.add_static(&[b'p'; 2000]);
            output.with_tail(10, &pool, |tail| tail.extend_from_slice(b"0123456789"));
            output.with_tail(WRITE_BLOCK, &pool, |tail| tail.extend_from_slice(b"0123456789"));
        }
        assert!(output.held() <= 2 * output.len() + 2 * WRITE_BLOCK, "{}", output.held());
    }

    #[test]
    fn a_pushed_block_becomes_the_end() {
        let pool = Pool::new();
        let mut output = Buffer::from("status ");
        let mut block = pool.take_write();
        block.extend_from_slice(b"head");
        output.push_block(block);
        output.add(b" body");
        assert_eq!((&output, output.chunks().count()), (&Buffer::from("status head body"), 2));
        output.push_block(pool.take_write());
        assert_eq!(output.chunks().count(), 2);
        output.drain_to_pool(9, &pool);
        assert_eq!(output, "ad body");
        output.drain_to_pool(7, &pool);
        assert_eq!((output.held(), pool.held()), (0, WRITE_BLOCK));
    }

    #[test]
    fn what_breaks_off_in_a_tail_leaves_right_lengths() {
        let pool = Pool::new();
        let mut buffer = Buffer::from_static(b"kept");
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            buffer.with_tail(10, &pool, |_| panic!("on purpose"));
        }));
        assert!(broken.is_err());
        buffer.add(b" on");
        assert_eq!((buffer.len(), buffer.to_vec()), (7, b"kept on".to_vec()));
    }
}
