//! What buffers cost, counted by the allocator: moves copy nothing, and memory held stays near the bytes in it.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use allocation_counter::measure;
use event_core::{Buffer, Bytes, FileSegment};
use tests::random::Random;
use tests::streams::nameless_file;

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// Where the pieces of a buffer lie.
fn places(buffer: &Buffer) -> Vec<(*const u8, usize)> {
    buffer.chunks().map(|piece| (piece.as_ptr(), piece.len())).collect()
}

/// Moves everything from buffer to buffer in every way there is and says where it lies then.
fn move_around(mut from: Buffer) -> Buffer {
    let len = from.len();
    let mut to = Buffer::new();
    to.add_buffer(&mut from);
    from.prepend_buffer(&mut to);
    assert_eq!(from.remove_buffer(&mut to, len / 2), len / 2);
    from.prepend_buffer(&mut to);
    let mut head = from.split_to(len / 4 * 3);
    head.add_buffer(&mut from);
    let shared = head.share();
    drop(head);
    let again = { shared }.take_all();
    assert_eq!(again.len(), len);
    again
}

#[test]
fn moving_a_gib_by_reference_copies_nothing() {
    let page = Bytes::from(vec![b'p'; MIB]);
    let mut buffer = Buffer::new();
    (0..GIB / MIB).for_each(|_| buffer.add_reference(page.clone()));
    let before = places(&buffer);
    let mut after = Buffer::new();
    let info = measure(|| after = move_around(std::mem::take(&mut buffer)));
    assert_eq!((after.len(), places(&after) == before), (GIB, true));
    // Descriptors only: of a thousand pieces, some tens of kilobytes.
    assert!(info.bytes_total < 2 * MIB as u64 / 4, "{info:?}");
}

#[test]
fn moving_a_gib_of_the_buffers_own_memory_copies_nothing() {
    // Zeroed memory that nobody touches takes no room in the machine.
    let mut buffer = Buffer::new();
    (0..16).for_each(|_| buffer.add_buffer(&mut Buffer::from(vec![0; GIB / 16])));
    let before = places(&buffer);
    assert_eq!(before.len(), 16);
    let mut after = Buffer::new();
    let info = measure(|| after = move_around(std::mem::take(&mut buffer)));
    assert_eq!((after.len(), places(&after) == before), (GIB, true));
    assert!(info.bytes_total < 64 * 1024, "{info:?}");
}

#[test]
fn moving_a_gib_of_a_file_reads_nothing() {
    let file = nameless_file(b"");
    file.set_len(GIB as u64).unwrap();
    let segment = FileSegment::new(file, 0, None).unwrap();
    let mut after = Buffer::new();
    let info = measure(|| after = move_around(Buffer::from(segment.clone())));
    assert_eq!((after.len(), after.held()), (GIB, 0));
    assert!(info.bytes_total < 64 * 1024, "{info:?}");
}

#[test]
fn copying_out_of_a_file_takes_no_memory_for_it() {
    let file = nameless_file(&[7; 100_000]);
    let mut buffer = Buffer::from(FileSegment::new(file, 0, None).unwrap());
    let mut out = vec![0; 100_000];
    let info = measure(|| assert_eq!(buffer.remove(&mut out), 100_000));
    assert_eq!((info.bytes_total, out.iter().all(|byte| *byte == 7)), (0, true));
}

/// One random change of memory in a or b; what both hold was allocated in here.
fn change(random: &Random, a: &mut Buffer, b: &mut Buffer) {
    let n = match random.below(4) {
        0 => random.below(40),
        1 => random.below(2_000),
        2 => random.below(20_000),
        _ => random.below(60_000),
    };
    match random.below(11) {
        0..=2 => a.add(&vec![1; n]),
        3 => a.prepend(&vec![2; n]),
        4 => a.add_buffer(b),
        5 => a.prepend_buffer(b),
        6 => _ = a.remove_buffer(b, n),
        7 | 8 => _ = a.drain(n),
        9 => _ = a.pullup(n),
        _ => _ = a.add_with(n, |room| room.len() / 3 * 2).unwrap(),
    }
}

/// Bytes held to bytes used is at most 4, apart from a block at either end.
#[test]
fn the_memory_behind_buffers_is_at_most_four_times_their_bytes() {
    for seed in 0..30 {
        let random = Random::new(seed);
        let (mut a, mut b) = (Buffer::new(), Buffer::new());
        let mut live = 0;
        for step in 0..300 {
            let info = measure(|| change(&random, &mut a, &mut b));
            live += info.bytes_current;
            let (used, held) = ((a.len() + b.len()) as i64, (a.held() + b.held()) as i64);
            // Boxes with the lists of chunks come on top of what `held` counts.
            let lists = 16 * 1024;
            assert!(live <= held + lists, "seed {seed}, step {step}: {live} live, {held} said to be held");
            let ends = 4 * (64 * 1024 + 512);
            assert!(live <= 4 * used + ends + lists, "seed {seed}, step {step}: {live} for {used}");
        }
        let info = measure(|| drop((std::mem::take(&mut a), std::mem::take(&mut b))));
        assert_eq!(live + info.bytes_current, 0, "seed {seed}");
    }
}

/// Many buffers with little in each: no block at an end is left out of the count, as after a stream's step.
#[test]
fn many_buffers_with_a_few_bytes_hold_few() {
    let mut all = Vec::with_capacity(1_000);
    let info = measure(|| {
        for n in 0..1_000_usize {
            let mut input = Buffer::from(vec![b'i'; 40_000]);
            let mut kept = input.split_to(n % 9_000 + 200);
            kept.add(b"!");
            all.push(kept);
        }
    });
    let used: usize = all.iter().map(Buffer::len).sum();
    // One small block of 512 bytes a buffer is what "a few bytes" cost.
    assert!(info.bytes_current as usize <= 4 * used + 1_000 * 1_024, "{} for {used}", info.bytes_current);
}
