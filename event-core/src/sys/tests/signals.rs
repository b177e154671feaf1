//! Signals, each test in a process of its own.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Instant;
use std::{mem, ptr, thread};

use super::*;

fn make(name: &str) -> Rc<dyn Sys> {
    (METHODS.iter().find(|method| method.name == name).unwrap_or(&METHODS[0]).make)().unwrap()
}

fn raise(signal: i32) {
    // SAFETY: raise(3) takes a number; it returns after the handler has.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

fn set_disposition(signal: i32, handler: libc::sighandler_t) {
    // SAFETY: signal(2); the handlers given are SIG_DFL, SIG_IGN or `theirs`, which bumps an atomic.
    assert_ne!(unsafe { libc::signal(signal, handler) }, libc::SIG_ERR);
}

fn disposition(signal: i32) -> libc::sigaction {
    // SAFETY: all-zero bytes are a valid `sigaction`.
    let mut now: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: sigaction(2) with a null new action only writes the old one.
    assert_eq!(unsafe { libc::sigaction(signal, ptr::null(), &mut now) }, 0);
    now
}

static THEIRS: AtomicU32 = AtomicU32::new(0);

extern "C" fn theirs(_: i32) {
    THEIRS.fetch_add(1, SeqCst);
}

fn theirs_address() -> libc::sighandler_t {
    theirs as *const () as libc::sighandler_t
}

fn taken(sys: &dyn Sys) -> Vec<(i32, u32)> {
    let mut out = Vec::new();
    sys.take_signals(&mut out);
    out
}

child_test! {
    fn every_delivery_is_counted_for_each_loop_that_asked() {
        let loops = [make("epoll"), make("poll"), make("poll")];
        let [a, b, c] = &loops;
        a.signal_add(libc::SIGUSR1).unwrap();
        b.signal_add(libc::SIGUSR1).unwrap();
        b.signal_add(libc::SIGUSR2).unwrap();
        for _ in 0..3 {
            raise(libc::SIGUSR1);
        }
        raise(libc::SIGUSR2);
        assert_eq!(ready(&**a), [wake_report()]);
        assert_eq!(ready(&**b), [wake_report()]);
        assert_eq!(ready(&**c), []);
        assert_eq!(taken(&**a), [(libc::SIGUSR1, 3)]);
        assert_eq!(taken(&**a), []);
        assert_eq!(taken(&**b), [(libc::SIGUSR1, 3), (libc::SIGUSR2, 1)]);
        assert_eq!(taken(&**c), []);
        for sys in &loops {
            sys.waker().clear();
            assert_eq!(ready(&**sys), []);
        }
        b.signal_del(libc::SIGUSR1);
        raise(libc::SIGUSR1);
        assert_eq!(taken(&**a), [(libc::SIGUSR1, 1)]);
        assert_eq!(ready(&**b), []);
    }
}

child_test! {
    fn adding_twice_counts_once() {
        let sys = make("epoll");
        sys.signal_add(libc::SIGUSR1).unwrap();
        sys.signal_add(libc::SIGUSR1).unwrap();
        raise(libc::SIGUSR1);
        assert_eq!(taken(&*sys), [(libc::SIGUSR1, 1)]);
        set_disposition(libc::SIGUSR2, theirs_address());
        sys.signal_del(libc::SIGUSR2);
        assert_eq!(disposition(libc::SIGUSR2).sa_sigaction, theirs_address());
    }
}

child_test! {
    fn a_signal_interrupts_the_wait_which_is_no_error() {
        for method in METHODS {
            let sys = (method.make)().unwrap();
            // Not for this loop: nothing is to be reported, the wait just ends or goes on.
            set_disposition(libc::SIGUSR2, theirs_address());
            // SAFETY: pthread_self(3) has no precondition.
            let waiting = unsafe { libc::pthread_self() } as usize;
            let other = thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                // SAFETY: the thread that waits outlives this one, which it joins.
                unsafe { libc::pthread_kill(waiting as libc::pthread_t, libc::SIGUSR2) };
            });
            let start = Instant::now();
            assert_eq!(wait(&*sys, LONG), []);
            assert!(start.elapsed() < LONG / 2);
            other.join().unwrap();
            // And with a handler of ours, whichever thread gets the signal.
            sys.signal_add(libc::SIGUSR1).unwrap();
            let other = thread::spawn(|| {
                thread::sleep(Duration::from_millis(20));
                raise(libc::SIGUSR1);
            });
            assert_eq!(wait(&*sys, LONG), [wake_report()]);
            assert_eq!(taken(&*sys), [(libc::SIGUSR1, 1)]);
            other.join().unwrap();
        }
    }
}

