//! The kqueue backend, over the two system calls of `system`, which only systems with kqueue(2) have.
//!
//! - An fd has up to two filters, READ and WRITE; `translate` decides which, and what their kevents mean. A report may
//!   say more than was asked for: the read filter tells `CLOSED` to readers, and READ to those who want `CLOSED` alone.
//! - close(2) takes the fd's filters away, silently (kqueue(2)). So `wait` never reports a closed fd, and `change` tells
//!   it, like epoll, and unlike poll also if the number has been reused: `EBADF` or `ENOENT`.
//! - `EARLY_CLOSE`: `EV_EOF` may come while there is still data to be read (kqueue(2)), so it is told without reading.
//!   To those who want nothing but `CLOSED` it is told once, not again and again.
//! - `ANY_FD`: regular files are taken, but a file at its end is not readable here, where it is with poll(2). A filter
//!   that a kind of file does not have is refused by `change` with the kernel's errno: kqueue(2) says so of writing to
//!   regular files. So is, on some systems, writing to a pipe that nobody reads (`EPIPE`).
//! - A kqueue is not inherited by a child of fork(2) (kqueue(2)), so that in a child its number is free. It may be some
//!   other file's by the time of `after_fork`; then the new kqueue has another number.

pub(super) mod translate;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use crate::interest::{Features, Interest};

use self::translate::{Kevent, MOST_CHANGES, Merge, changes, failure};
use super::common::{Backend, timespec};
use super::fork::forks;
use super::net;
use super::seam::{Reported, WAKE_TAG, wake_first};
use super::wake::Waker;

/// Kevents that a first wait can report.
const FIRST_EVENTS: usize = 32;

/// Kevents that a wait can report at most; what is left comes with the next.
const MOST_EVENTS: usize = 4096;

/// kqueue(2) and kevent(2): what cannot be tried where they are not.
pub(super) trait Calls {
    /// `struct kevent` as this system lays it out.
    type Raw: Copy;

    const EMPTY: Self::Raw;

    fn pack(kevent: &Kevent) -> Self::Raw;

    /// `None` for a filter that is not ours.
    fn unpack(raw: &Self::Raw) -> Option<Kevent>;

    /// A new queue, close-on-exec.
    fn kqueue(&self) -> io::Result<OwnedFd>;

    /// Makes the changes, then waits for events and fills in the number of them that it gives; receipts come first,
    /// and if there are any it does not wait.
    fn kevent(
        &self,
        queue: RawFd,
        changes: &[Self::Raw],
        events: &mut [Self::Raw],
        timeout: Option<libc::timespec>,
    ) -> io::Result<usize>;
}

/// A kqueue. What a kevent carries is the tag alone, so an event of an fd that has been given up is known by it.
pub(super) struct Kqueue<C: Calls> {
    calls: C,
    /// Owned as long as `forks` is what it was.
    queue: Cell<RawFd>,
    /// `forks()` when the queue was made. In a child it is gone, and its number may be somebody else's.
    forks: Cell<u64>,
    waker: Arc<Waker>,
    /// Room for the next wait's kevents, all initialised; taken out during the wait.
    events: Cell<Vec<C::Raw>>,
    merge: Cell<Merge>,
}

impl<C: Calls> Kqueue<C> {
    fn over(calls: C, waker: &Arc<Waker>) -> io::Result<Kqueue<C>> {
        let queue = Cell::new(calls.kqueue()?.into_raw_fd());
        let (events, merge) = (Cell::default(), Cell::default());
        let kqueue =
            Kqueue { calls, queue, forks: Cell::new(forks()), waker: Arc::clone(waker), events, merge };
        kqueue.watch_waker()?;
        Ok(kqueue)
    }

    fn watch_waker(&self) -> io::Result<()> {
        self.tell(self.waker.fd(), WAKE_TAG, Interest::empty(), Interest::READ)
    }

