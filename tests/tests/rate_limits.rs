//! Rate limits, of one stream and of a group: how much passes, who gets it, and that nothing spins meanwhile.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_core::testing::{Call, Sim};
use event_core::{
    Buffer, BufferEvent, Direction, Error, EventBase, Filter, Filtered, FlushMode, LoopEnd, RateLimit,
    RateLimitGroup, Watcher,
};
use tests::streams::{Canary, Echo, Recorder, Seen};
use tests::{Bed, Peer, each_backend, each_seed};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Streams that all read what their peers never stop sending, and write to peers that read it all.
struct Crowd {
    streams: Vec<BufferEvent>,
    peers: Vec<Peer>,
    read: Vec<Rc<Cell<usize>>>,
    written: Vec<Cell<usize>>,
}

impl Crowd {
    fn new(bed: &Bed, base: &EventBase, size: usize) -> Crowd {
        let mut crowd = Crowd { streams: vec![], peers: vec![], read: vec![], written: vec![] };
        for _ in 0..size {
            let (bev, peer) = bed.stream(base);
            let count = Rc::new(Cell::new(0));
            crowd.read.push(count.clone());
            crowd.written.push(Cell::new(0));
            bev.set_read_cb(move |bev| count.set(count.get() + bev.read_buffer().len()));
            bev.enable(Direction::READ).unwrap();
            crowd.streams.push(bev);
            crowd.peers.push(peer);
        }
        crowd
    }

    /// Lets the peers send and read, and the streams write more.
    fn feed(&self, writes: bool) {
        for (n, peer) in self.peers.iter().enumerate() {
            while peer.write(&[1; 4096]) > 0 {}
            let bev = &self.streams[n];
            if !bev.is_freed() && writes && bev.pending_output() < 100_000 {
                bev.write(vec![2; 100_000]).unwrap();
            }
            self.written[n].set(self.written[n].get() + peer.read().0.len());
        }
    }

    fn pass(&self, bed: &Bed, base: &mut EventBase, time: Duration, writes: bool) {
        let step = 20 * MS;
        let mut left = time;
        while !left.is_zero() {
            self.feed(writes);
            bed.pass(base, step.min(left));
            left -= step.min(left);
        }
        self.feed(writes);
    }

    fn counts(&self) -> (Vec<usize>, Vec<usize>) {
        (self.read.iter().map(|n| n.get()).collect(), self.written.iter().map(Cell::get).collect())
    }
}

#[track_caller]
fn assert_near(what: usize, goal: usize, percent: usize) {
    assert!(what.abs_diff(goal) * 100 <= goal * percent, "{what} is not within {percent} % of {goal}");
}

#[track_caller]
fn assert_even(counts: &[usize]) {
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!((most - least) * 10 <= *most, "from {least} to {most}");
}

#[test]
fn a_hundred_streams_hold_their_groups_limit_and_share_it_evenly() {
    each_seed(|bed| {
        let mut base = bed.base();
        let limit = RateLimit::new().read(100_000, 100_000).write(50_000, 50_000).tick(100 * MS);
        let group = RateLimitGroup::new(&base, limit).unwrap();
        let crowd = Crowd::new(bed, &base, 100);
        for bev in &crowd.streams {
            bev.add_to_rate_limit_group(&group).unwrap();
        }
        assert_eq!(group.members(), 100);
        crowd.pass(bed, &mut base, 10 * SECOND - MS, true);
        let (read, written) = crowd.counts();
        for (counts, goal) in [(&read, 10_000_000), (&written, 5_000_000)] {
            assert_near(counts.iter().sum(), goal, 2);
            assert_even(counts);
        }
        let totals = group.totals();
        assert_eq!(totals.0, read.iter().sum::<usize>() as u64);
        assert_near(usize::try_from(totals.1).unwrap(), written.iter().sum(), 2);
        group.reset_totals();
        assert_eq!(group.totals(), (0, 0));
    });
}