child_test! {
    fn the_disposition_before_is_restored_by_the_last_one_out() {
        // SAFETY: all-zero bytes are a valid `sigaction`.
        let mut before: libc::sigaction = unsafe { mem::zeroed() };
        before.sa_sigaction = theirs_address();
        before.sa_flags = libc::SA_NODEFER;
        // SAFETY: sigaddset(3) changes a set; all zero is the empty one.
        unsafe { libc::sigaddset(&mut before.sa_mask, libc::SIGUSR2) };
        // SAFETY: sigaction(2) reads one action; `theirs` bumps an atomic.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &before, ptr::null_mut()) }, 0);
        let (a, b) = (make("epoll"), make("poll"));
        a.signal_add(libc::SIGUSR1).unwrap();
        assert!(disposition(libc::SIGUSR1).sa_flags & libc::SA_RESTART != 0);
        b.signal_add(libc::SIGUSR1).unwrap();
        raise(libc::SIGUSR1);
        a.signal_del(libc::SIGUSR1);
        raise(libc::SIGUSR1);
        assert_eq!(THEIRS.load(SeqCst), 0);
        assert_eq!(taken(&*a), []);
        assert_eq!(taken(&*b), [(libc::SIGUSR1, 2)]);
        // Dropping is giving up.
        drop(b);
        let now = disposition(libc::SIGUSR1);
        assert_eq!(now.sa_sigaction, theirs_address());
        assert!(now.sa_flags & libc::SA_NODEFER != 0);
        // SAFETY: sigismember(3) reads a set.
        assert_eq!(unsafe { libc::sigismember(&now.sa_mask, libc::SIGUSR2) }, 1);
        raise(libc::SIGUSR1);
        assert_eq!(THEIRS.load(SeqCst), 1);
        // And all over again.
        a.signal_add(libc::SIGUSR1).unwrap();
        raise(libc::SIGUSR1);
        assert_eq!(taken(&*a), [(libc::SIGUSR1, 1)]);
        a.signal_del(libc::SIGUSR1);
        assert_eq!(disposition(libc::SIGUSR1).sa_sigaction, theirs_address());
    }
}

child_test! {
    fn a_handler_that_the_program_put_over_ours_stays() {
        let sys = make("epoll");
        sys.signal_add(libc::SIGUSR1).unwrap();
        set_disposition(libc::SIGUSR1, theirs_address());
        sys.signal_del(libc::SIGUSR1);
        assert_eq!(disposition(libc::SIGUSR1).sa_sigaction, theirs_address());
    }
}

child_test! {
    fn what_is_no_signal_or_cannot_be_caught_is_einval() {
        let sys = make("epoll");
        for signal in [i32::MIN, -1, 0, 65, 1000, i32::MAX, libc::SIGKILL, libc::SIGSTOP] {
            assert_eq!(sys.signal_add(signal).unwrap_err().raw_os_error(), Some(libc::EINVAL), "{signal}");
            sys.signal_del(signal);
        }
        #[cfg(target_os = "linux")]
        {
            sys.signal_add(64).unwrap();
            raise(64);
            assert_eq!(taken(&*sys), [(64, 1)]);
        }
    }
}

