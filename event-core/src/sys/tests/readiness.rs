//! Adding, changing, removing, waiting and waking.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::*;

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// Closes `old` and gives its number to `new`.
fn reuse(old: impl Into<OwnedFd>, new: &impl AsRawFd) -> OwnedFd {
    let number = old.into();
    // SAFETY: dup2(2) takes numbers.
    assert!(unsafe { libc::dup2(new.as_raw_fd(), number.as_raw_fd()) } >= 0);
    number
}

#[test]
fn readiness_is_reported_with_the_tag_given_last() {
    each(|sys| {
        let (a, mut b) = pair();
        let fd = a.as_raw_fd();
        sys.change(fd, 7, NONE, READ).unwrap();
        assert_eq!(ready(sys), []);
        b.write_all(b"x").unwrap();
        assert_eq!(ready(sys), [(7, Report::READ)]);
        // Level-triggered: again until it is read.
        assert_eq!(ready(sys), [(7, Report::READ)]);
        sys.change(fd, 8, READ, READ | WRITE).unwrap();
        assert_eq!(ready(sys), [(8, Report::READ | Report::WRITE)]);
        sys.change(fd, 9, READ | WRITE, READ | WRITE).unwrap();
        assert_eq!(ready(sys), [(9, Report::READ | Report::WRITE)]);
        sys.change(fd, 9, READ | WRITE, WRITE).unwrap();
        assert_eq!(ready(sys), [(9, Report::WRITE)]);
        sys.change(fd, 9, WRITE, NONE).unwrap();
        assert_eq!(ready(sys), []);
    });
}

#[test]
fn what_is_waited_for_ends_the_wait() {
    each(|sys| {
        let (a, mut b) = pair();
        sys.change(a.as_raw_fd(), 1, NONE, READ).unwrap();
        let writer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            b.write_all(b"x").unwrap();
            b
        });
        let start = Instant::now();
        assert_eq!(wait(sys, LONG), [(1, Report::READ)]);
        assert!(start.elapsed() < LONG / 2);
        writer.join().unwrap();
    });
}

#[test]
fn removing_leaves_the_others_where_they_were() {
    each(|sys| {
        let pairs: Vec<_> = (0..5).map(|_| pair()).collect();
        for (tag, (a, b)) in (0..).zip(&pairs) {
            sys.change(a.as_raw_fd(), tag, NONE, READ).unwrap();
            (&mut &*b).write_all(b"x").unwrap();
        }
        let tags = |sys| ready(sys).into_iter().map(|(tag, _)| tag).collect::<Vec<_>>();
        assert_eq!(tags(sys), [0, 1, 2, 3, 4]);
        sys.change(pairs[1].0.as_raw_fd(), 1, READ, NONE).unwrap();
        sys.change(pairs[4].0.as_raw_fd(), 4, READ, NONE).unwrap();
        assert_eq!(tags(sys), [0, 2, 3]);
        // The last one took a place that was free; it must be found there.
        sys.change(pairs[3].0.as_raw_fd(), 33, READ, READ).unwrap();
        sys.change(pairs[4].0.as_raw_fd(), 44, NONE, READ).unwrap();
        assert_eq!(tags(sys), [0, 2, 33, 44]);
    });
}

#[test]
fn removing_what_is_gone_is_no_error() {
    each(|sys| {
        let (a, _b) = pair();
        let fd = a.as_raw_fd();
        assert!(sys.change(fd, 1, READ, NONE).is_ok());
        sys.change(fd, 1, NONE, READ).unwrap();
        sys.change(fd, 1, READ, NONE).unwrap();
        assert!(sys.change(fd, 1, READ, NONE).is_ok());
        let number = closed_number();
        assert!(sys.change(number, 1, READ, NONE).is_ok());
        // The number has become a file that epoll refuses to hear of.
        let file = fs::File::open(env::current_exe().unwrap()).unwrap();
        assert!(sys.change(file.as_raw_fd(), 1, READ, NONE).is_ok());
        assert!(sys.change(fd, 1, NONE, NONE).is_ok());
    });
}

