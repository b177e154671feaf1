//! The poll backend: on every unix, for every kind of fd, at a cost that grows with the number of fds.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;
use std::{io, mem};

use libc::{c_short, pollfd};

use crate::interest::{Features, Interest, Report};

use super::common::Backend;
use super::os;
use super::seam::{Reported, WAKE_TAG, Wake, wake_first};
use super::wake::Waker;

/// A set for poll(2).
///
/// A number that was closed and opened again cannot be told from the one that was added, since poll(2) knows nothing
/// but the number. One that is closed is told: by `change` with EBADF, by `wait` with `INVALID`.
pub(crate) struct Poll {
    /// Locked for a copy before and a look after each wait. It is a mutex because another thread may `change` while
    /// one waits.
    table: Mutex<Table>,
    waker: Arc<Waker>,
}

#[derive(Default)]
struct Table {
    /// What is watched, in no order that matters; the waker is in it like any other fd.
    set: Set,
    /// Where each fd stands in `set`.
    places: HashMap<RawFd, usize>,
    /// A wait is looking at a copy, so a change must wake it to be seen.
    waiting: bool,
    /// Memory for the next wait's copy.
    spare: Set,
}

/// Two arrays of one length: what the kernel wants to see, and the tags.
#[derive(Default)]
struct Set {
    fds: Vec<pollfd>,
    tags: Vec<u64>,
}

impl Poll {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing of the user's runs under this lock, and each change is complete in itself.
        self.table.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Backend for Poll {
    const NAME: &'static str = "poll";
    const FEATURES: Features =
        if os::POLL_CLOSED == 0 { Features::ANY_FD } else { Features::ANY_FD.union(Features::EARLY_CLOSE) };

    fn new(waker: &Arc<Waker>) -> io::Result<Poll> {
        let mut table = Table::default();
        table.put(waker.fd(), WAKE_TAG, Interest::READ);
        Ok(Poll { table: Mutex::new(table), waker: Arc::clone(waker) })
    }

    fn change(&self, fd: RawFd, tag: u64, old: Interest, new: Interest) -> io::Result<()> {
        // poll(2) would tell a closed fd only at the next wait, and a negative one never; the caller wants it now.
        if !new.is_empty() && (old.is_empty() || old == new) && !is_open(fd) {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let mut table = self.table();
        match (old.is_empty(), new.is_empty()) {
            (true, true) => return Ok(()),
            (false, true) => table.remove(fd),
            (false, false) if !table.places.contains_key(&fd) => {
                return Err(io::Error::from_raw_os_error(libc::ENOENT));
            }
            (_, false) => table.put(fd, tag, new),
        }
        let waiting = table.waiting;
        drop(table);
        if waiting {
            self.waker.wake();
        }
        Ok(())
    }

    fn wait(&self, out: &mut Vec<Reported>, timeout: Option<Duration>) -> io::Result<()> {
        out.clear();
        let mut asked = self.table().begin();
        let answer = os::poll(&mut asked.fds, timeout);
        let mut table = self.table();
        table.waiting = false;
        let result = match answer {
            Ok(n) => table.collect(&asked, n, out),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => Ok(()),
            Err(error) => Err(error),
        };
        table.spare = asked;
        wake_first(out);
        result
    }

    fn after_fork(&self) -> io::Result<()> {
        let mut fresh = Table::default();
        fresh.put(self.waker.fd(), WAKE_TAG, Interest::READ);
        // Held by a thread of the parent at the fork, it is held in the child for ever: better told than waited for.
        let mut table = match self.table.try_lock() {
            Ok(table) => table,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(
                    io::ErrorKind::Deadlock,
                    "another thread was using the loop when the process forked",
                ));
            }
        };
        *table = fresh;
        Ok(())
    }

    fn poll_fd(&self) -> Option<RawFd> {
        None
    }
}

impl Table {
    /// Adds the fd or changes what is known of it.
    fn put(&mut self, fd: RawFd, tag: u64, interest: Interest) {
        let entry = pollfd { fd, events: bits(interest), revents: 0 };
        match self.places.get(&fd) {
            Some(&at) => {
                self.set.fds[at] = entry;
                self.set.tags[at] = tag;
            }
            None => {
                self.places.insert(fd, self.set.fds.len());
                self.set.fds.push(entry);
                self.set.tags.push(tag);
            }
        }
    }

    fn remove(&mut self, fd: RawFd) {
        let Some(at) = self.places.remove(&fd) else { return };
        self.set.fds.swap_remove(at);
        self.set.tags.swap_remove(at);
        if let Some(moved) = self.set.fds.get(at) {
            self.places.insert(moved.fd, at);
        }
    }

    /// The copy that a wait works on.
    fn begin(&mut self) -> Set {
        self.waiting = true;
        let mut copy = mem::take(&mut self.spare);
        copy.fds.clone_from(&self.set.fds);
        copy.tags.clone_from(&self.set.tags);
        copy
    }

    /// Appends the `left` entries of `asked` that are ready, except those that have been removed or given another tag
    /// since it was copied.
    fn collect(&self, asked: &Set, mut left: usize, out: &mut Vec<Reported>) -> io::Result<()> {
        for (entry, &tag) in asked.fds.iter().zip(&asked.tags) {
            if left == 0 {
                break;
            }
            if entry.revents == 0 {
                continue;
            }
            left -= 1;
            let now = self.places.get(&entry.fd).and_then(|&at| self.set.tags.get(at));
            if now != Some(&tag) {
                continue;
            }
            let report = report(entry.revents);
            if tag == WAKE_TAG && report.contains(Report::INVALID) {
                // Somebody closed our wake fd. Reported as a wake it would be one for ever.
                return Err(io::Error::from_raw_os_error(libc::EBADF));
            }
            out.push(Reported::new(tag, report));
        }
        Ok(())
    }
}

fn is_open(fd: RawFd) -> bool {
    // SAFETY: fcntl(2) F_GETFD takes no further argument.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

fn bits(interest: Interest) -> c_short {
    let pairs = [
        (Interest::READ, libc::POLLIN),
        (Interest::WRITE, libc::POLLOUT),
        (Interest::CLOSED, os::POLL_CLOSED),
    ];
    pairs.iter().filter(|(i, _)| interest.contains(*i)).fold(0, |bits, (_, bit)| bits | bit)
}

fn report(revents: c_short) -> Report {
    let pairs = [
        (Report::READ, libc::POLLIN),
        (Report::WRITE, libc::POLLOUT),
        (Report::CLOSED, os::POLL_CLOSED),
        (Report::HUP, libc::POLLHUP),
        (Report::ERR, libc::POLLERR),
        (Report::INVALID, libc::POLLNVAL),
    ];
    let mut report = Report::empty();
    for (bit, mask) in pairs {
        report.set(bit, revents & mask != 0);
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_lock_that_the_parent_held_is_an_error_in_the_child_and_no_hang() {
        let poll = Poll::new(&Arc::new(Waker::new().unwrap())).unwrap();
        let held = poll.table();
        assert_eq!(poll.after_fork().unwrap_err().kind(), io::ErrorKind::Deadlock);
        drop(held);
        poll.after_fork().unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_wake_fd_that_somebody_closed_is_an_error_and_no_endless_wake() {
        let waker = Arc::new(Waker::new().unwrap());
        let poll = Poll::new(&waker).unwrap();
        let mut asked = poll.table().begin();
        asked.fds[0].revents = libc::POLLNVAL;
        let mut out = Vec::new();
        let error = poll.table().collect(&asked, 1, &mut out).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        assert_eq!(out, []);
    }
}
