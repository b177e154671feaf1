//! Numbers that are the same from run to run: what random tests draw from.

use std::cell::Cell;

/// A generator with a seed. Callbacks share it, so it is drawn from through `&self`.
#[derive(Debug)]
pub struct Random(Cell<u64>);

impl Random {
    /// The sequence of a seed; any will do.
    pub fn new(seed: u64) -> Random {
        Random(Cell::new(seed))
    }

    /// 31 bits.
    pub fn bits(&self) -> u64 {
        let next =
            self.0.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0.set(next);
        // The low ones have short periods.
        next >> 33
    }

    /// A number below `bound`, which is at least 1.
    pub fn draw(&self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&self, bound: usize) -> usize {
        self.draw(bound as u64) as usize
    }

    /// Once in `n` times.
    pub fn one_in(&self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of them.
    pub fn pick<'a, T: ?Sized>(&self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// Usually one of the first, seldom one of the second.
    pub fn mostly<'a, T: ?Sized>(&self, good: &[&'a T], odd: &[&'a T]) -> &'a T {
        if self.one_in(12) { self.pick(odd) } else { self.pick(good) }
    }
}
