//! A table whose keys go stale by themselves: an index and the generation it was handed out under.

/// Names one value for as long as it lives; afterwards it finds nothing, whatever took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A value that carries the generation of its slot: one look at memory tells whether a key is still good.
pub(crate) trait Slotted: Default {
    fn generation(&self) -> u32;
    fn set_generation(&mut self, generation: u32);
}

/// Values under generation-checked keys.
///
/// Generations are never reset, so a key stays stale whatever comes after. What is vacant holds a default value of a
/// generation that no key carries, so that one comparison tells all. A slot whose generation cannot go up any more is
/// retired: it stays so, and is not handed out again.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    values: Vec<T>,
    /// The keys of the vacant slots' next values; the last is the next one to be filled.
    vacant: Vec<Key>,
}

/// No key carries it.
const RETIRED: u32 = u32::MAX;

impl<T: Slotted> Slots<T> {
    pub(crate) fn new() -> Slots<T> {
        Slots { values: Vec::new(), vacant: Vec::new() }
    }

    /// Stores a value. `None` when the index space (2^32) is used up.
    pub(crate) fn insert(&mut self, mut value: T) -> Option<Key> {
        if let Some(key) = self.vacant.pop() {
            value.set_generation(key.generation);
            self.values[key.index as usize] = value;
            return Some(key);
        }
        let index = u32::try_from(self.values.len()).ok()?;
        value.set_generation(0);
        self.values.push(value);
        Some(Key { index, generation: 0 })
    }

    /// Takes the value out; the key and its copies are stale from here on.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.get_mut(key)?;
        let value = std::mem::take(place);
        place.set_generation(RETIRED);
        if key.generation < RETIRED - 1 {
            self.vacant.push(Key { generation: key.generation + 1, ..key });
        }
        Some(value)
    }

    #[inline]
    pub(crate) fn contains(&self, key: Key) -> bool {
        self.get(key).is_some()
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        match self.values.get(key.index as usize) {
            Some(value) if value.generation() == key.generation => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.values.get_mut(key.index as usize) {
            Some(value) if value.generation() == key.generation => Some(value),
            _ => None,
        }
    }

    /// The value at a live index, with its key.
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<(Key, &mut T)> {
        let value = self.values.get_mut(index as usize)?;
        let generation = value.generation();
        (generation != RETIRED).then_some((Key { index, generation }, value))
    }

    /// The value at an index that a list of live ones names, with its key: no value that is retired is in a list.
    #[inline]
    pub(crate) fn linked_mut(&mut self, index: u32) -> Option<(Key, &mut T)> {
        let value = self.values.get_mut(index as usize)?;
        Some((Key { index, generation: value.generation() }, value))
    }

    /// Where the value of this index lies, or a place that means nothing: to be fetched, not to be read.
    #[inline]
    pub(crate) fn address(&self, index: u32) -> *const u8 {
        self.values.as_ptr().wrapping_add(index as usize).cast()
    }

    /// The value at a live index.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.values.get(index as usize)
    }

    /// The key that a live index has now.
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        let generation = self.values.get(index as usize)?.generation();
        (generation != RETIRED).then_some(Key { index, generation })
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        (0..).zip(&self.values).filter_map(|(index, _)| self.key_at(index)).count()
    }

    /// Every live key, in index order.
    pub(crate) fn keys(&self) -> Vec<Key> {
        (0..).zip(&self.values).filter_map(|(index, _)| self.key_at(index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Value(i32, u32);

    impl Slotted for Value {
        fn generation(&self) -> u32 {
            self.1
        }

        fn set_generation(&mut self, generation: u32) {
            self.1 = generation;
        }
    }

    fn value(slots: &mut Slots<Value>, n: i32) -> Key {
        slots.insert(Value(n, 0)).unwrap()
    }

    #[test]
    fn a_key_is_stale_after_removal_and_after_reuse_of_its_index() {
        let mut slots = Slots::new();
        let first = value(&mut slots, 1);
        assert_eq!(slots.remove(first).map(|v| v.0), Some(1));
        let second = value(&mut slots, 2);
        assert_eq!(first.index, second.index);
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get(second).map(|v| v.0), Some(2));
    }

    #[test]
    fn a_slot_whose_generation_would_wrap_is_retired() {
        let mut slots = Slots::new();
        let key = value(&mut slots, 7);
        slots.values[key.index as usize].1 = u32::MAX - 1;
        let last = slots.key_at(key.index).unwrap();
        assert_eq!(slots.remove(last).map(|v| v.0), Some(7));
        assert_eq!(slots.len(), 0);
        assert_eq!(slots.key_at(key.index), None);
        let next = value(&mut slots, 8);
        assert_ne!(next.index, key.index);
        assert_eq!(slots.keys(), vec![next]);
    }
}
