//! Random stacks of filters with random marks, limits and moods: whatever they are, the bytes and the end arrive.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use event_core::{
    Buffer, BufferEvent, Direction, EventBase, Filter, Filtered, FlushMode, LoopEnd, RateLimit,
    RateLimitGroup,
};
use tests::{Bed, each_seed, few_under_miri};

const MS: Duration = Duration::from_millis(1);

/// Numbers that are random enough (the constants are Knuth's).
#[derive(Clone)]
struct Dice(Rc<Cell<u64>>);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(Rc::new(Cell::new(seed)))
    }

    /// Below `n`.
    fn roll(&self, n: usize) -> usize {
        let next =
            self.0.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0.set(next);
        (next >> 33) as usize % n.max(1)
    }
}

/// A filter that keeps bytes back, gives them in odd pieces and says odd things, but loses nothing.
struct Moody {
    dice: Dice,
    /// What it holds back, of each direction.
    held: [Buffer; 2],
    /// Packs each piece with its length in front, or takes it apart.
    packs: bool,
}

impl Moody {
    fn pass(
        &mut self,
        way: usize,
        from: &mut Buffer,
        to: &mut Buffer,
        room: usize,
        mode: FlushMode,
    ) -> Filtered {
        let held = &mut self.held[way];
        if mode == FlushMode::Normal && self.dice.roll(6) == 0 {
            return Filtered::NeedMore;
        }
        // More than fits, now and then.
        let room = if self.dice.roll(20) == 0 { room + 100 } else { room };
        let taken = if mode == FlushMode::Normal { self.dice.roll(from.len() + 1) } else { from.len() };
        from.remove_buffer(held, taken);
        let given = if mode == FlushMode::Normal { self.dice.roll(held.len() + 1) } else { held.len() };
        held.remove_buffer(to, given.min(room));
        if mode == FlushMode::Normal && self.dice.roll(3) == 0 { Filtered::NeedMore } else { Filtered::Done }
    }

    fn pack(from: &mut Buffer, to: &mut Buffer) {
        while !from.is_empty() {
            let n = from.len().min(250);
            to.add(&[n as u8]);
            from.remove_buffer(to, n);
        }
    }

    fn unpack(from: &mut Buffer, to: &mut Buffer) -> Filtered {
        let mut done = Filtered::NeedMore;
        while !from.is_empty() {
            let mut first = [0];
            from.copyout(&mut first);
            let n = usize::from(first[0]);
            if from.len() <= n {
                return Filtered::NeedMore;
            }
            from.drain(1);
            from.remove_buffer(to, n);
            done = Filtered::Done;
        }
        done
    }
}

impl Filter for Moody {
    fn input(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        room: usize,
        mode: FlushMode,
    ) -> io::Result<Filtered> {
        if self.packs { Ok(Moody::unpack(from, to)) } else { Ok(self.pass(0, from, to, room, mode)) }
    }

    fn output(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        room: usize,
        mode: FlushMode,
    ) -> io::Result<Filtered> {
        if self.packs {
            Moody::pack(from, to);
            return Ok(Filtered::Done);
        }
        Ok(self.pass(1, from, to, room, mode))
    }
}

/// Both ends get the same kinds of filters, in moods, marks and limits of their own.
fn stack(dice: &Dice, kinds: &[bool], bottom: BufferEvent, group: &RateLimitGroup) -> BufferEvent {
    let mut bev = bottom;
    for packs in kinds {
        moods(dice, &bev, group);
        bev =
            BufferEvent::filter(&bev, Moody { dice: dice.clone(), held: Default::default(), packs: *packs })
                .unwrap();
    }
    moods(dice, &bev, group);
    bev
}

fn moods(dice: &Dice, bev: &BufferEvent, group: &RateLimitGroup) {
    if dice.roll(3) == 0 {
        // A packed piece is to fit.
        bev.set_watermark(Direction::READ, 0, Some(300 + dice.roll(3000)));
    }
    if dice.roll(3) == 0 {
        bev.set_watermark(Direction::WRITE, dice.roll(200), Some(300 + dice.roll(3000)));
    }
    if dice.roll(4) == 0 {
        let rate = 500 + dice.roll(5000);
        bev.set_rate_limit(Some(RateLimit::new().read(rate, rate * 2).write(rate, rate).tick(10 * MS)))
            .unwrap();
    }
    if dice.roll(4) == 0 {
        bev.add_to_rate_limit_group(group).unwrap();
    }
    if dice.roll(4) == 0 {
        bev.set_max_single_read(Some(1 + dice.roll(1000))).unwrap();
        bev.set_max_single_write(Some(1 + dice.roll(1000))).unwrap();
    }
}

fn ends(bed: &Bed, base: &EventBase, dice: &Dice) -> (BufferEvent, BufferEvent) {
    if dice.roll(2) == 0 {
        return BufferEvent::pair(base).unwrap();
    }
    // Over two sockets, joined by a pair of proxied peers.
    let (one, first) = bed.stream(base);
    let (other, second) = bed.stream(base);
    let pump = base.handle();
    pass_on(&pump, first, second);
    (one, other)
}

