//! Numbers and registrations.

use super::*;

#[test]
fn closing_an_fd_takes_its_registration_along_and_a_reused_number_has_none() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.add(a, Interest::READ);
    stage.send(b, b"x").unwrap();
    stage.sys.close(a);
    assert_eq!(stage.wait(NOW), []);
    assert!(stage.world.with(|state| state.sets.values().all(|set| set.len() == 0)));
    assert_eq!(code(stage.sys.change(a, 1, Interest::READ, Interest::READ)), libc::EBADF);
    assert_eq!(code(stage.sys.change(a, 1, Interest::empty(), Interest::READ)), libc::EBADF);
    assert_eq!(code(stage.sys.change(a, 1, Interest::READ, Interest::empty())), 0);
    let (again, _) = stage.pair(false);
    assert_eq!(again, a);
    assert_eq!(code(stage.sys.change(a, 1, Interest::READ, Interest::READ)), libc::ENOENT);
    assert_eq!(code(stage.sys.change(a, 1, Interest::READ, Interest::empty())), 0);
}

#[test]
fn a_duplicate_keeps_the_registration_of_a_closed_number_alive() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    let copy = stage.world.with(|state| state.dup(a)).unwrap();
    stage.add(a, Interest::READ);
    stage.sys.close(a);
    assert_eq!(stage.poll(b), Report::WRITE, "still open");
    stage.send(b, b"x").unwrap();
    assert_eq!(stage.wait(NOW), [(a as u64, Report::READ)], "reported under a number that is closed");
    stage.sys.close(copy);
    assert_eq!(stage.wait(NOW), []);
}

#[test]
fn the_newest_tag_is_reported_and_errors_come_unasked() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.sys.change(a, 10, Interest::empty(), Interest::WRITE).unwrap();
    stage.sys.change(a, 11, Interest::WRITE, Interest::READ).unwrap();
    assert_eq!(stage.wait(NOW), []);
    closed_with_unread(&stage, a, b);
    assert_eq!(stage.wait(NOW), [(11, Report::READ | Report::ERR | Report::HUP)]);
}

#[test]
fn each_arrival_is_an_edge_and_so_is_each_change() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    let edge = Interest::READ | Interest::EDGE;
    stage.add(a, edge);
    assert_eq!(stage.wait(NOW), []);
    for _ in 0..2 {
        stage.send(b, b"x").unwrap();
        assert_eq!(stage.wait(NOW).len(), 1);
        assert_eq!(stage.wait(NOW).len(), 0);
    }
    stage.sys.change(a, 5, edge, edge).unwrap();
    assert_eq!(stage.wait(NOW), [(5, Report::READ)]);
}

#[test]
fn a_made_up_obstacle_gives_the_edge_back() {
    let stage = Stage::new();
    let (a, b) = stage.pair(false);
    stage.add(a, Interest::READ | Interest::EDGE);
    stage.send(b, b"abc").unwrap();
    stage.lay(a, true, Step::Fail(libc::EAGAIN));
    stage.lay(a, true, Step::AtMost(1));
    assert_eq!(stage.wait(NOW).len(), 1);
    assert_eq!(code(stage.recv(a)), libc::EAGAIN);
    assert_eq!(stage.wait(NOW).len(), 1);
    assert_eq!(stage.recv(a).unwrap(), b"a");
    assert_eq!(stage.wait(NOW).len(), 1);
    assert_eq!(stage.recv(a).unwrap(), b"bc");
    assert_eq!(stage.wait(NOW).len(), 0);
}

#[test]
fn the_child_of_a_fork_watches_nothing() {
    let stage = Stage::new();
    let (a, _) = stage.pair(false);
    stage.add(a, Interest::WRITE);
    stage.sys.waker().wake();
    stage.sys.after_fork().unwrap();
    assert_eq!(stage.wait(NOW), []);
    stage.add(a, Interest::WRITE);
    assert_eq!(stage.wait(NOW).len(), 1);
}

#[test]
#[cfg_attr(miri, ignore = "after each step a new loop looks at every fd")]
fn a_loop_reports_what_a_fresh_one_finds_after_whatever_happened() {
    // The set of candidates that a loop keeps against a look at everything, over random histories.
    for seed in 0..30 {
        let stage = Stage::seeded(seed);
        stage.world.with(|state| (state.cuts, state.default_capacity) = (seed % 2 == 0, 12));
        let mut dice = random::Random::new(seed);
        let mut fds = Vec::new();
        for kind in 0..6 {
            let (a, b) = if kind < 4 { stage.pair(kind % 2 == 0) } else { stage.pipe() };
            fds.extend([a, b]);
        }
        for &fd in &fds {
            stage.add(fd, ALL);
        }
        for step in 0..300 {
            let Some(&fd) = fds.get(dice.below(fds.len().max(1))) else { break };
            match dice.below(12) {
                0..=3 => drop(stage.send(fd, &[1; 5])),
                4..=8 => drop(stage.sys.recv(fd, &Cell::default(), &mut Vec::with_capacity(9), 4)),
                9 if step > 100 => drop(stage.sys.shutdown(fd, Shutdown::Write)),
                10 if step > 150 => stage.sys.close(fd),
                _ => {
                    let latency = ms(dice.below(3) as u64);
                    stage.world.with(|state| {
                        // A pipe has none, which is fine here.
                        let _ = state.file_of(fd).and_then(|id| state.set_latency(id, latency));
                        state.advance(ms(1));
                    });
                }
            }
            fds.retain(|&fd| stage.world.with(|state| state.file_of(fd)).is_ok());
            let mut kept = stage.wait(NOW);
            kept.sort_unstable_by_key(|&(tag, _)| tag);
            let fresh: Vec<(u64, Report)> = fds
                .iter()
                .map(|&fd| (fd as u64, stage.poll(fd)))
                .filter(|(_, report)| !report.is_empty())
                .collect();
            assert_eq!(kept, fresh, "seed {seed}, step {step}");
        }
    }
}
