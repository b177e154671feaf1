//! The timers: a 4-ary heap of deadlines, with the position of each slot's timer kept so that it can be moved.

use crate::clock::Time;

const ABSENT: u32 = u32::MAX;
const ARITY: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Node {
    deadline: Time,
    /// Order of arming: equal deadlines fire first in, first out. Compared by wrapping difference.
    seq: u32,
    slot: u32,
}

impl Node {
    fn before(&self, other: &Node) -> bool {
        if self.deadline != other.deadline {
            return self.deadline < other.deadline;
        }
        (self.seq.wrapping_sub(other.seq) as i32) < 0
    }
}

/// At most one timer a slot. Setting, moving and removing one is O(log n), the nearest deadline O(1).
#[derive(Debug, Default)]
pub(crate) struct Heap {
    nodes: Vec<Node>,
    /// `positions[slot]` is where in `nodes` the slot's timer stands, or `ABSENT`.
    positions: Vec<u32>,
    next_seq: u32,
}

impl Heap {
    pub(crate) fn new() -> Heap {
        Heap::default()
    }

    /// Arms the slot's timer, or moves it if it is armed; either way it is now the last of its deadline.
    pub(crate) fn set(&mut self, slot: u32, deadline: Time) {
        let seq = self.take_seq();
        self.set_in_order(slot, deadline, seq);
    }

    /// The next place in the order of arming.
    pub(crate) fn take_seq(&mut self) -> u32 {
        let seq = self.next_seq;
        self.next_seq = seq.wrapping_add(1);
        seq
    }

    /// Like `set`, in a place that `take_seq` gave earlier.
    pub(crate) fn set_in_order(&mut self, slot: u32, deadline: Time, seq: u32) {
        let node = Node { deadline, seq, slot };
        match self.position(slot) {
            Some(at) => {
                self.nodes[at] = node;
                self.restore(at);
            }
            None => {
                if self.positions.len() <= slot as usize {
                    self.positions.resize(slot as usize + 1, ABSENT);
                }
                self.nodes.push(node);
                self.up(self.nodes.len() - 1);
            }
        }
    }

    /// Disarms the slot's timer; tells whether it was armed.
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        let Some(at) = self.position(slot) else { return false };
        self.positions[slot as usize] = ABSENT;
        let last = self.nodes.len() - 1;
        self.nodes.swap_remove(at);
        if at < last {
            self.positions[self.nodes[at].slot as usize] = at as u32;
            self.restore(at);
        }
        true
    }

    pub(crate) fn deadline(&self, slot: u32) -> Option<Time> {
        self.position(slot).map(|at| self.nodes[at].deadline)
    }

    /// The nearest deadline and its slot.
    pub(crate) fn first(&self) -> Option<(Time, u32)> {
        self.nodes.first().map(|node| (node.deadline, node.slot))
    }

    /// How many timers are armed.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    fn position(&self, slot: u32) -> Option<usize> {
        self.positions.get(slot as usize).filter(|&&at| at != ABSENT).map(|&at| at as usize)
    }

    fn restore(&mut self, at: usize) {
        let at = self.up(at);
        self.down(at);
    }

    fn up(&mut self, mut at: usize) -> usize {
        let node = self.nodes[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if !node.before(&self.nodes[parent]) {
                break;
            }
            self.place(at, self.nodes[parent]);
            at = parent;
        }
        self.place(at, node);
        at
    }

    fn down(&mut self, mut at: usize) {
        let node = self.nodes[at];
        loop {
            let first = at * ARITY + 1;
            let end = (first + ARITY).min(self.nodes.len());
            let Some(least) =
                (first..end).reduce(|a, b| if self.nodes[b].before(&self.nodes[a]) { b } else { a })
            else {
                break;
            };
            if !self.nodes[least].before(&node) {
                break;
            }
            self.place(at, self.nodes[least]);
            at = least;
        }
        self.place(at, node);
    }

    fn place(&mut self, at: usize, node: Node) {
        self.nodes[at] = node;
        self.positions[node.slot as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::few::few_under_miri;

    fn at(n: u64) -> Time {
        Time::from_nanos(n)
    }

    fn pop(heap: &mut Heap) -> Option<(u64, u32)> {
        let (deadline, slot) = heap.first()?;
        assert!(heap.remove(slot));
        Some((deadline.as_nanos(), slot))
    }

    #[test]
    fn equal_deadlines_come_out_in_the_order_they_were_armed() {
        let mut heap = Heap::new();
        for slot in [5, 3, 9, 1] {
            heap.set(slot, at(10));
        }
        heap.set(5, at(10));
        let order: Vec<u32> = std::iter::from_fn(|| pop(&mut heap)).map(|(_, slot)| slot).collect();
        assert_eq!(order, [3, 9, 1, 5]);
    }

    #[test]
    fn order_survives_the_wrap_of_the_arming_counter() {
        let mut heap = Heap { next_seq: u32::MAX - 1, ..Heap::new() };
        for slot in 0..4 {
            heap.set(slot, at(1));
        }
        let order: Vec<u32> = std::iter::from_fn(|| pop(&mut heap)).map(|(_, slot)| slot).collect();
        assert_eq!(order, [0, 1, 2, 3]);
    }

    #[test]
    fn random_arming_moving_and_removing_agrees_with_a_sorted_list() {
        let mut state = 42_u64;
        let mut next = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        let mut heap = Heap::new();
        let mut model: Vec<(u64, u32)> = Vec::new();
        for _ in 0..few_under_miri(20_000, 500) {
            let slot = next(few_under_miri(200, 20)) as u32;
            model.retain(|entry| entry.1 != slot);
            if next(3) == 0 {
                heap.remove(slot);
            } else {
                let deadline = next(500);
                heap.set(slot, at(deadline));
                model.push((deadline, slot));
            }
            assert_eq!(heap.len(), model.len());
            let least = model.iter().map(|entry| entry.0).min();
            assert_eq!(heap.first().map(|(deadline, _)| deadline.as_nanos()), least);
        }
        // The model's order of insertion is the order of arming, so a stable sort gives the exact sequence.
        model.sort_by_key(|entry| entry.0);
        let rest: Vec<(u64, u32)> = std::iter::from_fn(|| pop(&mut heap)).collect();
        assert_eq!(rest, model);
    }
}