/// Passes what comes out of either peer on to the other, every millisecond.
fn pass_on(handle: &event_core::LoopHandle, first: tests::Peer, second: tests::Peer) {
    let mut waiting = [Vec::new(), Vec::new()];
    let mut ended = [false, false];
    let again = handle.clone();
    handle
        .once(-1, event_core::What::empty(), Some(MS), move |_| {
            step(&again, first, second, &mut waiting, &mut ended);
        })
        .unwrap();

    fn step(
        handle: &event_core::LoopHandle,
        first: tests::Peer,
        second: tests::Peer,
        waiting: &mut [Vec<u8>; 2],
        ended: &mut [bool; 2],
    ) {
        let peers = [&first, &second];
        for way in 0..2 {
            if waiting[way].is_empty() && !ended[way] {
                let (bytes, end) = peers[way].read();
                waiting[way] = bytes;
                ended[way] = end;
            }
            let to = peers[1 - way];
            let n = to.write(&waiting[way]);
            waiting[way].drain(..n);
            if ended[way] && waiting[way].is_empty() {
                to.shutdown_write();
            }
        }
        if ended[0] && ended[1] && waiting.iter().all(Vec::is_empty) {
            return;
        }
        let (mut waiting, mut ended, again) = (std::mem::take(waiting), *ended, handle.clone());
        handle
            .once(-1, event_core::What::empty(), Some(MS), move |_| {
                step(&again, first, second, &mut waiting, &mut ended);
            })
            .unwrap();
    }
}

/// How every layer of a stack stands.
fn layers(top: &BufferEvent) -> String {
    let mut text = String::new();
    let mut next = Some(top.clone());
    while let Some(bev) = next {
        text += &format!("\n{bev:?}: {} in, {} out, marks", bev.pending_input(), bev.output().len());
        text += &format!(" {:?} {:?}", bev.watermark(Direction::READ), bev.watermark(Direction::WRITE));
        next = bev.underlying();
    }
    text
}

#[test]
fn whatever_the_layers_are_the_bytes_and_the_end_arrive() {
    each_seed(|bed| {
        for round in 0..few_under_miri(60, 2) {
            let dice = Dice::new(bed.seed() * 1000 + round);
            let mut base = bed.base();
            let rate = 3000 + dice.roll(20_000);
            let group =
                RateLimitGroup::new(&base, RateLimit::new().read(rate, rate).write(rate, rate).tick(5 * MS))
                    .unwrap();
            let (one, other) = ends(bed, &base, &dice);
            let kinds: Vec<bool> = (0..1 + dice.roll(4)).map(|_| dice.roll(2) == 0).collect();
            let one = stack(&dice, &kinds, one, &group);
            let other = stack(&dice, &kinds, other, &group);
            let all: Vec<u8> = (0..5000 + dice.roll(30_000)).map(|n| (n * 7 % 253) as u8).collect();
            let got = Rc::new(RefCell::new(Vec::new()));
            let (sink, moods) = (got.clone(), dice.clone());
            other.set_read_cb(move |bev| {
                let n = (1 + moods.roll(bev.pending_input())).min(bev.pending_input());
                let mut some = vec![0; n];
                bev.read(&mut some);
                sink.borrow_mut().extend(some);
                if bev.pending_input() > 0 {
                    bev.trigger(Direction::READ).unwrap();
                }
            });
            let has_ended = Rc::new(Cell::new(false));
            let (sink, told) = (got.clone(), has_ended.clone());
            other.set_event_cb(move |bev, event| {
                assert!(bev.error().is_none(), "{event:?}: {:?}", bev.error());
                sink.borrow_mut().extend(bev.read_buffer().to_vec());
                told.set(true);
                bev.close_after_flush();
            });
            other.enable(Direction::READ).unwrap();
            let left = RefCell::new(all.clone());
            let (moods, closes) = (dice.clone(), dice.roll(2) == 0);
            let fill = move |bev: &BufferEvent| {
                let n = moods.roll(left.borrow().len() + 1).max(1).min(left.borrow().len());
                let piece: Vec<u8> = left.borrow_mut().drain(..n).collect();
                bev.write(piece).unwrap();
                if !left.borrow().is_empty() {
                    // A moody filter may sit on this one until it is asked.
                    bev.flush(Direction::WRITE, FlushMode::Flush).unwrap();
                } else if closes {
                    bev.close_after_flush();
                } else {
                    bev.shutdown_write();
                }
            };
            fill(&one);
            one.set_write_cb(move |bev| fill(bev));
            one.set_event_cb(|bev, _| bev.free());
            if !closes {
                one.enable(Direction::READ).unwrap();
            }
            let handle = base.handle();
            base.once(-1, event_core::What::empty(), Some(3600 * 1000 * MS), move |_| {
                handle.loopbreak().unwrap()
            })
            .unwrap();
            let end = base.dispatch().unwrap();
            let missing = all.len() - got.borrow().len();
            assert!(
                has_ended.get(),
                "round {round}: {end:?}, {missing} are missing{}{}",
                layers(&one),
                layers(&other)
            );
            assert!(*got.borrow() == all, "round {round}: {missing} are missing or others came");
            assert!(
                one.is_freed() && other.is_freed(),
                "round {round}: {end:?} {kinds:?} {one:?} {other:?} {:?} {:?}",
                one.underlying(),
                other.underlying()
            );
            assert_eq!((end, group.members()), (LoopEnd::Break, 0), "round {round}");
        }
    });
}
