//! Forks, each test in a process of its own.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use super::super::fork_count;
use super::*;

fn raise(signal: i32) {
    // SAFETY: raise(3) takes a number; it returns after the handler has.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

fn taken(sys: &dyn Sys) -> Vec<(i32, u32)> {
    let mut out = Vec::new();
    sys.take_signals(&mut out);
    out
}

fn is_cloexec(fd: RawFd) -> bool {
    // SAFETY: fcntl(2) F_GETFD takes no further argument.
    unsafe { libc::fcntl(fd, libc::F_GETFD) & libc::FD_CLOEXEC != 0 }
}

child_test! {
    fn a_fork_is_counted_in_the_child_alone() {
        let before = fork_count();
        assert!(ended_well(fork(|| {
            assert_eq!(fork_count(), before + 1);
            assert!(ended_well(fork(|| assert_eq!(fork_count(), before + 2))));
            assert_eq!(fork_count(), before + 1);
        })));
        assert_eq!(fork_count(), before);
    }
}

child_test! {
    fn the_child_gets_a_set_of_its_own_and_the_parent_notices_nothing() {
        each(|sys| {
            let (a, mut b) = UnixStream::pair().unwrap();
            sys.change(a.as_raw_fd(), 1, NONE, READ).unwrap();
            let number = sys.poll_fd();
            let child = fork(|| {
                let waker = sys.waker();
                sys.after_fork().unwrap();
                assert_eq!(sys.poll_fd(), number);
                assert!(number.is_none_or(is_cloexec));
                // A wake that was asked for at the moment of the fork is not lost: there is always one.
                assert_eq!(ready(sys), [wake_report()]);
                waker.clear();
                assert_eq!(ready(sys), []);
                // Nothing of the parent's is in it until it is added from nothing.
                b.write_all(b"x").unwrap();
                assert_eq!(ready(sys), []);
                sys.change(a.as_raw_fd(), 2, NONE, READ).unwrap();
                assert_eq!(ready(sys), [(2, Report::READ)]);
                sys.change(a.as_raw_fd(), 2, READ, NONE).unwrap();
                // The handle from before the fork wakes this process and not the other.
                waker.wake();
                assert_eq!(ready(sys), [wake_report()]);
            });
            assert!(ended_well(child));
            assert_eq!(ready(sys), [(1, Report::READ)], "on {}", sys.name());
            sys.waker().wake();
            assert_eq!(ready(sys), [(1, Report::READ), wake_report()]);
            sys.waker().clear();
            sys.change(a.as_raw_fd(), 1, READ, NONE).unwrap();
            assert_eq!(ready(sys), []);
        });
    }
}

child_test! {
    fn a_child_that_only_drops_the_loop_tells_the_parent_nothing() {
        for method in METHODS {
            let sys = (method.make)().unwrap();
            let (a, mut b) = UnixStream::pair().unwrap();
            sys.change(a.as_raw_fd(), 1, NONE, READ).unwrap();
            sys.signal_add(libc::SIGUSR1).unwrap();
            let theirs = Rc::clone(&sys);
            let child = fork(move || {
                // SAFETY: both references are this process's copies and go; the count is put right to have it end.
                unsafe { Rc::decrement_strong_count(Rc::as_ptr(&theirs)) };
                drop(theirs);
            });
            assert!(ended_well(child));
            b.write_all(b"x").unwrap();
            assert_eq!(ready(&*sys), [(1, Report::READ)]);
            raise(libc::SIGUSR1);
            assert_eq!(taken(&*sys), [(libc::SIGUSR1, 1)]);
        }
    }
}

child_test! {
    fn a_child_signals_itself_and_not_the_parent() {
        each(|sys| {
            sys.signal_add(libc::SIGUSR1).unwrap();
            raise(libc::SIGUSR1);
            sys.waker().clear();
            let child = fork(|| {
                // Before the child has made the loop its own the wake fd is still the parent's.
                raise(libc::SIGUSR1);
                raise(libc::SIGUSR1);
                sys.after_fork().unwrap();
                assert_eq!(taken(sys), [(libc::SIGUSR1, 2)], "the parent's is the parent's");
                sys.waker().clear();
                raise(libc::SIGUSR1);
                assert_eq!(ready(sys), [wake_report()]);
                assert_eq!(taken(sys), [(libc::SIGUSR1, 1)]);
                sys.signal_del(libc::SIGUSR1);
            });
            assert!(ended_well(child));
            assert_eq!(ready(sys), [], "on {}", sys.name());
            assert_eq!(taken(sys), [(libc::SIGUSR1, 1)]);
            sys.signal_del(libc::SIGUSR1);
        });
    }
}

child_test! {
    fn after_fork_in_the_wrong_process_does_no_harm() {
        each(|sys| {
            sys.signal_add(libc::SIGUSR1).unwrap();
            sys.waker().wake();
            raise(libc::SIGUSR1);
            sys.after_fork().unwrap();
            assert_eq!(ready(sys), [wake_report()]);
            assert_eq!(taken(sys), [(libc::SIGUSR1, 1)]);
            sys.waker().clear();
            assert_eq!(ready(sys), []);
            sys.waker().wake();
            assert_eq!(ready(sys), [wake_report()]);
        });
    }
}

child_test! {
    fn a_fork_amid_the_signal_work_of_other_threads_leaves_the_child_able() {
        let stop = &AtomicBool::new(false);
        // What is raised after the loop has gone must not end us.
        // SAFETY: signal(2) with SIG_IGN.
        unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
        thread::scope(|scope| {
            // One takes and gives up the table's lock, the other is in the handler most of the time.
            scope.spawn(move || {
                let sys = (METHODS[0].make)().unwrap();
                while !stop.load(SeqCst) {
                    sys.signal_add(libc::SIGUSR2).unwrap();
                    sys.signal_del(libc::SIGUSR2);
                }
            });
            let sys = (METHODS[0].make)().unwrap();
            sys.signal_add(libc::SIGUSR1).unwrap();
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    raise(libc::SIGUSR1);
                }
            });
            let all_well = (0..100).all(|_| {
                ended_well(fork(|| {
                    sys.after_fork().unwrap();
                    raise(libc::SIGUSR1);
                    assert_eq!(taken(&*sys), [(libc::SIGUSR1, 1)]);
                    sys.signal_del(libc::SIGUSR1);
                    sys.signal_add(libc::SIGUSR2).unwrap();
                }))
            });
            stop.store(true, SeqCst);
            assert!(all_well);
        });
    }
}
