//! The activations that wait for their callback: a queue a priority, first in first out.

use std::collections::VecDeque;

use crate::slots::Key;

/// One queued activation. It counts only while the slot still carries the same `seq`, which is how an activation is
/// taken back without a search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activation {
    pub(crate) key: Key,
    pub(crate) seq: u32,
}

/// Queue 0 is the most urgent.
#[derive(Debug)]
pub(crate) struct Queues {
    queues: Vec<VecDeque<Activation>>,
    /// Activations in all queues together, those that were taken back included.
    len: usize,
    next_seq: u32,
}

impl Queues {
    pub(crate) fn new() -> Queues {
        Queues { queues: vec![VecDeque::new()], len: 0, next_seq: 1 }
    }

    /// Activations in all queues together, those that were taken back included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn priorities(&self) -> usize {
        self.queues.len()
    }

    /// Sets the number of queues; the caller has made sure that nothing is queued.
    pub(crate) fn set_priorities(&mut self, count: u8) {
        self.queues = vec![VecDeque::new(); usize::from(count.max(1))];
        self.len = 0;
    }

    /// Queues an activation at the end of its priority and returns its `seq`, which is never 0.
    pub(crate) fn push(&mut self, key: Key, priority: u8) -> u32 {
        let seq = self.next_seq;
        self.next_seq = self.next_seq.checked_add(1).unwrap_or(1);
        let queue = usize::from(priority).min(self.queues.len() - 1);
        self.queues[queue].push_back(Activation { key, seq });
        self.len += 1;
        seq
    }

    pub(crate) fn pop(&mut self, priority: usize) -> Option<Activation> {
        let activation = self.queues[priority].pop_front()?;
        self.len -= 1;
        Some(activation)
    }

    /// Whether nothing is queued, taken-back activations included.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The most urgent queue that holds anything, taken-back activations included.
    pub(crate) fn most_urgent(&self) -> Option<usize> {
        match self.len {
            0 => None,
            _ => self.queues.iter().position(|queue| !queue.is_empty()),
        }
    }

    /// All activations, those that were taken back included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Activation> {
        self.queues.iter().flatten()
    }

    pub(crate) fn clear(&mut self) {
        for queue in &mut self.queues {
            queue.clear();
        }
        self.len = 0;
    }
}