child_test! {
    fn the_65th_loop_with_signals_is_refused_until_one_goes() {
        let mut loops: Vec<_> = (0..64).map(|_| make("poll")).collect();
        for sys in &loops {
            sys.signal_add(libc::SIGUSR1).unwrap();
        }
        let extra = make("epoll");
        let refused = extra.signal_add(libc::SIGUSR1).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
        raise(libc::SIGUSR1);
        for sys in &loops {
            assert_eq!(taken(&**sys), [(libc::SIGUSR1, 1)]);
        }
        assert_eq!(taken(&*extra), []);
        loops.swap_remove(17);
        extra.signal_add(libc::SIGUSR1).unwrap();
        assert_eq!(taken(&*extra), [], "what the loop before it in the slot was owed");
        raise(libc::SIGUSR1);
        assert_eq!(taken(&*extra), [(libc::SIGUSR1, 1)]);
    }
}

child_test! {
    fn pending_deliveries_end_with_the_subscription() {
        let sys = make("epoll");
        set_disposition(libc::SIGWINCH, libc::SIG_IGN);
        sys.signal_add(libc::SIGWINCH).unwrap();
        raise(libc::SIGWINCH);
        sys.signal_del(libc::SIGWINCH);
        assert_eq!(taken(&*sys), []);
        raise(libc::SIGWINCH);
        sys.signal_add(libc::SIGWINCH).unwrap();
        assert_eq!(taken(&*sys), []);
    }
}

child_test! {
    fn nothing_is_lost_or_misdirected_while_loops_come_and_go() {
        let stop = &AtomicBool::new(false);
        let steady = make("epoll");
        steady.signal_add(libc::SIGUSR1).unwrap();
        let raised = thread::scope(|scope| {
            let raisers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(move || {
                        let mut raised = 0u32;
                        loop {
                            raise(libc::SIGUSR1);
                            raised += 1;
                            if stop.load(SeqCst) {
                                return raised;
                            }
                        }
                    })
                })
                .collect();
            for _ in 0..300 {
                let sys = make("poll");
                sys.signal_add(libc::SIGUSR1).unwrap();
                thread::yield_now();
                drop(sys);
                // The numbers of the wake fd that has just been closed: a late handler would write here.
                let (a, b) = UnixStream::pair().unwrap();
                for stream in [&a, &b] {
                    stream.set_nonblocking(true).unwrap();
                }
                thread::yield_now();
                for mut stream in [&a, &b] {
                    let nothing = io::Read::read(&mut stream, &mut [0; 8]);
                    assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
                }
            }
            stop.store(true, SeqCst);
            raisers.into_iter().map(|raiser| raiser.join().unwrap()).sum::<u32>()
        });
        assert_eq!(taken(&*steady), [(libc::SIGUSR1, raised)]);
    }
}

child_test! {
    fn the_handler_keeps_errno() {
        let sys = make("epoll");
        sys.signal_add(libc::SIGUSR1).unwrap();
        // SAFETY: close(2) of no fd sets errno and does no more.
        unsafe { libc::close(-1) };
        raise(libc::SIGUSR1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    }
}

/// All ways to write to a peer that is gone.
fn write_to_nobody() {
    each(|sys| {
        let (a, b) = UnixStream::pair().unwrap();
        drop(b);
        let kind = socket();
        let pieces = [IoSlice::new(b"x"), IoSlice::new(b"y")];
        let epipe = |result: io::Result<usize>| {
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EPIPE));
        };
        epipe(sys.send(a.as_raw_fd(), &kind, b"x"));
        epipe(sys.sendv(a.as_raw_fd(), &kind, &pieces));
        assert_eq!(kind.get(), FdKind::Socket);
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        epipe(sys.send(writer.as_raw_fd(), &kind, b"x"));
        assert_eq!(kind.get(), FdKind::File);
        epipe(sys.send(writer.as_raw_fd(), &kind, b"x"));
        epipe(sys.sendv(writer.as_raw_fd(), &kind, &pieces));
        if cfg!(target_os = "linux") {
            let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
            epipe(sys.sendfile(a.as_raw_fd(), &file, 0, 10));
            epipe(sys.sendfile(writer.as_raw_fd(), &file, 0, 10));
        }
    });
}