#[test]
fn what_the_idle_leave_goes_to_those_that_ask() {
    each_seed(|bed| {
        let mut base = bed.base();
        let group = RateLimitGroup::new(&base, RateLimit::new().read(50_000, 50_000)).unwrap();
        let busy = Crowd::new(bed, &base, 5);
        let idle = Crowd::new(bed, &base, 60);
        for bev in busy.streams.iter().chain(&idle.streams) {
            bev.add_to_rate_limit_group(&group).unwrap();
        }
        busy.pass(bed, &mut base, 10 * SECOND - MS, false);
        let (read, _) = busy.counts();
        assert_near(read.iter().sum(), 500_000, 2);
        assert_even(&read);
        // They wake up, and get as much as the others.
        let everybody = Crowd {
            streams: busy.streams.iter().chain(&idle.streams).cloned().collect(),
            peers: busy.peers.into_iter().chain(idle.peers).collect(),
            read: busy.read.iter().chain(&idle.read).cloned().collect(),
            written: (0..65).map(|_| Cell::new(0)).collect(),
        };
        bed.pass(&mut base, MS);
        everybody.read.iter().for_each(|n| n.set(0));
        everybody.pass(bed, &mut base, 20 * SECOND - MS, false);
        let (read, _) = everybody.counts();
        // Nineteen ticks: the twentieth comes a millisecond later.
        assert_near(read.iter().sum(), 950_000, 2);
        assert_even(&read);
    });
}

#[test]
fn with_more_members_than_a_tick_serves_they_take_turns() {
    each_seed(|bed| {
        let mut base = bed.base();
        let group = RateLimitGroup::new(&base, RateLimit::new().read(1000, 1000).tick(20 * MS)).unwrap();
        group.set_min_share(100);
        let crowd = Crowd::new(bed, &base, 40);
        for bev in &crowd.streams {
            bev.add_to_rate_limit_group(&group).unwrap();
        }
        crowd.pass(bed, &mut base, 8 * SECOND - MS, false);
        let (read, _) = crowd.counts();
        assert_near(read.iter().sum(), 400_000, 2);
        assert_even(&read);
    });
}

#[test]
fn one_stream_reads_and_writes_at_its_own_rates_and_bursts_after_a_pause() {
    each_seed(|bed| {
        let mut base = bed.base();
        let crowd = Crowd::new(bed, &base, 2);
        let [bev, free] = &crowd.streams[..] else { panic!() };
        let limit = RateLimit::new().read(1000, 5000).write(2000, 2000).tick(100 * MS);
        bev.set_rate_limit(Some(limit)).unwrap();
        assert_eq!((bev.rate_limit(), free.rate_limit()), (Some(limit), None));
        assert_eq!((bev.read_limit(), bev.write_limit(), free.read_limit()), (Some(1000), Some(2000), None));
        assert_eq!((bev.max_to_read(), bev.max_to_write()), (1000, 2000));
        crowd.pass(bed, &mut base, 5 * SECOND - MS, true);
        let (read, written) = crowd.counts();
        assert_eq!((read[0], written[0]), (50_000, 100_000));
        assert!(read[1] > 1_000_000);
        assert_eq!((bev.max_to_read(), bev.max_to_write()), (0, 0));
        bev.disable(Direction::READ);
        crowd.pass(bed, &mut base, SECOND, false);
        assert_eq!(bev.read_limit(), Some(5000));
        bev.enable(Direction::READ).unwrap();
        crowd.pass(bed, &mut base, 50 * MS, false);
        // And a tick has come.
        assert_eq!(crowd.counts().0[0], 56_000);
    });
}

#[test]
fn an_empty_bucket_suspends_and_nothing_spins_or_reads_nothing() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap();
        let crowd = Crowd::new(bed, &base, 4);
        let group = RateLimitGroup::new(&base, RateLimit::new().read(100, 100).write(100, 100)).unwrap();
        for bev in &crowd.streams[..2] {
            bev.set_rate_limit(Some(RateLimit::new().read(100, 100).write(100, 100))).unwrap();
        }
        for bev in &crowd.streams[2..] {
            bev.add_to_rate_limit_group(&group).unwrap();
        }
        crowd.feed(true);
        bed.settle(&mut base);
        let turns = Rc::new(Cell::new(0));
        let count = turns.clone();
        let watcher = Watcher::prepare(&base, move |_| count.set(count.get() + 1)).unwrap();
        base.loopexit(Some(10 * SECOND - MS)).unwrap();
        let before = (sim.calls(), crowd.counts().0.iter().sum::<usize>());
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Exit);
        let calls = sim.calls();
        // Nine ticks, in each a few turns.
        assert!(turns.get() < 9 * 8, "{} turns", turns.get());
        let received = calls[Call::Recv] - before.0[Call::Recv];
        assert!(received <= 9 * 4, "{received} reads for 9 ticks of 4 streams");
        let read = crowd.counts().0.iter().sum::<usize>() - before.1;
        // A group gives 64 at least, and takes that back at the next tick.
        assert_near(read + before.1, 10 * 300, 1);
        drop(watcher);
    });
}

