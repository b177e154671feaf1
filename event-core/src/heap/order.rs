//! Sorting the timers that are due together: by their distance in time where that tells them apart, by comparison where
//! it does not.

use super::Entry;

/// Fewer are sorted by comparison alone.
const FEW: usize = 64;

/// Entries that share the digits are sorted among themselves, by insertion if there are no more than that.
const FEW_ALIKE: usize = 16;

/// Sorts entries that were all armed after `oldest`. `spare` is memory to work in.
///
/// The deadlines' distances from the first, cut to two digits, are sorted digit by digit, which keeps the order of what
/// is equal; then what has the same digits is sorted by all that counts. That costs some 60 instructions an entry where
/// comparing costs 300 for 100,000 entries. Deadlines of which many lie close together and few far off share their
/// digits, and are compared as if there had been none.
pub(super) fn sort(entries: &mut [Entry], oldest: u32, spare: &mut Vec<Entry>) {
    if entries.len() <= FEW {
        entries.sort_unstable_by_key(|entry| entry.rank(oldest));
    } else if entries.len() <= 4096 {
        by_digits::<8, 256>(entries, oldest, spare);
    } else {
        by_digits::<11, 2048>(entries, oldest, spare);
    }
}

/// `VALUES` is how many values a digit of `BITS` has.
fn by_digits<const BITS: u32, const VALUES: usize>(
    entries: &mut [Entry],
    oldest: u32,
    spare: &mut Vec<Entry>,
) {
    let deadlines = entries.iter().map(|entry| entry.deadline.as_nanos());
    let (least, most) = deadlines.fold((u64::MAX, 0), |(least, most), at| (least.min(at), most.max(at)));
    let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(2 * BITS);
    let digits = |entry: &Entry| ((entry.deadline.as_nanos() - least) >> shift) as usize;
    let (low, high) = (|digits: usize| digits % VALUES, |digits: usize| (digits >> BITS) % VALUES);
    let (mut lows, mut highs) = ([0_u32; VALUES], [0_u32; VALUES]);
    for entry in &*entries {
        lows[low(digits(entry))] += 1;
        highs[high(digits(entry))] += 1;
    }
    to_places(&mut lows);
    to_places(&mut highs);
    spare.clear();
    spare.extend_from_slice(entries);
    for entry in &*entries {
        spare[take_place(&mut lows[low(digits(entry))])] = *entry;
    }
    for entry in &*spare {
        entries[take_place(&mut highs[high(digits(entry))])] = *entry;
    }
    let mut rest = entries;
    while let Some(first) = rest.first() {
        let of_first = digits(first);
        let alike = rest.iter().take_while(|entry| digits(entry) == of_first).count();
        let (run, after) = rest.split_at_mut(alike);
        match alike {
            1 => {}
            ..=FEW_ALIKE => insert(run, oldest),
            _ => run.sort_unstable_by_key(|entry| entry.rank(oldest)),
        }
        rest = after;
    }
}

/// Makes of the number of entries with each value the place of the first of them.
fn to_places(counts: &mut [u32]) {
    let mut place = 0;
    for count in counts {
        place += std::mem::replace(count, place);
    }
}

#[inline]
fn take_place(next: &mut u32) -> usize {
    let place = *next as usize;
    *next += 1;
    place
}

fn insert(run: &mut [Entry], oldest: u32) {
    for end in 1..run.len() {
        let entry = run[end];
        let mut at = end;
        while at > 0 && entry.rank(oldest) < run[at - 1].rank(oldest) {
            run[at] = run[at - 1];
            at -= 1;
        }
        run[at] = entry;
    }
}