    /// Makes the changes of one transition; on failure some of them are made.
    fn tell(&self, fd: RawFd, tag: u64, old: Interest, new: Interest) -> io::Result<()> {
        let mut sent = [C::EMPTY; MOST_CHANGES];
        let mut receipts = sent;
        let mut len = 0;
        for change in changes(fd, tag, old, new) {
            sent[len] = C::pack(&change);
            len += 1;
        }
        // Receipts fill all the room there is, so that it neither waits nor takes events.
        let timeout = timespec(Some(Duration::ZERO));
        let n = self.calls.kevent(self.queue.get(), &sent[..len], &mut receipts[..len], timeout)?;
        if n < len {
            return Err(io::Error::other("kevent(2) has not answered every change"));
        }
        let receipts = receipts[..len].iter().filter_map(C::unpack);
        match failure(old, new, changes(fd, tag, old, new).zip(receipts)) {
            None => Ok(()),
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn close_queue(&self) {
        if self.forks.get() == forks() {
            net::close(self.queue.get());
        }
    }
}

impl<C: Calls + Default> Backend for Kqueue<C> {
    const NAME: &'static str = "kqueue";
    const FEATURES: Features =
        Features::EDGE.union(Features::O1).union(Features::ANY_FD).union(Features::EARLY_CLOSE);

    fn new(waker: &Arc<Waker>) -> io::Result<Kqueue<C>> {
        Kqueue::over(C::default(), waker)
    }

    fn change(&self, fd: RawFd, tag: u64, old: Interest, new: Interest) -> io::Result<()> {
        if old.is_empty() && new.is_empty() {
            return Ok(());
        }
        if fd < 0 {
            // `ident` is unsigned: it would be some other number.
            return if new.is_empty() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EBADF)) };
        }
        let told = self.tell(fd, tag, old, new);
        if told.is_err() && !new.is_empty() {
            // Half of it may be watched. The error says that nothing is.
            let _ = self.tell(fd, tag, Interest::empty(), Interest::empty());
        }
        told
    }

    fn wait(&self, out: &mut Vec<Reported>, timeout: Option<Duration>) -> io::Result<()> {
        out.clear();
        let mut events = self.events.take();
        if events.is_empty() {
            events.resize(FIRST_EVENTS, C::EMPTY);
        }
        let result = match self.calls.kevent(self.queue.get(), &[], &mut events, timespec(timeout)) {
            Ok(n) => {
                let mut merge = self.merge.take();
                merge.append(events[..n].iter().filter_map(C::unpack), out);
                wake_first(out);
                self.merge.set(merge);
                if n == events.len() && n < MOST_EVENTS {
                    events.resize(n * 2, C::EMPTY);
                }
                Ok(())
            }
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => Ok(()),
            Err(error) => Err(error),
        };
        self.events.set(events);
        result
    }

    fn after_fork(&self) -> io::Result<()> {
        let new = self.calls.kqueue()?;
        self.close_queue();
        self.queue.set(numbered(new, self.queue.get()).into_raw_fd());
        self.forks.set(forks());
        self.watch_waker()
    }

    fn poll_fd(&self) -> Option<RawFd> {
        Some(self.queue.get())
    }
}

impl<C: Calls> Drop for Kqueue<C> {
    fn drop(&mut self) {
        self.close_queue();
    }
}

