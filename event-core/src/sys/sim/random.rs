//! A tiny generator of repeatable numbers: splitmix64 (Steele, Lea and Flood, 2014).

/// The same seed gives the same numbers for ever; not for secrets.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A number in `0..bound`; `bound` is at least 1. The bias (below `bound` / 2^64) does not matter to a test.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        debug_assert!(bound > 0);
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Puts `items` into a random order (Fisher and Yates).
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_shuffle_keeps_the_items_and_depends_on_the_seed_alone() {
        let shuffled = |seed| {
            let mut items: Vec<u32> = (0..50).collect();
            Random::new(seed).shuffle(&mut items);
            items
        };
        let mut sorted = shuffled(7);
        assert_ne!(sorted, (0..50).collect::<Vec<_>>());
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
        assert_eq!(shuffled(7), shuffled(7));
        assert_ne!(shuffled(7), shuffled(8));
    }
}
