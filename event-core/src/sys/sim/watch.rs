//! What one loop watches: the simulation's epoll set.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::interest::{Interest, Report};
use crate::sys::seam::Reported;

use super::errno;
use super::waker::SimWaker;
use super::world::ObjId;

/// As in epoll a registration belongs to a number *and* to the open file under it, and lives as long as the file:
/// after `dup` and `close` it is still reported, and a reused number has none.
type Key = (ObjId, RawFd);

#[derive(Clone, Copy, Debug)]
struct Watch {
    tag: u64,
    interest: Interest,
}

/// The registrations, signals and waker of one loop.
#[derive(Debug, Default)]
pub(super) struct WatchSet {
    watches: BTreeMap<Key, Watch>,
    /// Registrations to look at in the next wait: those whose file changed since they were last reported, and the
    /// level-triggered ones that were ready then. A subset of the keys of `watches`.
    hot: BTreeSet<Key>,
    /// Deliveries not yet taken, for each signal that this loop counts.
    pub(super) signals: BTreeMap<i32, u32>,
    pub(super) waker: Arc<SimWaker>,
}

impl WatchSet {
    /// `epoll_ctl` on the open file `id` under the number `fd`.
    pub(super) fn change(
        &mut self,
        fd: RawFd,
        id: ObjId,
        tag: u64,
        old: Interest,
        new: Interest,
    ) -> io::Result<()> {
        let key = (id, fd);
        if new.is_empty() {
            self.watches.remove(&key);
            self.hot.remove(&key);
            return Ok(());
        }
        match (old.is_empty(), self.watches.contains_key(&key)) {
            (true, true) => return Err(errno(libc::EEXIST)),
            (false, false) => return Err(errno(libc::ENOENT)),
            _ => {}
        }
        self.watches.insert(key, Watch { tag, interest: new });
        // Both EPOLL_CTL_ADD and EPOLL_CTL_MOD look at the file again, which also starts a new edge.
        self.hot.insert(key);
        Ok(())
    }

    /// Something happened on the open file `id`: an edge for all who watch it.
    pub(super) fn touch(&mut self, id: ObjId) {
        let keys = self.watches.range((id, RawFd::MIN)..=(id, RawFd::MAX)).map(|(&key, _)| key);
        self.hot.extend(keys);
    }

    /// The last reference to the open file `id` is gone.
    pub(super) fn forget(&mut self, id: ObjId) {
        let keys: Vec<Key> =
            self.watches.range((id, RawFd::MIN)..=(id, RawFd::MAX)).map(|(&key, _)| key).collect();
        for key in keys {
            self.watches.remove(&key);
            self.hot.remove(&key);
        }
    }

    /// In the child of a fork: nothing is watched and nothing was heard.
    pub(super) fn clear(&mut self) {
        self.watches.clear();
        self.hot.clear();
    }

    /// Appends what is ready, in the order of the keys. Level-triggered ones stay to be looked at again.
    pub(super) fn collect(&mut self, readiness: impl Fn(ObjId) -> Report, out: &mut Vec<Reported>) {
        let watches = &self.watches;
        self.hot.retain(|key| {
            let Some(watch) = watches.get(key) else { return false };
            // HUP and ERR cannot be asked away (epoll_ctl(2)).
            let wanted = Report::from_bits_truncate(watch.interest.bits()) - Report::INVALID;
            let report = readiness(key.0) & (wanted | Report::HUP | Report::ERR);
            if report.is_empty() {
                return false;
            }
            out.push(Reported::new(watch.tag, report));
            !watch.interest.contains(Interest::EDGE)
        });
    }

    pub(super) fn len(&self) -> usize {
        self.watches.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(set: &mut WatchSet, report: Report) -> Vec<Reported> {
        let mut out = Vec::new();
        set.collect(|_| report, &mut out);
        out
    }

    #[test]
    fn a_level_is_reported_until_it_is_gone_and_an_edge_once() {
        let mut set = WatchSet::default();
        set.change(3, 30, 1, Interest::empty(), Interest::READ).unwrap();
        set.change(4, 40, 2, Interest::empty(), Interest::READ | Interest::EDGE).unwrap();
        assert_eq!(collect(&mut set, Report::READ).len(), 2);
        assert_eq!(collect(&mut set, Report::READ), [Reported::new(1, Report::READ)]);
        set.touch(40);
        assert_eq!(collect(&mut set, Report::READ).len(), 2);
        assert_eq!(collect(&mut set, Report::empty()), []);
        assert_eq!(collect(&mut set, Report::READ), [], "nobody touched them");
    }

    #[test]
    fn hang_up_and_error_are_reported_unasked_and_the_rest_only_when_asked() {
        let mut set = WatchSet::default();
        set.change(3, 30, 1, Interest::empty(), Interest::WRITE | Interest::EDGE).unwrap();
        let all = Report::all() - Report::INVALID;
        assert_eq!(collect(&mut set, all)[0].report(), Report::WRITE | Report::HUP | Report::ERR);
    }

    #[test]
    fn changing_follows_epoll_ctl() {
        let mut set = WatchSet::default();
        let code = |result: io::Result<()>| result.err().and_then(|error| error.raw_os_error());
        assert_eq!(code(set.change(3, 30, 1, Interest::READ, Interest::READ)), Some(libc::ENOENT));
        assert_eq!(code(set.change(3, 30, 1, Interest::empty(), Interest::READ)), None);
        assert_eq!(code(set.change(3, 30, 1, Interest::empty(), Interest::READ)), Some(libc::EEXIST));
        assert_eq!(
            code(set.change(3, 31, 1, Interest::READ, Interest::READ)),
            Some(libc::ENOENT),
            "another file"
        );
        assert_eq!(code(set.change(3, 30, 9, Interest::READ, Interest::READ)), None);
        assert_eq!(collect(&mut set, Report::READ)[0].tag(), 9);
        assert_eq!(code(set.change(3, 30, 1, Interest::READ, Interest::empty())), None);
        assert_eq!(code(set.change(3, 30, 1, Interest::READ, Interest::empty())), None, "gone is gone");
        assert_eq!(collect(&mut set, Report::READ), []);
    }

    #[test]
    fn a_forgotten_file_takes_all_its_numbers_along() {
        let mut set = WatchSet::default();
        set.change(3, 30, 1, Interest::empty(), Interest::READ).unwrap();
        set.change(4, 30, 2, Interest::empty(), Interest::READ).unwrap();
        set.change(5, 31, 3, Interest::empty(), Interest::READ).unwrap();
        set.forget(30);
        assert_eq!((set.len(), collect(&mut set, Report::READ).len()), (1, 1));
    }
}