#[test]
fn adding_what_is_not_open_fails_at_once() {
    each(|sys| {
        for fd in [-1, i32::MIN, i32::MAX, closed_number()] {
            assert_eq!(errno(sys.change(fd, 1, NONE, READ)), Some(libc::EBADF), "{fd} on {}", sys.name());
        }
        assert_eq!(ready(sys), []);
    });
}

#[test]
fn asserting_again_tells_that_an_fd_was_closed() {
    each(|sys| {
        let (a, _b) = pair();
        let fd = a.as_raw_fd();
        sys.change(fd, 1, NONE, READ).unwrap();
        assert!(sys.change(fd, 1, READ, READ).is_ok());
        drop(a);
        // Other tests open files too, so that the number may be in use again. All but poll tell even so.
        let again = errno(sys.change(fd, 1, READ, READ));
        if !is_poll(sys) {
            assert!(matches!(again, Some(libc::EBADF | libc::ENOENT)), "{again:?}");
        }
        let high = closed_number();
        let (c, _d) = pair();
        // SAFETY: dup2(2) takes numbers.
        assert_eq!(unsafe { libc::dup2(c.as_raw_fd(), high) }, high);
        sys.change(high, 2, NONE, READ).unwrap();
        close(high);
        assert_eq!(errno(sys.change(high, 2, READ, READ)), Some(libc::EBADF));
    });
}

#[test]
fn all_but_poll_tell_that_a_number_was_reused() {
    each(|sys| {
        let (a, _b) = pair();
        let (c, _d) = pair();
        let fd = a.as_raw_fd();
        sys.change(fd, 1, NONE, READ).unwrap();
        let a = reuse(a, &c);
        let again = sys.change(fd, 1, READ, READ);
        assert_eq!(errno(again), (!is_poll(sys)).then_some(libc::ENOENT));
        sys.change(fd, 2, NONE, READ).unwrap();
        // Reused for what epoll cannot watch: it is not EPERM that the caller has to look for.
        let file = fs::File::open(env::current_exe().unwrap()).unwrap();
        let _a = reuse(a, &file);
        let again = sys.change(fd, 2, READ, READ);
        assert_eq!(errno(again), (!is_poll(sys)).then_some(libc::ENOENT));
    });
}

#[test]
fn adding_over_a_registration_left_behind_changes_it() {
    each(|sys| {
        let (a, mut b) = pair();
        let fd = a.as_raw_fd();
        sys.change(fd, 1, NONE, WRITE).unwrap();
        // The caller believes it closed the fd, which came back as the same file.
        sys.change(fd, 2, NONE, READ).unwrap();
        assert_eq!(ready(sys), []);
        b.write_all(b"x").unwrap();
        assert_eq!(ready(sys), [(2, Report::READ)]);
    });
}

#[test]
fn a_regular_file_is_refused_by_epoll_and_ready_elsewhere() {
    each(|sys| {
        let file = fs::File::open(env::current_exe().unwrap()).unwrap();
        // kqueue(2) does not promise to watch writing to one.
        let (wanted, report) =
            if is_kqueue(sys) { (READ, Report::READ) } else { (READ | WRITE, Report::READ | Report::WRITE) };
        let added = sys.change(file.as_raw_fd(), 1, NONE, wanted);
        if sys.features().contains(crate::Features::ANY_FD) {
            added.unwrap();
            assert_eq!(ready(sys), [(1, report)]);
        } else {
            assert_eq!(errno(added), Some(libc::EPERM));
        }
    });
}

#[test]
fn poll_reports_an_fd_that_was_closed_while_watched() {
    each(|sys| {
        let high = closed_number();
        let (a, _b) = pair();
        // SAFETY: dup2(2) takes numbers.
        assert_eq!(unsafe { libc::dup2(a.as_raw_fd(), high) }, high);
        sys.change(high, 5, NONE, READ).unwrap();
        close(high);
        let expected: &[_] = if is_poll(sys) { &[(5, Report::INVALID)] } else { &[] };
        assert_eq!(ready(sys), expected);
    });
}

