//! Buffers: bytes in, bytes out, lines, searches, and moves between buffers.

// A bench that cannot go on has nothing to show.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use event_core::{Buffer, Eol};

const BLOCK: usize = 64 * 1024;

/// Bytes in, and all of them out again.
fn add_and_drain(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("buffer/add and drain");
    for len in [16, 1024, BLOCK] {
        let (data, mut buffer) = (vec![b'x'; len], Buffer::new());
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(BenchmarkId::from_parameter(len), |bencher| {
            bencher.iter(|| {
                buffer.add(&data);
                buffer.drain(len)
            });
        });
    }
}

/// A thousand small pieces: what a program that writes piece by piece does.
fn add_pieces(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("buffer/add pieces");
    const PIECES: usize = 1_000;
    group.throughput(Throughput::Elements(PIECES as u64));
    group.bench_function("16 B", |bencher| {
        bencher.iter(|| {
            let mut buffer = Buffer::new();
            for _ in 0..PIECES {
                buffer.add(b"0123456789abcdef");
            }
            buffer
        });
    });
}

fn lines(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("buffer/readln");
    const LINES: usize = 1_000;
    let text = b"a line of some forty bytes, and its end\r\n".repeat(LINES);
    group.throughput(Throughput::Elements(LINES as u64));
    group.bench_function("40 B", |bencher| {
        bencher.iter(|| {
            let mut buffer = Buffer::from(&text[..]);
            let mut lines = 0;
            while let Some(line) = buffer.readln(Eol::Crlf) {
                black_box(line);
                lines += 1;
            }
            assert_eq!(lines, LINES);
        });
    });
}

/// A needle at the very end, with bytes before it that begin like it.
fn search(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("buffer/search");
    let mut text = b"name: value\r\n".repeat(BLOCK / 13);
    text.extend_from_slice(b"\r\n");
    let buffer = Buffer::from(&text[..]);
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("end of head in 64 KiB", |bencher| {
        bencher.iter(|| assert_eq!(buffer.search(b"\r\n\r\n", 0), Some(text.len() - 4)));
    });
}

/// From one buffer to another and back.
fn moves(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("buffer/move");
    for len in [16, 1024, BLOCK] {
        let (mut one, mut other) = (Buffer::from(vec![b'x'; len]), Buffer::new());
        group.bench_function(BenchmarkId::new("whole", len), |bencher| {
            bencher.iter(|| {
                other.add_buffer(&mut one);
                one.add_buffer(&mut other);
            });
        });
        group.bench_function(BenchmarkId::new("half", len), |bencher| {
            bencher.iter(|| {
                one.remove_buffer(&mut other, len / 2);
                one.add_buffer(&mut other);
            });
        });
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    add_and_drain(&mut criterion);
    add_pieces(&mut criterion);
    lines(&mut criterion);
    search(&mut criterion);
    moves(&mut criterion);
    criterion.final_summary();
}