#[test]
fn a_rate_of_zero_stands_still_until_it_is_changed() {
    each_seed(|bed| {
        let mut base = bed.base();
        for grouped in [false, true] {
            let crowd = Crowd::new(bed, &base, 2);
            let still = RateLimit::new().read(0, 10).write(0, 10);
            let group = RateLimitGroup::new(&base, still).unwrap();
            for bev in &crowd.streams {
                if grouped {
                    bev.add_to_rate_limit_group(&group).unwrap();
                } else {
                    bev.set_rate_limit(Some(still)).unwrap();
                }
            }
            crowd.feed(true);
            bed.pass(&mut base, 100 * SECOND);
            crowd.feed(true);
            let nothing = (vec![0, 0], vec![0, 0]);
            assert_eq!(crowd.counts(), nothing);
            assert_eq!(base.next_deadline(), None, "nothing is to come");
            // Given something by hand, it moves that much.
            if grouped {
                group.decrement_read_limit(-6);
                group.decrement_write_limit(-6);
            } else {
                crowd.streams[0].decrement_read_limit(-3).unwrap();
                crowd.streams[1].decrement_read_limit(-3).unwrap();
                crowd.streams[0].decrement_write_limit(-3).unwrap();
                crowd.streams[1].decrement_write_limit(-3).unwrap();
            }
            crowd.pass(bed, &mut base, 10 * SECOND, true);
            assert_eq!(crowd.counts(), (vec![3, 3], vec![3, 3]), "grouped: {grouped}");
            let some = RateLimit::new().read(500, 500).write(500, 500);
            if grouped {
                group.set_limit(some).unwrap();
            } else {
                crowd.streams.iter().for_each(|bev| bev.set_rate_limit(Some(some)).unwrap());
            }
            crowd.pass(bed, &mut base, 10 * SECOND, true);
            let (read, written) = crowd.counts();
            let goal = if grouped { 5006 } else { 10_006 };
            assert_near(read.iter().sum(), goal, 6);
            assert_near(written.iter().sum(), goal, 6);
            // Away with it.
            if grouped {
                group.set_limit(RateLimit::new()).unwrap();
            } else {
                crowd.streams.iter().for_each(|bev| bev.set_rate_limit(None).unwrap());
            }
            crowd.pass(bed, &mut base, 100 * MS, true);
            assert!(crowd.counts().0.iter().all(|read| *read > 20_000));
            crowd.streams.iter().for_each(BufferEvent::free);
            assert_eq!(group.members(), 0);
        }
    });
}

#[test]
fn taking_by_hand_puts_off_and_giving_back_brings_nearer() {
    each_seed(|bed| {
        let mut base = bed.base();
        let crowd = Crowd::new(bed, &base, 1);
        let bev = &crowd.streams[0];
        assert!(matches!(bev.decrement_read_limit(1), Err(Error::Invalid(_))));
        bev.set_rate_limit(Some(RateLimit::new().read(100, 100))).unwrap();
        assert!(matches!(bev.decrement_write_limit(1), Err(Error::Invalid(_))));
        bev.decrement_read_limit(500).unwrap();
        assert_eq!(bev.read_limit(), Some(-400));
        crowd.pass(bed, &mut base, 5 * SECOND - 10 * MS, false);
        assert_eq!(crowd.counts().0[0], 0);
        crowd.pass(bed, &mut base, 20 * MS, false);
        assert_eq!(crowd.counts().0[0], 100);
        bev.decrement_read_limit(-50).unwrap();
        crowd.pass(bed, &mut base, 20 * MS, false);
        assert_eq!(crowd.counts().0[0], 150);
        let group = RateLimitGroup::new(&base, RateLimit::new().read(1000, 1000)).unwrap();
        group.decrement_read_limit(1500);
        assert_eq!((group.read_limit(), group.write_limit()), (Some(-500), None));
        group.decrement_read_limit(-9999);
        assert_eq!(group.read_limit(), Some(1000));
    });
}