#[test]
fn the_end_of_a_stream_is_closed_only_for_those_who_ask() {
    each(|sys| {
        let (a, b) = pair();
        let fd = a.as_raw_fd();
        sys.change(fd, 1, NONE, READ).unwrap();
        b.shutdown(std::net::Shutdown::Write).unwrap();
        if is_kqueue(sys) {
            // It cannot be asked for one without the other, nor for a hang-up.
            assert_eq!(ready(sys), [(1, Report::READ | Report::CLOSED)]);
            return;
        }
        assert_eq!(ready(sys), [(1, Report::READ)]);
        if sys.features().contains(crate::Features::EARLY_CLOSE) {
            sys.change(fd, 1, READ, Interest::CLOSED).unwrap();
            assert_eq!(ready(sys), [(1, Report::CLOSED)]);
        }
        drop(b);
        sys.change(fd, 1, Interest::CLOSED, WRITE).unwrap();
        let report = ready(sys)[0].1;
        assert!(report.contains(Report::HUP), "{report:?}");
        assert!(!report.contains(Report::CLOSED), "{report:?}");
    });
}

#[test]
fn closed_alone_is_told_while_data_waits_and_the_data_is_not_told_for_ever() {
    each(|sys| {
        if !sys.features().contains(crate::Features::EARLY_CLOSE) {
            return;
        }
        let (a, mut b) = pair();
        sys.change(a.as_raw_fd(), 1, NONE, Interest::CLOSED).unwrap();
        b.write_all(b"x").unwrap();
        // Kqueue tells of it once, as something that nobody wants.
        ready(sys);
        assert_eq!(ready(sys), []);
        b.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(matches!(ready(sys)[..], [(1, report)] if report.contains(Report::CLOSED)));
    });
}

#[test]
fn the_writer_of_a_pipe_that_nobody_reads_has_an_error() {
    each(|sys| {
        let (reader, writer) = io::pipe().unwrap();
        sys.change(writer.as_raw_fd(), 1, NONE, WRITE).unwrap();
        assert_eq!(ready(sys), [(1, Report::WRITE)]);
        drop(reader);
        // Kqueue does not tell it from a direction that we have shut: writing then finds the error.
        let expected = if is_kqueue(sys) { Report::WRITE } else { Report::ERR };
        assert!(ready(sys)[0].1.contains(expected));
        let (reader, writer) = io::pipe().unwrap();
        sys.change(reader.as_raw_fd(), 2, NONE, READ).unwrap();
        drop(writer);
        let expected = if is_kqueue(sys) { Report::READ | Report::CLOSED } else { Report::HUP };
        assert_eq!(ready(sys).last(), Some(&(2, expected)));
    });
}

#[test]
fn edges_are_reported_once() {
    each(|sys| {
        if !sys.features().contains(crate::Features::EDGE) {
            return;
        }
        let (a, mut b) = pair();
        sys.change(a.as_raw_fd(), 1, NONE, READ | Interest::EDGE).unwrap();
        for _ in 0..2 {
            b.write_all(b"x").unwrap();
            assert_eq!(ready(sys), [(1, Report::READ)]);
            assert_eq!(ready(sys), []);
        }
    });
}

#[test]
fn more_fds_than_one_wait_holds_are_all_reported() {
    each(|sys| {
        let pairs: Vec<_> = (0..150).map(|_| pair()).collect();
        for (tag, (a, _)) in (0..).zip(&pairs) {
            sys.change(a.as_raw_fd(), tag, NONE, WRITE).unwrap();
        }
        let mut out = Vec::new();
        let mut ready = || {
            sys.wait(&mut out, Some(Duration::ZERO)).unwrap();
            let mut tags: Vec<_> = out.iter().map(Reported::tag).collect();
            tags.sort_unstable();
            tags
        };
        let first = ready().len();
        assert_eq!(first, if is_poll(sys) { 150 } else { 32 });
        // The room doubles until all of them fit.
        assert!((0..3).any(|_| ready().len() == 150));
        assert_eq!(ready(), (0..150).collect::<Vec<_>>());
    });
}

#[test]
fn a_wait_is_never_shorter_than_asked() {
    each(|sys| {
        for micros in [1, 300, 1000, 1001, 2500] {
            let timeout = Duration::from_micros(micros);
            let start = Instant::now();
            assert_eq!(wait(sys, timeout), []);
            assert!(start.elapsed() >= timeout, "{timeout:?}: {:?} on {}", start.elapsed(), sys.name());
        }
    });
}

