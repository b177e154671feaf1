//! The simulation's fd numbers: the lowest free one is given out first, as a kernel does.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;

use super::errno;
use super::world::ObjId;

/// 0, 1 and 2 are the program's own.
const FIRST: RawFd = 3;

#[derive(Debug)]
pub(super) struct FdTable {
    files: BTreeMap<RawFd, ObjId>,
    /// No number below this one is free.
    lowest: RawFd,
    /// `RLIMIT_NOFILE`: one more than the highest number that a call may give out.
    pub(super) limit: usize,
}

impl Default for FdTable {
    fn default() -> FdTable {
        FdTable { files: BTreeMap::new(), lowest: FIRST, limit: 1024 }
    }
}

impl FdTable {
    pub(super) fn get(&self, fd: RawFd) -> Option<ObjId> {
        self.files.get(&fd).copied()
    }

    /// Fails with EMFILE if the next number would be past the limit.
    pub(super) fn check_limit(&mut self) -> io::Result<()> {
        let lowest = self.lowest_free();
        if usize::try_from(lowest).is_ok_and(|lowest| lowest < self.limit) {
            Ok(())
        } else {
            Err(errno(libc::EMFILE))
        }
    }

    /// Gives `id` the lowest free number, whatever the limit.
    pub(super) fn insert(&mut self, id: ObjId) -> RawFd {
        let fd = self.lowest_free();
        self.files.insert(fd, id);
        self.lowest = fd + 1;
        fd
    }

    pub(super) fn remove(&mut self, fd: RawFd) -> Option<ObjId> {
        let id = self.files.remove(&fd)?;
        self.lowest = self.lowest.min(fd);
        Some(id)
    }

    /// The open numbers, in order.
    pub(super) fn open(&self) -> Vec<RawFd> {
        self.files.keys().copied().collect()
    }

    fn lowest_free(&mut self) -> RawFd {
        while self.files.contains_key(&self.lowest) {
            self.lowest += 1;
        }
        self.lowest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_is_given_first() {
        let mut table = FdTable::default();
        assert_eq!([table.insert(1), table.insert(2), table.insert(3)], [3, 4, 5]);
        assert_eq!(table.remove(4), Some(2));
        assert_eq!(table.remove(3), Some(1));
        assert_eq!(table.remove(3), None);
        assert_eq!([table.insert(4), table.insert(5), table.insert(6)], [3, 4, 6]);
        assert_eq!(table.get(4), Some(5));
        assert_eq!(table.open(), [3, 4, 5, 6]);
    }

    #[test]
    fn the_limit_is_on_the_number_and_not_on_the_count() {
        let mut table = FdTable { limit: 5, ..FdTable::default() };
        assert!(table.check_limit().is_ok());
        table.insert(1);
        table.insert(2);
        assert_eq!(table.check_limit().unwrap_err().raw_os_error(), Some(libc::EMFILE));
        table.remove(3);
        assert!(table.check_limit().is_ok());
    }
}
