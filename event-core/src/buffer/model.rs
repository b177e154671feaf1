//! Long random sequences of calls on two buffers, each checked against a plain vector.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use bytes::Bytes;

use super::chunk::{Chunk, MAX_CHUNK, MAX_COPY, MIN_CHUNK};
use super::{Buffer, Eol, FileSegment, Pool, READ_BLOCK};
use crate::few::few_under_miri;

/// A buffer is kept below this length, so that a whole comparison after every call stays cheap.
const LONG: usize = few_under_miri(300_000, 5_000);

/// What `reserve` is asked for at most; it is allowed for in the bound of what is held.
const RESERVED: usize = 5_000;

/// The splitmix64 generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// A length: mostly small, sometimes nothing, now and then more than a block.
    fn len(&mut self) -> usize {
        match self.below(20) {
            0 => 0,
            1..=9 => self.below(20),
            10..=14 => self.below(600),
            15..=17 => self.below(few_under_miri(5_000, 800)),
            18 => self.below(few_under_miri(30_000, 1_500)),
            _ => self.below(few_under_miri(150_000, 4_000)),
        }
    }

    /// Text of few letters, so that searches find something, and of line ends.
    fn text(&mut self, len: usize) -> Vec<u8> {
        let (mut bits, mut text) = (0, Vec::with_capacity(len));
        for n in 0..len {
            if n % 8 == 0 {
                bits = self.next();
            }
            text.push(b"aaabbbaaabbbab\r\n\0aaabbbaaabbbaab"[(bits & 31) as usize]);
            bits >>= 5;
        }
        text
    }
}

/// A buffer and what it should hold.
#[derive(Default)]
struct Pair {
    real: Buffer,
    want: Vec<u8>,
}

impl Pair {
    fn check(&self) {
        assert_eq!(self.real.len(), self.want.len());
        assert!(self.real == self.want, "the bytes differ");
        let count = self.real.list.count();
        let mut sum = 0;
        for (n, chunk) in self.real.list.iter().enumerate() {
            sum += chunk.len();
            assert!(n + 1 == count || !chunk.is_empty(), "chunk {n} of {count} is empty");
            let is_end = n == 0 || n + 1 == count;
            assert!(
                is_end || chunk.block() <= MIN_CHUNK || !chunk.is_loose(),
                "chunk {n} of {count} is loose"
            );
        }
        assert_eq!(sum, self.want.len());
        self.check_held(2 * MAX_CHUNK + RESERVED + MIN_CHUNK);
    }

    /// After `settle` no block at an end is excepted.
    fn check_settled(&self) {
        self.check_held(2 * MIN_CHUNK);
    }

    /// Memory held is at most four times the bytes and `slack`. Excepted are blocks that were put in whole
    /// and of which more is left than is ever copied.
    fn check_held(&self, slack: usize) {
        let chunks = || self.real.list.iter();
        let excess = |chunk: &Chunk| chunk.held().saturating_sub(4 * chunk.len());
        let excepted: usize = chunks().filter(|chunk| chunk.len() > MAX_COPY).map(excess).sum();
        assert!(
            self.real.held() <= 4 * self.want.len() + slack + excepted,
            "blocks and what is in them: {:?}",
            chunks().map(|chunk| (chunk.block(), chunk.len())).collect::<Vec<_>>()
        );
    }
}

thread_local! {
    /// What the files of a run hold, and a segment of it.
    static FILE: (Vec<u8>, FileSegment) = {
        let text = Random(7).text(200_000);
        let path = std::env::temp_dir().join(format!("event-core-model-{:?}", std::thread::current().id()));
        std::fs::write(&path, &text).unwrap();
        let segment = FileSegment::new(std::fs::File::open(&path).unwrap(), 0, None).unwrap();
        std::fs::remove_file(&path).unwrap();
        (text, segment)
    };
}

/// Takes at most `0` bytes at a time.
struct Slow(usize, Vec<u8>);