#[test]
fn the_clock_does_not_go_back() {
    each(|sys| {
        let before = sys.now();
        let start = Instant::now();
        thread::sleep(Duration::from_millis(2));
        let passed = sys.now().since(before);
        assert!(passed >= Duration::from_millis(2) && passed <= start.elapsed() + Duration::from_millis(1));
        assert!(sys.wall() > std::time::UNIX_EPOCH);
    });
}

#[test]
fn another_thread_wakes_a_wait_without_end() {
    each(|sys| {
        let waker = sys.waker();
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        let mut out = Vec::new();
        sys.wait(&mut out, None).unwrap();
        assert_eq!(out, [Reported::new(WAKE_TAG, Report::READ)]);
        other.join().unwrap();
    });
}

#[test]
fn many_wakes_are_one_report_until_cleared() {
    each(|sys| {
        let waker = sys.waker();
        assert!(Arc::ptr_eq(&waker, &sys.waker()));
        for _ in 0..3 {
            waker.wake();
        }
        assert_eq!(ready(sys), [wake_report()]);
        assert_eq!(ready(sys), [wake_report()]);
        waker.clear();
        assert_eq!(ready(sys), []);
        waker.clear();
        waker.wake();
        assert_eq!(ready(sys), [wake_report()]);
    });
}

#[test]
fn the_backends_fd_is_readable_when_something_is_ready() {
    each(|sys| {
        let Some(fd) = sys.poll_fd() else {
            assert_eq!(sys.name(), "poll");
            return;
        };
        let outer = (METHODS[METHODS.len() - 1].make)().unwrap();
        outer.change(fd, 1, NONE, READ).unwrap();
        assert_eq!(ready(&*outer), []);
        sys.waker().wake();
        assert_eq!(ready(&*outer), [(1, Report::READ)]);
    });
}

/// Says that a `Sys` may be used from two threads as the trait's users are allowed to: `change` during a `wait`.
struct Shared<'a>(&'a dyn Sys);

// SAFETY: one thread waits and the other only calls `change`, which backends allow.
unsafe impl Sync for Shared<'_> {}

#[test]
fn a_change_by_another_thread_is_seen_by_the_wait_that_runs() {
    each(|sys| {
        let (a, mut b) = pair();
        b.write_all(b"x").unwrap();
        let shared = Shared(sys);
        let shared = &shared;
        thread::scope(|scope| {
            let fd = a.as_raw_fd();
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(20));
                shared.0.change(fd, 3, NONE, READ).unwrap();
            });
            let start = Instant::now();
            let mut seen = wait(sys, LONG);
            if seen == [wake_report()] {
                // Poll was looking at a copy: it is woken to look again.
                sys.waker().clear();
                seen = wait(sys, LONG);
            }
            assert_eq!(seen, [(3, Report::READ)]);
            assert!(start.elapsed() < LONG / 2);
        });
    });
}

#[test]
fn what_another_thread_removed_during_a_wait_is_not_reported() {
    each(|sys| {
        let (mut a, mut b) = pair();
        sys.change(a.as_raw_fd(), 3, NONE, READ).unwrap();
        let shared = Shared(sys);
        let shared = &shared;
        thread::scope(|scope| {
            let (fd, b) = (a.as_raw_fd(), &mut b);
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(20));
                shared.0.change(fd, 3, READ, NONE).unwrap();
                b.write_all(b"x").unwrap();
            });
            let seen = wait(sys, Duration::from_millis(100));
            assert!(seen.iter().all(|&(tag, _)| tag == WAKE_TAG), "{seen:?} on {}", sys.name());
        });
        a.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn a_sys_may_move_to_another_thread() {
    for method in METHODS {
        let sys = (method.make)().unwrap();
        let (a, mut b) = pair();
        sys.change(a.as_raw_fd(), 1, NONE, READ).unwrap();
        struct Moved(std::rc::Rc<dyn Sys>);
        // SAFETY: the only reference is moved.
        unsafe impl Send for Moved {}
        let moved = Moved(sys);
        b.write_all(b"x").unwrap();
        thread::spawn(move || {
            let moved = moved;
            assert_eq!(ready(&*moved.0), [(1, Report::READ)]);
        })
        .join()
        .unwrap();
    }
}
