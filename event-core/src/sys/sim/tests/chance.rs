//! What the seed decides.

use std::collections::BTreeMap;

use super::*;

#[test]
fn the_seed_decides_the_order_of_what_is_ready() {
    let order = |seed| {
        let stage = Stage::seeded(seed);
        for _ in 0..10 {
            let (a, _) = stage.pair(false);
            stage.add(a, Interest::WRITE);
        }
        [stage.wait(NOW), stage.wait(NOW)].map(|ready| ready.iter().map(|&(tag, _)| tag).collect::<Vec<_>>())
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    let [mut first, mut second] = order(1);
    assert_ne!(first, second, "each wait is shuffled anew");
    first.sort_unstable();
    second.sort_unstable();
    assert_eq!(first, second);
}

/// Moves 200 kB through a pair as a level-triggered loop does; says what the outcomes of the calls were.
fn transfer(seed: u64) -> BTreeMap<&'static str, u32> {
    let stage = Stage::seeded(seed);
    stage.world.with(|state| state.cuts = true);
    let (a, b) = stage.pair(false);
    stage.add(a, Interest::WRITE);
    stage.add(b, Interest::READ);
    let mut data = (0..=u8::MAX).collect::<Vec<u8>>().repeat(800);
    data.truncate(200_000);
    let (mut sent, mut received, mut outcomes) = (0, Vec::with_capacity(data.len()), BTreeMap::new());
    while received.len() < data.len() {
        for (tag, report) in stage.wait(Some(ms(1))) {
            assert!(report.intersects(Report::READ | Report::WRITE));
            let piece = &data[sent..data.len().min(sent + 10_000)];
            if tag == a as u64 && piece.is_empty() {
                stage.sys.change(a, 0, Interest::WRITE, Interest::empty()).unwrap();
                continue;
            }
            let result = if tag == a as u64 {
                let result = stage.send(a, piece);
                sent += *result.as_ref().unwrap_or(&0);
                result.map(|count| count == piece.len())
            } else {
                let before = received.len();
                let result = stage.sys.recv(b, &Cell::default(), &mut received, 10_000);
                result.map(|count| count == 10_000 || received.len() - before < count)
            };
            *outcomes
                .entry(result.map_or("refused", |whole| if whole { "whole" } else { "short" }))
                .or_default() += 1;
        }
        assert_eq!(stage.elapsed(), Duration::ZERO, "what is possible stays reported");
    }
    assert_eq!(received, data);
    outcomes
}

#[test]
fn cuts_disturb_every_call_and_lose_nothing() {
    let outcomes = transfer(3);
    assert!(outcomes["refused"] > 5 && outcomes["short"] > 5 && outcomes["whole"] > 5, "{outcomes:?}");
    assert_eq!(transfer(3), outcomes);
    assert_ne!(transfer(4), outcomes);
}

#[test]
fn cuts_never_split_what_a_pipe_keeps_whole() {
    let stage = Stage::new();
    stage.world.with(|state| state.cuts = true);
    let (_, w) = stage.pipe();
    let sent: Vec<usize> = (0..100).filter_map(|_| stage.send(w, &[0; 100]).ok()).collect();
    assert!(sent.len() > 50 && sent.iter().all(|&count| count == 100), "{sent:?}");
}

#[test]
fn cuts_refuse_an_accept_at_times() {
    let stage = Stage::new();
    stage.world.with(|state| state.cuts = true);
    let listener = stage.listen(&ip("127.0.0.1:80"), 100).unwrap();
    for _ in 0..50 {
        stage.sys.connect(&ip("127.0.0.1:80")).unwrap();
    }
    let mut refused = 0;
    while stage.poll(listener) == Report::READ {
        refused += u32::from(stage.sys.accept(listener).is_err());
    }
    assert!((5..50).contains(&refused), "{refused}");
}

#[test]
fn the_calls_of_the_loops_are_counted_by_kind() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.add(a, Interest::READ);
    stage.send(b, b"x").unwrap();
    stage.wait(NOW);
    stage.recv(a).unwrap();
    let _ = stage.recv(a);
    stage.sys.close(a);
    let calls = stage.world.with(|state| state.calls());
    assert_eq!(format!("{calls:?}"), "{Change: 1, Close: 1, Recv: 2, Send: 1, Wait: 1}");
}
