//! A slab whose keys go stale by themselves: an index and the generation it was handed out under.

use slab::Slab;

/// Names one value for as long as it lives; afterwards it finds nothing, whatever took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Values under generation-checked keys.
///
/// Generations are kept beside the slab and never reset, so a key stays stale after `drain` too. A slot whose
/// generation cannot go up any more is retired: it keeps a default value and is not handed out again.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slab: Slab<T>,
    generations: Vec<u32>,
    retired: usize,
}

impl<T: Default> Slots<T> {
    pub(crate) fn new() -> Slots<T> {
        Slots { slab: Slab::new(), generations: Vec::new(), retired: 0 }
    }

    /// Stores a value. `None` when the index space (2^32) is used up.
    pub(crate) fn insert(&mut self, value: T) -> Option<Key> {
        let index = u32::try_from(self.slab.vacant_key()).ok()?;
        self.slab.insert(value);
        if self.generations.len() <= index as usize {
            self.generations.resize(index as usize + 1, 0);
        }
        Some(Key { index, generation: self.generations[index as usize] })
    }

    /// Takes the value out; the key and its copies are stale from here on.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        if !self.contains(key) {
            return None;
        }
        let generation = &mut self.generations[key.index as usize];
        if *generation >= u32::MAX - 1 {
            *generation = u32::MAX;
            self.retired += 1;
            return self.slab.get_mut(key.index as usize).map(std::mem::take);
        }
        *generation += 1;
        self.slab.try_remove(key.index as usize)
    }

    pub(crate) fn contains(&self, key: Key) -> bool {
        // A retired slot has the generation MAX, which no key carries.
        self.generations.get(key.index as usize) == Some(&key.generation)
            && self.slab.contains(key.index as usize)
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        if self.generations.get(key.index as usize) != Some(&key.generation) {
            return None;
        }
        self.slab.get(key.index as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        if self.generations.get(key.index as usize) != Some(&key.generation) {
            return None;
        }
        self.slab.get_mut(key.index as usize)
    }

    /// The key that a live index has now.
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        let generation = *self.generations.get(index as usize)?;
        let live = generation != u32::MAX && self.slab.contains(index as usize);
        live.then_some(Key { index, generation })
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.slab.len() - self.retired
    }

    /// Every live key, in index order.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.slab.iter().filter_map(|(index, _)| self.key_at(u32::try_from(index).ok()?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_stale_after_removal_and_after_reuse_of_its_index() {
        let mut slots = Slots::new();
        let first = slots.insert(1).unwrap();
        assert_eq!(slots.remove(first), Some(1));
        let second = slots.insert(2).unwrap();
        assert_eq!(first.index, second.index);
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get(second), Some(&2));
    }

    #[test]
    fn a_slot_whose_generation_would_wrap_is_retired() {
        let mut slots = Slots::new();
        let key = slots.insert(7).unwrap();
        slots.generations[key.index as usize] = u32::MAX - 1;
        let last = slots.key_at(key.index).unwrap();
        assert_eq!(slots.remove(last), Some(7));
        assert_eq!(slots.len(), 0);
        assert_eq!(slots.key_at(key.index), None);
        let next = slots.insert(8).unwrap();
        assert_ne!(next.index, key.index);
        assert_eq!(slots.keys(), vec![next]);
    }
}