#[test]
fn both_limits_hold_and_leaving_the_group_leaves_the_own_one() {
    each_seed(|bed| {
        let mut base = bed.base();
        let crowd = Crowd::new(bed, &base, 3);
        let group = RateLimitGroup::new(&base, RateLimit::new().read(30_000, 30_000).tick(100 * MS)).unwrap();
        for bev in &crowd.streams {
            bev.add_to_rate_limit_group(&group).unwrap();
        }
        let own = RateLimit::new().read(1000, 1000).tick(50 * MS);
        crowd.streams[0].set_rate_limit(Some(own)).unwrap();
        crowd.pass(bed, &mut base, 10 * SECOND - MS, false);
        let (read, _) = crowd.counts();
        assert_near(read[0], 200_000, 2);
        assert_near(read[1], 1_400_000, 5);
        assert_near(read.iter().sum(), 3_000_000, 2);
        // The same one again changes nothing; leaving lets it go at its own pace.
        crowd.streams[1].add_to_rate_limit_group(&group).unwrap();
        assert_eq!(group.members(), 3);
        crowd.streams[0].remove_from_rate_limit_group();
        crowd.streams[1].remove_from_rate_limit_group();
        crowd.streams[1].remove_from_rate_limit_group();
        assert_eq!(group.members(), 1);
        crowd.pass(bed, &mut base, SECOND, false);
        let (later, _) = crowd.counts();
        assert_near(later[0] - read[0], 20_000, 6);
        assert!(later[1] - read[1] > 500_000);
    });
}