fn sigpipe_is_blocked() -> bool {
    // SAFETY: a `sigset_t` is plain bits.
    let mut mask: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: pthread_sigmask(3) with a null set only writes the mask.
    assert_eq!(unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &mut mask) }, 0);
    // SAFETY: sigismember(3) reads a set.
    unsafe { libc::sigismember(&mask, libc::SIGPIPE) == 1 }
}

child_test! {
    fn writing_to_nobody_does_not_kill_a_program_with_the_default_sigpipe() {
        set_disposition(libc::SIGPIPE, libc::SIG_DFL);
        write_to_nobody();
        assert!(!sigpipe_is_blocked());
        // The disposition is what it was.
        assert_eq!(disposition(libc::SIGPIPE).sa_sigaction, libc::SIG_DFL);
    }
}

child_test! {
    fn writing_to_nobody_does_not_call_the_programs_handler() {
        set_disposition(libc::SIGPIPE, theirs_address());
        write_to_nobody();
        assert_eq!(THEIRS.load(SeqCst), 0);
        assert!(!sigpipe_is_blocked());
        raise(libc::SIGPIPE);
        assert_eq!(THEIRS.load(SeqCst), 1);
    }
}

child_test! {
    fn a_sigpipe_that_was_pending_before_stays_so() {
        set_disposition(libc::SIGPIPE, theirs_address());
        // SAFETY: a `sigset_t` is plain bits.
        let mut set: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: sigaddset(3) changes a set.
        unsafe { libc::sigaddset(&mut set, libc::SIGPIPE) };
        // SAFETY: pthread_sigmask(3) reads a set.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) };
        write_to_nobody();
        assert!(sigpipe_is_blocked());
        assert!(!super::super::sigpipe::is_pending(), "ours were taken");
        raise(libc::SIGPIPE);
        write_to_nobody();
        assert!(super::super::sigpipe::is_pending(), "theirs was not");
        // SAFETY: pthread_sigmask(3) reads a set.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut()) };
        assert_eq!(THEIRS.load(SeqCst), 1);
    }
}

child_test! {
    fn writing_to_nobody_is_an_error_where_sigpipe_is_ignored() {
        set_disposition(libc::SIGPIPE, libc::SIG_IGN);
        write_to_nobody();
    }
}

child_test! {
    fn a_read_that_a_signal_interrupts_is_repeated() {
        // Without SA_RESTART and on a blocking fd, where read(2) does give EINTR.
        // SAFETY: all-zero bytes are a valid `sigaction`.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = theirs_address();
        // SAFETY: sigaction(2) reads one action; `theirs` bumps an atomic.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()) }, 0);
        let (pipe_end, pipe_writer) = io::pipe().unwrap();
        let (stream, peer) = UnixStream::pair().unwrap();
        let sys = make("epoll");
        // SAFETY: pthread_self(3) has no precondition.
        let reading = unsafe { libc::pthread_self() } as usize;
        let log = RefCell::new(Vec::new());
        thread::scope(|scope| {
            scope.spawn(move || {
                let (mut pipe_writer, mut peer) = (pipe_writer, peer);
                for turn in 1..=2 {
                    while THEIRS.load(SeqCst) < turn * 3 {
                        thread::sleep(Duration::from_millis(5));
                        // SAFETY: the thread that reads outlives this one, which its scope joins.
                        unsafe { libc::pthread_kill(reading as libc::pthread_t, libc::SIGUSR1) };
                    }
                    let to: &mut dyn io::Write = if turn == 1 { &mut pipe_writer } else { &mut peer };
                    to.write_all(b"done").unwrap();
                }
            });
            for fd in [pipe_end.as_raw_fd(), stream.as_raw_fd()] {
                let mut buf = Vec::with_capacity(16);
                log.borrow_mut().push(sys.recv(fd, &socket(), &mut buf, 16).map(|_| buf).unwrap());
            }
        });
        assert_eq!(log.into_inner(), [b"done", b"done"]);
        assert!(THEIRS.load(SeqCst) >= 6);
    }
}