impl Write for Slow {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let n = data.len().min(self.0);
        self.1.extend_from_slice(&data[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One call on `a`, with `b` as the other buffer of a call that takes two.
fn step(random: &mut Random, a: &mut Pair, b: &mut Pair, pool: &Pool) {
    let n = random.len();
    let at = random.below(a.want.len() + 2);
    match random.below(36) {
        0..=3 => {
            let text = random.text(n);
            a.real.add(&text);
            a.want.extend_from_slice(&text);
        }
        4 => {
            let text = random.text(n);
            a.real.prepend(&text);
            a.want.splice(..0, text);
        }
        5 => {
            a.real.add_buffer(&mut b.real);
            a.want.append(&mut b.want);
        }
        6 => {
            a.real.prepend_buffer(&mut b.real);
            a.want.splice(..0, b.want.drain(..));
        }
        7 => {
            a.real.add_buffer_reference(&mut b.real);
            a.want.extend_from_slice(&b.want);
        }
        8 => {
            let text = random.text(n);
            a.want.extend_from_slice(&text);
            a.real.add_reference(Bytes::from(text));
        }
        9 => {
            static PAGE: [u8; 2000] = [b'a'; 2000];
            let page = &PAGE[..n.min(2000)];
            a.real.add_static(page);
            a.want.extend_from_slice(page);
        }
        10 => {
            let mut out = vec![0; n];
            let got = a.real.remove(&mut out);
            assert_eq!(got, n.min(a.want.len()));
            assert_eq!(out[..got], a.want[..got]);
            a.want.drain(..got);
        }
        11 => {
            let got = a.real.remove_buffer(&mut b.real, at);
            assert_eq!(got, at.min(a.want.len()));
            b.want.extend(a.want.drain(..got));
        }
        12 => {
            let head = a.real.split_to(n);
            let head = Pair { real: head, want: a.want.drain(..n.min(a.want.len())).collect() };
            head.check();
        }
        13 => {
            let part = a.real.split_to(at);
            let want = a.want.drain(..at.min(a.want.len())).collect();
            *b = Pair { real: part, want };
        }
        14 | 15 => {
            let n = if n.is_multiple_of(2) { n } else { at };
            assert_eq!(a.real.drain(n), n.min(a.want.len()));
            a.want.drain(..n.min(a.want.len()));
        }
        16 => {
            let before = a.real.to_vec();
            assert_eq!(a.real.pullup(at), before.get(..at));
        }
        17 => assert!(a.real.reserve(random.below(RESERVED)).is_ok()),
        18 => {
            a.real.truncate(at);
            a.want.truncate(at);
        }
        19 => {
            let mut out = vec![0; n];
            let got = a.real.copyout_from(at, &mut out);
            assert_eq!(&out[..got], a.want.iter().skip(at).take(n).copied().collect::<Vec<_>>());
            let peeked: Vec<u8> = a.real.peek_from(at, n).flatten().copied().collect();
            assert_eq!(peeked, out[..got]);
        }
        20 => {
            let len = random.below(12);
            let needle = random.text(len);
            let to = at + n;
            let end = to.min(a.want.len());
            let naive = (at..=end).find(|&p| a.want[p..end].starts_with(&needle));
            assert_eq!(a.real.search_range(&needle, at, to), naive);
        }
        21 => {
            let end = a.want.iter().position(|&byte| byte == b'\n');
            let line = a.real.readln(Eol::Crlf);
            let want = end.map(|end| {
                let mut line: Vec<u8> = a.want.drain(..=end).collect();
                line.pop();
                line.pop_if(|last| *last == b'\r');
                line
            });
            assert_eq!(line, want);
        }
        22 => {
            write!(a.real, "{at} and {}", n);
            a.want.extend_from_slice(format!("{at} and {n}").as_bytes());
        }
        23 | 24 => {
            let text = random.text(n.min(60_000));
            a.real.with_tail(text.len(), pool, |tail| {
                let at = tail.as_ptr();
                tail.extend_from_slice(&text);
                assert_eq!(tail.as_ptr(), at, "the room asked for was not there");
            });
            a.want.extend_from_slice(&text);
            a.real.settle(pool);
            a.check_settled();
        }
        25 => {
            let text = random.text(n.min(4_000));
            let mut block = pool.take_write();
            block.extend_from_slice(&text);
            a.real.push_block(block);
            a.want.extend_from_slice(&text);
        }
        26 => {
            a.real.drain_to_pool(at, pool);
            a.want.drain(..at.min(a.want.len()));
        }
        27 => {
            a.real.settle(pool);
            a.check_settled();
        }
        29 | 30 => FILE.with(|(text, segment)| {
            let start = random.below(text.len());
            let len = n.min(text.len() - start);
            assert!(a.real.add_file_segment(segment, start as u64, Some(len as u64)).is_ok());
            a.want.extend_from_slice(&text[start..start + len]);
        }),
        31 => {
            assert!(a.real.load(at).is_ok());
            assert!(a.real.memory_len() >= at.min(a.want.len()));
        }
        32 => {
            let text = random.text(n);
            let got = a.real.read_from(&text[..], at).unwrap();
            assert_eq!(got, n.min(at).min(READ_BLOCK));
            a.want.extend_from_slice(&text[..got]);
        }
        33 => {
            let mut to = Slow(n, Vec::new());
            let got = a.real.write_to(&mut to, at).unwrap();
            assert!(got <= at.min(n) && (got > 0 || at.min(n).min(a.want.len()) == 0));
            assert_eq!(to.1, a.want[..got]);
            a.want.drain(..got);
        }
        34 => {
            let (text, room) = (random.text(n), n + random.below(RESERVED - 600) * usize::from(n < 600));
            let got = a.real.add_with(room, |room| {
                room[..n].copy_from_slice(&text);
                n
            });
            assert_eq!(got.ok(), Some(n));
            a.want.extend_from_slice(&text);
        }
        28 => {
            let shared = random.below(2) == 0;
            let real = if shared { a.real.share() } else { a.real.clone() };
            *b = Pair { real, want: a.want.clone() };
        }
        _ => match random.below(4) {
            0 => {
                a.real.clear();
                a.want.clear();
                assert_eq!(a.real.held(), 0);
            }
            1 => {
                let all = a.real.take_all();
                assert_eq!((a.real.len(), a.real.held()), (0, 0));
                a.real = all;
            }
            2 => {
                let all = std::mem::take(&mut a.real).into_vec();
                assert!(all == a.want);
                a.real = Buffer::from(all);
            }
            _ => {
                let text = random.text(n.min(50));
                let mut real = Buffer::from(&text[..]);
                std::mem::swap(&mut a.real, &mut real);
                a.want = text;
            }
        },
    }
}

fn run(seed: u64, steps: usize) {
    let mut random = Random(seed);
    let pool = Pool::new();
    let (mut a, mut b) = (Pair::default(), Pair::default());
    for _ in 0..steps {
        step(&mut random, &mut a, &mut b, &pool);
        a.check();
        b.check();
        for pair in [&mut a, &mut b] {
            if pair.want.len() > LONG {
                let n = random.below(pair.want.len());
                pair.real.drain(n);
                pair.want.drain(..n);
                pair.check();
            }
        }
        if random.below(2) == 0 {
            std::mem::swap(&mut a, &mut b);
        }
    }
}

#[test]
fn a_buffer_is_a_byte_string_whatever_is_done_to_it() {
    let seeds =
        std::env::var("BUFFER_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(few_under_miri(200, 1));
    for seed in 0..seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, few_under_miri(400, 60)))) {
            eprintln!("seed {seed} fails");
            resume_unwind(panic);
        }
    }
}

/// The model would not notice a buffer that copies everything: this one counts what moved.
#[test]
fn a_transfer_through_many_buffers_copies_no_large_piece() {
    let pool = Pool::new();
    let mut stages: Vec<Buffer> = (0..5).map(|_| Buffer::new()).collect();
    stages[0].with_tail(MAX_CHUNK, &pool, |tail| tail.resize(MAX_CHUNK, b'x'));
    let at = stages[0].contiguous().as_ptr();
    for n in 1..stages.len() {
        let (from, to) = stages.split_at_mut(n);
        to[0].add_buffer(&mut from[n - 1]);
        assert_eq!(to[0].contiguous().as_ptr(), at);
    }
    assert!(matches!(stages[4].list.front(), Some(Chunk::Own { pooled: false, .. })));
}