#[test]
fn a_member_leaves_when_it_is_freed_or_dropped_and_a_freed_group_lets_all_go() {
    each_seed(|bed| {
        let mut base = bed.base();
        let crowd = Crowd::new(bed, &base, 10);
        let group = RateLimitGroup::new(&base, RateLimit::new().read(10, 10).write(10, 10)).unwrap();
        for bev in &crowd.streams {
            bev.add_to_rate_limit_group(&group).unwrap();
        }
        crowd.pass(bed, &mut base, 3 * SECOND, true);
        for (n, bev) in crowd.streams.iter().enumerate().take(7) {
            bev.free();
            assert_eq!(group.members(), 9 - n);
        }
        let other = RateLimitGroup::new(&base, RateLimit::new()).unwrap();
        crowd.streams[9].add_to_rate_limit_group(&other).unwrap();
        assert_eq!((group.members(), other.members()), (2, 1));
        crowd.pass(bed, &mut base, SECOND, true);
        assert!(crowd.counts().0[9] > 10_000, "no limit there");
        assert!(crowd.counts().0[8] < 100);
        group.free();
        crowd.pass(bed, &mut base, SECOND, true);
        assert!(crowd.counts().0[8] > 10_000, "it goes on without the group");
        assert!(crowd.counts().1[8] > 10_000);
        assert!(matches!(crowd.streams[9].add_to_rate_limit_group(&group), Err(Error::Invalid(_))));
        // A group without handles is that of its members, and then of nobody.
        drop((group, other));
        let last = RateLimitGroup::new(&base, RateLimit::new().read(10, 10)).unwrap();
        crowd.streams[7].add_to_rate_limit_group(&last).unwrap();
        drop(last);
        crowd.pass(bed, &mut base, 3 * SECOND, true);
        let before = crowd.counts().0[7];
        crowd.pass(bed, &mut base, SECOND, true);
        assert_eq!(crowd.counts().0[7] - before, 10);
        crowd.streams.iter().for_each(BufferEvent::free);
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn members_may_go_in_each_others_callbacks() {
    each_seed(|bed| {
        let mut base = bed.base();
        let group = RateLimitGroup::new(&base, RateLimit::new().read(4000, 4000).tick(10 * MS)).unwrap();
        let canary = Canary::new();
        let all = Rc::new(RefCell::new(Vec::new()));
        let mut peers = Vec::new();
        for n in 0..40 {
            let (bev, peer) = bed.stream(&base);
            bev.add_to_rate_limit_group(&group).unwrap();
            let (held, others, of) = (canary.clone(), all.clone(), group.clone());
            bev.set_read_cb(move |bev| {
                let _held = &held;
                bev.read_buffer();
                let others: Vec<BufferEvent> = others.borrow().clone();
                match n % 5 {
                    0 => bev.free(),
                    1 => others[(n * 7 + 3) % others.len()].free(),
                    2 => bev.remove_from_rate_limit_group(),
                    3 => others[(n + 1) % others.len()].remove_from_rate_limit_group(),
                    _ => drop(others[(n * 3) % others.len()].add_to_rate_limit_group(&of)),
                }
            });
            bev.enable(Direction::READ).unwrap();
            peer.write_all(&[0; 2000]);
            all.borrow_mut().push(bev);
            peers.push(peer);
        }
        for _ in 0..50 {
            peers.iter().for_each(|peer| {
                let _ = peer.write(&[0; 100]);
            });
            bed.pass(&mut base, 10 * MS);
        }
        let alive = all.borrow().iter().filter(|bev| !bev.is_freed()).count();
        assert!(group.members() <= alive && alive < 40);
        all.take().iter().for_each(BufferEvent::free);
        assert_eq!((group.members(), canary.alive()), (0, 0));
    });
}

#[test]
fn timeouts_do_not_run_while_a_limit_holds_a_stream_up() {
    each_seed(|bed| {
        let mut base = bed.base();
        let (bev, peer) = bed.stream(&base);
        let seen = Seen::new();
        bev.set_callbacks(Recorder::patient(&seen));
        bev.set_timeouts(Some(300 * MS), Some(300 * MS));
        bev.set_rate_limit(Some(RateLimit::new().read(5, 5).write(5, 5))).unwrap();
        bev.enable(Direction::READ).unwrap();
        peer.write_all(b"seventeen letters");
        bev.write("0123456789").unwrap();
        bed.settle(&mut base);
        bed.pass(&mut base, 2900 * MS);
        assert_eq!(seen.take(), ["read seven", "read teen ", "wrote, 0 left", "read lette"]);
        assert_eq!(peer.read().0, b"0123456789");
        bed.pass(&mut base, 200 * MS);
        assert_eq!(seen.take(), ["read rs"]);
        bed.pass(&mut base, 198 * MS);
        assert!(seen.is_empty());
        bed.pass(&mut base, 102 * MS);
        assert_eq!(seen.take(), ["reading timeout"]);
        bev.free();
    });
}

#[test]
fn a_graceful_close_under_a_limit_sends_everything_in_its_time() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap();
        let (bev, peer) = bed.stream(&base);
        bev.set_rate_limit(Some(RateLimit::new().write(1000, 1000))).unwrap();
        bev.write(vec![7; 10_500]).unwrap();
        assert!(!bev.try_flush().unwrap());
        bev.close_after_flush();
        let start = sim.elapsed();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!(peer.read(), (vec![7; 10_500], true));
        let took = (sim.elapsed() - start).as_millis();
        assert!((9_900..10_100).contains(&took), "{took} ms");
    });
}

#[test]
fn both_ends_of_a_pair_may_be_limited() {
    each_seed(|bed| {
        let mut base = bed.base();
        for (reader, writer) in [(true, false), (false, true), (true, true)] {
            let (one, other) = BufferEvent::pair(&base).unwrap();
            let limit = RateLimit::new().read(1000, 1000).write(1000, 1000).tick(100 * MS);
            if reader {
                other.set_rate_limit(Some(limit)).unwrap();
            }
            if writer {
                one.set_rate_limit(Some(limit)).unwrap();
            }
            let got = Rc::new(Cell::new(0));
            let count = got.clone();
            other.set_read_cb(move |bev| count.set(count.get() + bev.read_buffer().len()));
            other.enable(Direction::READ).unwrap();
            one.write(vec![0; 100_000]).unwrap();
            bed.settle(&mut base);
            bed.pass(&mut base, 4999 * MS);
            assert_eq!(got.get(), 50_000, "{reader} {writer}");
            one.close_after_flush();
            assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
            assert_eq!(got.get(), 100_000);
        }
    });
}