/// `fd` under the given number if that is free, else under the number that it has. Takes no number from anybody.
fn numbered(fd: OwnedFd, number: RawFd) -> OwnedFd {
    if fd.as_raw_fd() == number {
        return fd;
    }
    // SAFETY: fcntl(2) F_DUPFD_CLOEXEC takes a number, and leaves alone what is open.
    let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, number) };
    if copy < 0 {
        return fd;
    }
    // SAFETY: fcntl(2) has made this fd for us alone: the lowest free one that is not below `number`.
    let copy = unsafe { OwnedFd::from_raw_fd(copy) };
    if copy.as_raw_fd() == number { copy } else { fd }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::{BTreeMap, VecDeque};
    use std::fs::File;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicI32, Ordering};

    use super::translate::{EV_ADD, EV_CLEAR, EV_DELETE, EV_EOF, EV_ERROR, EV_RECEIPT, Filter};
    use super::*;
    use crate::interest::Report;

    const NONE: Interest = Interest::empty();
    const READ: Interest = Interest::READ;
    const WRITE: Interest = Interest::WRITE;

    /// Open in the model alone, and no number of a waker.
    const FD: RawFd = 5000;

    /// What kqueue(2) says of a queue, as far as the backend relies on it.
    #[derive(Default)]
    struct Model {
        /// `is edge-triggered` and the tag, by fd and whether it is the write filter.
        filters: BTreeMap<(RawFd, bool), (bool, u64)>,
        closed: Vec<RawFd>,
        /// Filters that a file does not have, and the errno that says so.
        refused: Vec<(RawFd, Filter, i32)>,
        /// What the next waits give.
        batches: VecDeque<io::Result<Vec<Kevent>>>,
        /// For each wait how many events it could take and how long it was to last.
        waits: Vec<(usize, Option<i64>)>,
        queues: usize,
    }

    impl Model {
        fn receipt(&mut self, change: &Kevent) -> i32 {
            assert!(change.flags & EV_RECEIPT != 0);
            if self.closed.contains(&change.fd) {
                return libc::EBADF;
            }
            let key = (change.fd, change.filter == Filter::Write);
            match change.flags & (EV_ADD | EV_DELETE) {
                EV_DELETE => self.filters.remove(&key).map_or(libc::ENOENT, |_| 0),
                EV_ADD => {
                    let refused = self.refused.iter().find(|r| (r.0, r.1) == (change.fd, change.filter));
                    if let Some(&(_, _, errno)) = refused {
                        return errno;
                    }
                    // An existing one keeps its mode.
                    let edge = self.filters.get(&key).map_or(change.flags & EV_CLEAR != 0, |old| old.0);
                    self.filters.insert(key, (edge, change.tag));
                    0
                }
                _ => libc::EINVAL,
            }
        }

        /// close(2).
        fn forget(&mut self, fd: RawFd) {
            self.filters.retain(|&(other, _), _| other != fd);
        }

        fn of(&self, fd: RawFd) -> Vec<(bool, bool, u64)> {
            let of_fd = self.filters.range((fd, false)..=(fd, true));
            of_fd.map(|(&(_, is_write), &(edge, tag))| (is_write, edge, tag)).collect()
        }
    }

    #[derive(Clone, Default)]
    struct Fake(Rc<RefCell<Model>>);

    impl Calls for Fake {
        type Raw = Kevent;

        const EMPTY: Kevent = Kevent { fd: -1, filter: Filter::Read, flags: 0, fflags: 0, data: 0, tag: 0 };

        fn pack(kevent: &Kevent) -> Kevent {
            *kevent
        }

        fn unpack(raw: &Kevent) -> Option<Kevent> {
            Some(*raw)
        }

        fn kqueue(&self) -> io::Result<OwnedFd> {
            let mut model = self.0.borrow_mut();
            model.queues += 1;
            model.filters.clear();
            // A number that no test takes that runs beside this one, also when it has been closed.
            static NEXT: AtomicI32 = AtomicI32::new(700);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let file = File::open("/dev/null")?;
            // SAFETY: fcntl(2) F_DUPFD_CLOEXEC takes a number.
            let fd = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, number) };
            assert_eq!(fd, number);
            // SAFETY: fcntl(2) has made this fd for us alone.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        }

        fn kevent(
            &self,
            queue: RawFd,
            changes: &[Kevent],
            events: &mut [Kevent],
            timeout: Option<libc::timespec>,
        ) -> io::Result<usize> {
            assert!(is_open(queue));
            let mut model = self.0.borrow_mut();
            if !changes.is_empty() {
                assert_eq!(events.len(), changes.len(), "with room to spare it would take events");
                for (event, change) in events.iter_mut().zip(changes) {
                    *event = Kevent { flags: EV_ERROR, data: model.receipt(change).into(), ..*change };
                }
                return Ok(changes.len());
            }
            model.waits.push((events.len(), timeout.map(|t| t.tv_sec * 1_000_000_000 + t.tv_nsec)));
            let batch = model.batches.pop_front().unwrap_or(Ok(Vec::new()))?;
            let n = batch.len().min(events.len());
            events[..n].copy_from_slice(&batch[..n]);
            Ok(n)
        }
    }

    fn is_open(fd: RawFd) -> bool {
        // SAFETY: fcntl(2) F_GETFD takes no further argument.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    fn made() -> (Kqueue<Fake>, Rc<RefCell<Model>>) {
        let fake = Fake::default();
        let model = Rc::clone(&fake.0);
        (Kqueue::over(fake, &Arc::new(Waker::new().unwrap())).unwrap(), model)
    }

    fn errno<T>(result: io::Result<T>) -> Option<i32> {
        result.err().and_then(|error| error.raw_os_error())
    }

    fn interests() -> impl Iterator<Item = Interest> {
        let all = [READ, WRITE, Interest::CLOSED, Interest::EDGE];
        (0..16).map(move |n: u8| (0..4).filter(|bit| n >> bit & 1 != 0).map(|bit| all[bit]).collect())
    }

    /// The filters of an interest: `is write`, `is edge-triggered`, tag.
    fn filters(interest: Interest, tag: u64) -> Vec<(bool, bool, u64)> {
        let edge = interest.contains(Interest::EDGE);
        let reads = interest.contains(READ);
        let read = interest.intersects(READ | Interest::CLOSED).then_some((false, edge || !reads, tag));
        let write = interest.contains(WRITE).then_some((true, edge, tag));
        read.into_iter().chain(write).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_change_leaves_exactly_what_is_wanted_from_every_state() {
        let (kqueue, model) = made();
        for before in interests() {
            for after in interests() {
                kqueue.change(FD, 1, NONE, before).unwrap();
                assert_eq!(model.borrow().of(FD), filters(before, 1));
                kqueue.change(FD, 2, before, after).unwrap();
                if before != NONE || after != NONE {
                    assert_eq!(model.borrow().of(FD), filters(after, 2), "{before:?} to {after:?}");
                }
                kqueue.change(FD, 2, after, NONE).unwrap();
                assert_eq!(model.borrow().of(FD), []);
            }
        }
        assert_eq!(model.borrow().of(kqueue.waker.fd()), [(false, false, WAKE_TAG)]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_registration_left_behind_is_replaced_but_for_its_mode() {
        let (kqueue, model) = made();
        kqueue.change(FD, 1, NONE, WRITE).unwrap();
        kqueue.change(FD, 2, NONE, READ).unwrap();
        assert_eq!(model.borrow().of(FD), [(false, false, 2)]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_number_that_was_closed_or_reused_is_told_and_not_watched() {
        for (old, new) in
            [(READ, READ), (READ, READ | WRITE), (READ | WRITE, WRITE), (Interest::CLOSED, READ)]
        {
            let (kqueue, model) = made();
            kqueue.change(FD, 1, NONE, old).unwrap();
            model.borrow_mut().forget(FD);
            assert_eq!(errno(kqueue.change(FD, 1, old, new)), Some(libc::ENOENT), "{old:?} to {new:?}");
            assert_eq!(model.borrow().of(FD), []);
            kqueue.change(FD, 2, NONE, new).unwrap();
            assert_eq!(model.borrow().of(FD), filters(new, 2));
            model.borrow_mut().forget(FD);
            model.borrow_mut().closed.push(FD);
            assert_eq!(errno(kqueue.change(FD, 2, new, new)), Some(libc::EBADF));
            kqueue.change(FD, 2, new, NONE).unwrap();
            assert_eq!(errno(kqueue.change(FD, 3, NONE, new)), Some(libc::EBADF));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_negative_number_is_not_open() {
        let (kqueue, model) = made();
        for fd in [-1, i32::MIN] {
            assert_eq!(errno(kqueue.change(fd, 1, NONE, READ)), Some(libc::EBADF));
            kqueue.change(fd, 1, READ, NONE).unwrap();
            kqueue.change(fd, 1, NONE, NONE).unwrap();
        }
        assert_eq!(model.borrow().filters.len(), 1, "the waker");
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_filter_that_is_refused_leaves_nothing_of_its_change() {
        let (kqueue, model) = made();
        model.borrow_mut().refused.push((FD, Filter::Write, libc::EPIPE));
        assert_eq!(errno(kqueue.change(FD, 1, NONE, READ | WRITE)), Some(libc::EPIPE));
        assert_eq!(model.borrow().of(FD), []);
        kqueue.change(FD, 1, NONE, READ).unwrap();
        // That it is not watched any more is all that the caller has to know.
        assert_eq!(errno(kqueue.change(FD, 1, READ, READ | WRITE)), Some(libc::ENOENT));
        assert_eq!(model.borrow().of(FD), []);
        assert_eq!(model.borrow().filters.len(), 1, "the waker is still there");
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_wait_reports_what_the_kernel_gives_and_asks_for_more_next_time() {
        let (kqueue, model) = made();
        let event = |fd| Kevent { fd, tag: 10 + fd as u64, ..Fake::EMPTY };
        let mut expected_room = vec![];
        for round in 0..10 {
            let room = (32 << round).min(MOST_EVENTS);
            expected_room.push((room, Some(1_500_000_000)));
            model.borrow_mut().batches.push_back(Ok((0..room as RawFd).map(event).collect()));
            let mut out = vec![Reported::new(1, Report::HUP)];
            kqueue.wait(&mut out, Some(Duration::from_millis(1500))).unwrap();
            assert_eq!(out.len(), room, "what was there is replaced");
            assert_eq!(out[room - 1], Reported::new(9 + room as u64, Report::READ));
        }
        assert_eq!(model.borrow().waits, expected_room);
        kqueue.wait(&mut Vec::new(), None).unwrap();
        assert_eq!(model.borrow().waits.last(), Some(&(MOST_EVENTS, None)));
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn both_filters_of_an_fd_make_one_report() {
        let (kqueue, model) = made();
        let read = Kevent { fd: 5, flags: EV_EOF, tag: 7, ..Fake::EMPTY };
        let write = Kevent { filter: Filter::Write, ..read };
        model.borrow_mut().batches.push_back(Ok(vec![read, Kevent { fd: 6, tag: 8, ..Fake::EMPTY }, write]));
        let mut out = Vec::new();
        kqueue.wait(&mut out, Some(Duration::ZERO)).unwrap();
        let both = Report::READ | Report::WRITE | Report::CLOSED | Report::HUP;
        assert_eq!(out, [Reported::new(7, both), Reported::new(8, Report::READ)]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn an_interrupted_wait_is_none_and_a_failed_one_is_told() {
        let (kqueue, model) = made();
        for (errno_given, told) in [(libc::EINTR, None), (libc::EBADF, Some(libc::EBADF))] {
            model.borrow_mut().batches.push_back(Err(io::Error::from_raw_os_error(errno_given)));
            let mut out = Vec::new();
            assert_eq!(errno(kqueue.wait(&mut out, None)), told);
            assert_eq!(out, []);
        }
        kqueue.wait(&mut Vec::new(), None).unwrap();
        assert_eq!(model.borrow().waits, [(32, None); 3], "the room is kept");
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_child_gets_a_queue_of_its_own_and_takes_no_number_from_anybody() {
        let (kqueue, model) = made();
        let number = kqueue.queue.get();
        // As it is in a child: another count of forks, and the queue is not there.
        kqueue.forks.set(u64::MAX);
        close(number);
        kqueue.after_fork().unwrap();
        assert_eq!(kqueue.poll_fd(), Some(number));
        assert_eq!(model.borrow().queues, 2);
        assert_eq!(model.borrow().of(kqueue.waker.fd()), [(false, false, WAKE_TAG)]);
        // The child of the child has opened something before.
        kqueue.forks.set(u64::MAX);
        kqueue.after_fork().unwrap();
        let other = kqueue.queue.get();
        assert_ne!(other, number);
        assert!(is_open(number), "it is not ours");
        assert_eq!(model.borrow().of(kqueue.waker.fd()), [(false, false, WAKE_TAG)]);
        // Without a fork the old queue is ours and goes.
        kqueue.after_fork().unwrap();
        assert_eq!(kqueue.queue.get(), other);
        drop(kqueue);
        assert!(!is_open(other));
        assert!(is_open(number));
        close(number);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn dropping_it_in_a_child_closes_nothing() {
        let (kqueue, _) = made();
        let number = kqueue.queue.get();
        kqueue.forks.set(u64::MAX);
        drop(kqueue);
        assert!(is_open(number));
        close(number);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_number_is_given_where_it_is_free() {
        let fd = Fake::default().kqueue().unwrap();
        let was = fd.as_raw_fd();
        let fd = numbered(fd, was);
        assert_eq!(fd.as_raw_fd(), was);
        let taken = fd.try_clone().unwrap();
        let fd = numbered(fd, taken.as_raw_fd());
        assert_eq!(fd.as_raw_fd(), was);
        assert!(is_open(taken.as_raw_fd()));
        let fd = numbered(fd, 820);
        assert_eq!(fd.as_raw_fd(), 820);
        assert!(!is_open(was), "one number is enough");
        // A number that cannot be is not worth an error.
        assert_eq!(numbered(fd, i32::MAX).as_raw_fd(), 820);
    }

    fn close(fd: RawFd) {
        // SAFETY: close(2) takes a number; the tests close only what they own.
        unsafe { libc::close(fd) };
    }
}
