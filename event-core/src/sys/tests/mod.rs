//! What every backend has to do, on real pipes and sockets: written once, run on each.

// Miri has none of the backends: it sees no test of these, and what they share is unused there.
#![cfg_attr(miri, allow(dead_code, unused_imports))]

#[cfg(not(miri))]
mod files;
#[cfg(not(miri))]
mod processes;
#[cfg(not(miri))]
mod readiness;
#[cfg(not(miri))]
mod signals;
#[cfg(not(miri))]
mod streams;

use std::cell::Cell;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{self, Command};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use std::{env, fs};

use crate::interest::{Interest, Report};

use super::{FdKind, METHODS, Reported, Sys, WAKE_TAG};

const NONE: Interest = Interest::empty();
const READ: Interest = Interest::READ;
const WRITE: Interest = Interest::WRITE;

/// Longer than anything takes that is going to happen.
const LONG: Duration = Duration::from_secs(20);

/// Runs a test on every backend of this system.
fn each(test: impl Fn(&dyn Sys)) {
    for method in METHODS {
        let sys = (method.make)().unwrap();
        test(&*sys);
    }
}

fn is_kqueue(sys: &dyn Sys) -> bool {
    sys.name() == "kqueue"
}

fn is_poll(sys: &dyn Sys) -> bool {
    sys.name() == "poll"
}

/// One wait: what it reports, by tag.
fn wait(sys: &dyn Sys, timeout: Duration) -> Vec<(u64, Report)> {
    let mut out: Vec<Reported> = Vec::new();
    sys.wait(&mut out, Some(timeout)).unwrap();
    let mut out: Vec<_> = out.into_iter().map(|r| (r.tag(), r.report())).collect();
    out.sort_by_key(|&(tag, _)| tag);
    out
}

/// What is ready now.
fn ready(sys: &dyn Sys) -> Vec<(u64, Report)> {
    wait(sys, Duration::ZERO)
}

fn wake_report() -> (u64, Report) {
    (WAKE_TAG, Report::READ)
}

fn socket() -> Cell<FdKind> {
    Cell::new(FdKind::Socket)
}

/// A number that is not open, another one at each call. It stays so: what tests open takes the lowest ones.
fn closed_number() -> RawFd {
    static NEXT: AtomicI32 = AtomicI32::new(900);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: fcntl(2) F_GETFD takes no further argument.
    assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } < 0);
    number
}

fn close(fd: RawFd) {
    // SAFETY: close(2) takes a number; the tests close only what they own.
    unsafe { libc::close(fd) };
}

/// A test that changes the process (signals, forks): it runs in one of its own, under an alarm.
macro_rules! child_test {
    ($(#[$attr:meta])* fn $name:ident() $body:block) => {
        $(#[$attr])*
        #[test]
        #[cfg_attr(miri, ignore = "a process of its own")]
        fn $name() {
            $crate::sys::tests::in_child(concat!(module_path!(), "::", stringify!($name)), || $body);
        }
    };
}
pub(super) use child_test;

pub(super) fn in_child(path: &str, body: fn()) {
    const CHILD: &str = "EVENT_CORE_TEST_CHILD";
    const DONE: &str = "the child has run to its end";
    if env::var(CHILD).is_ok_and(|running| running == path) {
        // SAFETY: alarm(2) takes a number. SIGALRM ends the process if the test hangs.
        unsafe { libc::alarm(60) };
        body();
        println!("{DONE}");
        return;
    }
    let (_, name) = path.split_once("::").unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, path);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    // Without the words a name that matches no test would pass.
    assert!(output.status.success() && text.contains(DONE), "{}:\n{text}\n{errors}", output.status);
}

/// Runs `body` in a fork. Gives its process id at once.
pub(super) fn fork(body: impl FnOnce()) -> libc::pid_t {
    // SAFETY: fork(2) has no precondition; the child runs `body` and leaves by _exit(2), past the test harness.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: alarm(2) takes a number: a child that hangs ends.
            unsafe { libc::alarm(20) };
            let done = catch_unwind(AssertUnwindSafe(body)).is_ok();
            // SAFETY: _exit(2) does not return and runs nothing of the parent's.
            unsafe { libc::_exit(if done { 0 } else { 1 }) }
        }
        child => {
            assert!(child > 0);
            child
        }
    }
}

/// Waits for a child and says whether it ended well.
pub(super) fn ended_well(child: libc::pid_t) -> bool {
    let mut status = 0;
    loop {
        // SAFETY: waitpid(2) writes one number.
        if unsafe { libc::waitpid(child, &mut status, 0) } == child {
            return libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        }
    }
}