struct Same;

impl Filter for Same {}

#[test]
fn filters_over_limited_streams_may_be_limited_and_nothing_calls_itself() {
    each_seed(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        under
            .set_rate_limit(Some(RateLimit::new().read(2000, 2000).write(2000, 2000).tick(100 * MS)))
            .unwrap();
        let mut bev = under.clone();
        let group = RateLimitGroup::new(&base, RateLimit::new().read(9000, 9000).write(9000, 9000)).unwrap();
        for _ in 0..8 {
            bev = BufferEvent::filter(&bev, Same).unwrap();
            bev.set_rate_limit(Some(RateLimit::new().read(3000, 3000).write(1000, 1000).tick(200 * MS)))
                .unwrap();
            bev.set_watermark(Direction::READ, 0, Some(1700));
        }
        bev.add_to_rate_limit_group(&group).unwrap();
        bev.set_callbacks(Echo);
        bev.enable(Direction::READ).unwrap();
        let (mut sent, mut got) = (0, 0);
        for _ in 0..500 {
            sent += peer.write(&[3; 1000]);
            bed.pass(&mut base, 20 * MS);
            got += peer.read().0.len();
        }
        assert!(sent > 60_000);
        // The slowest of them: 1,000 every 200 ms.
        assert_near(got, 50_000, 4);
        peer.shutdown_write();
        bev.free();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
    });
}

#[test]
fn a_filter_that_gives_more_than_it_should_pays_for_it_later() {
    each_seed(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        let tenfold = |from: &mut Buffer, to: &mut Buffer, _: usize, _: FlushMode| {
            to.add(&vec![0; from.drain(usize::MAX) * 10]);
            Ok(Filtered::Done)
        };
        let bev = BufferEvent::filter_with(&under, tenfold, tenfold).unwrap();
        bev.set_rate_limit(Some(RateLimit::new().read(1000, 1000))).unwrap();
        bev.set_read_cb(|_| {});
        bev.enable(Direction::READ).unwrap();
        peer.write_all(&[0; 500]);
        bed.settle(&mut base);
        assert_eq!((bev.pending_input(), bev.read_limit()), (5000, Some(-4000)));
        peer.write_all(&[0; 10]);
        bed.pass(&mut base, 4990 * MS);
        assert_eq!(bev.pending_input(), 5000);
        bed.pass(&mut base, 20 * MS);
        assert_eq!(bev.pending_input(), 5100);
        bev.free();
    });
}

#[test]
fn two_clients_with_25_megabytes_each_at_one_megabyte_a_second() {
    each_seed(|bed| {
        let mut base = bed.base();
        let sim = bed.sim().unwrap();
        let group = RateLimitGroup::new(&base, RateLimit::new().read(1_000_000, 1_000_000)).unwrap();
        let mut ends = Vec::new();
        for _ in 0..2 {
            let (one, other) = BufferEvent::pair(&base).unwrap();
            let one = BufferEvent::filter(&one, Same).unwrap();
            let other = BufferEvent::filter(&other, Same).unwrap();
            let counted = other.underlying().unwrap();
            counted.add_to_rate_limit_group(&group).unwrap();
            one.set_max(None, None);
            one.write(vec![0; 25_000_000]).unwrap();
            one.close_after_flush();
            let got = Rc::new(Cell::new(0));
            let count = got.clone();
            other.set_read_cb(move |bev| {
                count.set(count.get() + bev.read_buffer().len());
                if count.get() == 25_000_000 {
                    bev.free();
                }
            });
            other.enable(Direction::READ).unwrap();
            ends.push((got, other));
        }
        let start = sim.elapsed();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        let took = (sim.elapsed() - start).as_secs();
        assert!((48..=50).contains(&took), "{took} s");
        assert!(ends.iter().all(|(got, bev)| got.get() == 25_000_000 && bev.is_freed()));
        assert_eq!((group.members(), group.totals()), (0, (50_000_000, 0)));
    });
}

