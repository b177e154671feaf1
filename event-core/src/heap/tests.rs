//! The heap and its tiers against a list.

use super::*;
use crate::few::few_under_miri;

fn at(n: u64) -> Time {
    Time::from_nanos(n)
}

fn pop(heap: &mut Heap) -> Option<(u64, u32)> {
    let (deadline, slot) = heap.first()?;
    assert!(heap.remove(slot).was_armed);
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

/// The same from run to run.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |bound| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % bound
    }
}

impl Heap {
    /// Every timer stands where its cell says, and on the right side of every bound.
    fn check(&self) {
        let mut count = self.near.len();
        for (index, entry) in self.near.iter().enumerate() {
            let cell = self.cells[entry.slot as usize];
            assert_eq!((cell.room, cell.index as usize), (IN_HEAP, index));
            assert_eq!(*entry, cell.entry(entry.slot));
            assert!(index == 0 || !entry.before(&self.near[(index - 1) / ARITY]));
            assert!(self.tiers.iter().all(|tier| entry.deadline < tier.bound));
        }
        for (room, tier) in self.tiers.iter().enumerate() {
            count += tier.slots.len();
            for (index, &slot) in tier.slots.iter().enumerate() {
                let cell = self.cells[slot as usize];
                assert_eq!((cell.room as usize, cell.index as usize), (room, index));
                assert!(tier.bound <= cell.deadline);
                assert!(self.tiers[..room].iter().all(|farther| cell.deadline < farther.bound));
            }
        }
        assert_eq!(self.len(), count);
        assert_eq!(self.cells.iter().filter(|cell| cell.is_in_a_room()).count(), count);
        assert!(self.tiers.len() <= MAX_TIERS);
    }
}

/// Does at random what a loop does, with time going on, and compares it with a list.
fn agree_with_a_list(seed: u64, slots: u64, reach: impl Fn(&mut dyn FnMut(u64) -> u64) -> u64) {
    let mut next = numbers(seed);
    let mut heap = Heap::new();
    // In the order of arming.
    let mut model: Vec<(u64, u32)> = Vec::new();
    let mut now = 0;
    for step in 0..few_under_miri(6_000_u64, 300) {
        let slot = next(slots) as u32;
        let armed = model.iter().any(|entry| entry.1 == slot);
        assert_eq!((heap.is_armed(slot), heap.deadline(slot).is_some()), (armed, armed));
        match next(16) {
            0 => {
                let most = reach(&mut next);
                now += next(most + 1);
                let mut due = Vec::new();
                heap.take_due(at(now), &mut due);
                heap.sort(&mut due);
                let mut expected: Vec<_> = model.iter().copied().filter(|entry| entry.0 <= now).collect();
                expected.sort_by_key(|entry| entry.0);
                assert!(due.iter().all(|entry| heap.is_armed(entry.slot) && heap.fire(entry.slot)));
                let due: Vec<_> = due.iter().map(|entry| (entry.deadline.as_nanos(), entry.slot)).collect();
                assert_eq!(due, expected);
                model.retain(|entry| entry.0 > now);
            }
            1..=3 => {
                assert_eq!(heap.remove(slot).was_armed, armed);
                model.retain(|entry| entry.1 != slot);
            }
            _ => {
                let deadline = now + reach(&mut next);
                heap.set(slot, at(deadline));
                model.retain(|entry| entry.1 != slot);
                model.push((deadline, slot));
            }
        }
        if step % 5 == 0 {
            let least = model.iter().map(|entry| entry.0).min();
            assert_eq!(heap.first().map(|(deadline, _)| deadline.as_nanos()), least);
        }
        if step % 50 == 0 {
            heap.check();
        }
    }
    // The model's order of insertion is the order of arming, so a stable sort gives the exact sequence.
    model.sort_by_key(|entry| entry.0);
    let rest: Vec<(u64, u32)> = std::iter::from_fn(|| pop(&mut heap)).collect();
    assert_eq!(rest, model);
    heap.check();
}

#[test]
fn random_arming_moving_removing_and_firing_agrees_with_a_sorted_list() {
    for seed in 0..few_under_miri(3, 1) {
        agree_with_a_list(seed, few_under_miri(1_500, 120), |next| next(500));
        agree_with_a_list(seed, few_under_miri(1_500, 120), |next| next(3_000_000_000));
    }
    agree_with_a_list(7, 30, |next| next(40));
}

#[test]
fn near_and_far_timers_one_duration_and_one_deadline_agree_with_a_sorted_list() {
    agree_with_a_list(1, few_under_miri(1_000, 60), |next| 1 << next(62));
    agree_with_a_list(2, few_under_miri(1_000, 60), |_| 1_000);
    agree_with_a_list(3, few_under_miri(1_000, 60), |_| 0);
}

#[test]
fn timers_that_come_nearer_and_nearer_make_few_tiers() {
    let mut heap = Heap::new();
    let count = few_under_miri(100_000, 2_000);
    for slot in 0..count {
        heap.set(slot, at(u64::from(1_000_000 - slot)));
        // What is far goes again, so that no tier is large for long.
        if slot >= 200 {
            assert!(heap.remove(slot - 200).was_armed);
        }
    }
    heap.check();
    assert_eq!(heap.first(), Some((at(u64::from(1_000_001 - count)), count - 1)));
    heap.set(5, Time::NEVER);
    assert_eq!(std::iter::from_fn(|| pop(&mut heap)).last(), Some((u64::MAX, 5)));
}

#[test]
fn a_thousand_of_one_deadline_fire_at_once_and_in_order() {
    let mut heap = Heap::new();
    let count = few_under_miri(1_000, 100);
    for slot in (0..count).rev() {
        heap.set(slot, at(7));
        heap.first();
    }
    let mut due = Vec::new();
    heap.take_due(at(6), &mut due);
    assert_eq!(due, []);
    heap.take_due(at(7), &mut due);
    heap.sort(&mut due);
    assert!(due.iter().map(|entry| entry.slot).eq((0..count).rev()));
    assert_eq!((heap.len(), heap.first()), (0, None));
}

#[test]
fn sorting_by_digits_agrees_with_sorting_by_comparison() {
    let mut next = numbers(11);
    let mut spare = Vec::new();
    for count in [1, 64, 65, 300, few_under_miri(4_096, 100), few_under_miri(20_000, 200)] {
        // All alike, a few that are far off, a few values, and spread evenly.
        for spread in [1, 2, 5, 1 << 20, 1 << 40] {
            let far = next(4) == 0;
            let mut entry = |slot: u32| {
                let deadline = if far && next(50) == 0 { u64::MAX - next(3) } else { 7 + next(spread) };
                // Across the wrap of the arming counter, and in no order.
                Entry::new(at(deadline), (slot.wrapping_mul(7_919) % 40_009).wrapping_sub(3), slot)
            };
            let mut entries: Vec<_> = (0..count).map(&mut entry).collect();
            let oldest = 0_u32.wrapping_sub(1 << 31);
            let mut sorted = entries.clone();
            sorted.sort_by_key(|entry| entry.rank(oldest));
            order::sort(&mut entries, oldest, &mut spare);
            assert_eq!(entries, sorted, "{count} over {spread}");
        }
    }
}