#[test]
fn what_is_no_limit_is_refused_and_changes_nothing() {
    each_backend(|bed| {
        let base = bed.base();
        let (bev, _peer) = bed.stream(&base);
        let bad = [
            RateLimit::new().read(10, 9),
            RateLimit::new().write(0, usize::MAX),
            RateLimit::new().tick(Duration::ZERO),
            RateLimit::new().tick(Duration::MAX),
        ];
        for limit in bad {
            assert!(matches!(bev.set_rate_limit(Some(limit)), Err(Error::Invalid(_))));
            assert!(matches!(RateLimitGroup::new(&base, limit), Err(Error::Invalid(_))));
        }
        assert_eq!(bev.rate_limit(), None);
        let group = RateLimitGroup::new(&base, RateLimit::new()).unwrap();
        assert!(matches!(group.set_limit(bad[0]), Err(Error::Invalid(_))));
        let elsewhere = Sim::new(5).event_base().unwrap();
        let (stranger, _) = BufferEvent::pair(&elsewhere).unwrap();
        assert!(matches!(stranger.add_to_rate_limit_group(&group), Err(Error::Invalid(_))));
        bev.free();
        assert!(matches!(bev.set_rate_limit(None), Err(Error::Stale)));
        assert!(matches!(bev.add_to_rate_limit_group(&group), Err(Error::Stale)));
        assert_eq!(group.members(), 0);
        drop(base);
        assert_eq!(group.limit(), RateLimit::new());
        group.decrement_read_limit(5);
        group.free();
    });
}

#[test]
fn a_limit_on_real_sockets_lets_everything_through_in_the_end() {
    each_backend(|bed| {
        let mut base = bed.base();
        let group =
            RateLimitGroup::new(&base, RateLimit::new().read(50_000, 50_000).write(50_000, 50_000).tick(MS))
                .unwrap();
        let (bev, peer) = bed.tcp_stream(&base);
        bev.add_to_rate_limit_group(&group).unwrap();
        bev.set_rate_limit(Some(RateLimit::new().read(20_000, 20_000).tick(MS))).unwrap();
        bev.set_callbacks(Echo);
        bev.enable(Direction::READ).unwrap();
        let (mut sent, mut got) = (0, 0);
        for _ in 0..20_000 {
            sent += peer.write(&[9; 500_000][..500_000 - sent]);
            got += peer.read().0.len();
            if got == 500_000 {
                break;
            }
            bed.pass(&mut base, MS);
        }
        assert_eq!(got, 500_000);
        peer.shutdown_write();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(bev.is_freed());
        assert_eq!((group.members(), group.totals()), (0, (500_000, 500_000)));
    });
}

/// Gives nothing out before the end.
struct Tail(Buffer);

impl Filter for Tail {
    fn output(
        &mut self,
        from: &mut Buffer,
        to: &mut Buffer,
        room: usize,
        mode: FlushMode,
    ) -> std::io::Result<Filtered> {
        self.0.add_buffer(from);
        if mode == FlushMode::Finished {
            let len = self.0.len().min(room);
            self.0.remove_buffer(to, len);
        }
        Ok(if mode == FlushMode::Normal || self.0.is_empty() { Filtered::NeedMore } else { Filtered::Done })
    }
}

#[test]
fn what_a_filter_owes_at_the_end_waits_for_the_limit_and_holds_the_loop() {
    each_seed(|bed| {
        let mut base = bed.base();
        let (under, peer) = bed.stream(&base);
        let bev = BufferEvent::filter(&under, Tail(Buffer::new())).unwrap();
        bev.set_callbacks(Recorder::idle(&Seen::new()));
        bev.enable(Direction::WRITE).unwrap();
        bev.set_rate_limit(Some(RateLimit::new().write(100, 100).tick(100 * SECOND))).unwrap();
        bev.write(vec![b'x'; 100]).unwrap();
        bed.settle(&mut base);
        bev.shutdown_write();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        bed.pass(&mut base, SECOND);
        let (got, _) = peer.read();
        assert_eq!(got.len(), 100, "and dispatch had nothing more to do");
    });
}
