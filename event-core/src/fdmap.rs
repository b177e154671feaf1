//! Which events watch which fd, what the kernel was told of it, and under which tag.

use std::os::fd::RawFd;

use crate::interest::Interest;

/// Ends the list of events of one fd.
pub(crate) const NONE: u32 = u32::MAX;

/// What is known of one fd number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FdEntry {
    /// The slot index of the event registered last; the others follow through the slots' `next`.
    pub(crate) first: u32,
    /// The same if it has been found plain: alone, reading, and persistent without a timeout unless it is a stream or
    /// a listener; else `NONE`. Whoever changes any of that forgets it.
    plain: u32,
    /// Goes up whenever the kernel forgets the fd, so that a report from before is told apart.
    generation: u32,
    /// What the kernel watches now. May be more than anybody wants: an unwanted report narrows it.
    pub(crate) kernel: Interest,
    /// Stands in the list of fds whose interest is handed over before the next wait.
    pub(crate) dirty: bool,
}

/// Indexed by fd number: a kernel hands out the lowest free one, so the table is dense.
#[derive(Debug, Default)]
pub(crate) struct FdMap {
    entries: Vec<FdEntry>,
}

impl FdMap {
    /// The entry of `fd`, made if it is new, to be changed. `fd` is not negative.
    pub(crate) fn entry(&mut self, fd: RawFd) -> &mut FdEntry {
        let index = fd as usize;
        if self.entries.len() <= index {
            let fresh =
                FdEntry { first: NONE, plain: NONE, generation: 0, kernel: Interest::empty(), dirty: false };
            self.entries.resize(index + 1, fresh);
        }
        let entry = &mut self.entries[index];
        entry.plain = NONE;
        entry
    }

    pub(crate) fn get(&self, fd: RawFd) -> Option<&FdEntry> {
        self.entries.get(usize::try_from(fd).ok()?)
    }

    /// The entry of `fd`, to be changed.
    pub(crate) fn get_mut(&mut self, fd: RawFd) -> Option<&mut FdEntry> {
        let entry = self.entries.get_mut(usize::try_from(fd).ok()?)?;
        entry.plain = NONE;
        Some(entry)
    }

    /// The tag under which the kernel is to report `fd`, known or not.
    pub(crate) fn tag(&self, fd: RawFd) -> u64 {
        self.get(fd).map_or(fd as u64, |entry| entry.tag(fd))
    }

    /// The fd that a reported tag speaks of, or `None` if the kernel has forgotten that fd since.
    pub(crate) fn resolve(&self, tag: u64) -> Option<RawFd> {
        let fd = RawFd::try_from(tag & u64::from(u32::MAX)).ok()?;
        let entry = self.get(fd)?;
        (u64::from(entry.generation) == tag >> 32).then_some(fd)
    }

    /// The first event of the fd that a reported tag speaks of: `NONE` if it has none, and nothing at all if the kernel
    /// has forgotten that fd since.
    #[inline]
    pub(crate) fn first_by_tag(&self, tag: u64) -> Option<u32> {
        // Past the table's end where no fd goes.
        let entry = self.entries.get((tag & u64::from(u32::MAX)) as usize)?;
        (u64::from(entry.generation) == tag >> 32).then_some(entry.first)
    }

    /// The event of the fd that a reported tag speaks of, `NONE` if it is not known to be plain.
    #[inline]
    pub(crate) fn plain_by_tag(&self, tag: u64) -> Option<u32> {
        let entry = self.entries.get((tag & u64::from(u32::MAX)) as usize)?;
        (u64::from(entry.generation) == tag >> 32).then_some(entry.plain)
    }

    /// The event of this fd, of which there is one, has been found plain.
    pub(crate) fn set_plain(&mut self, tag: u64) {
        if let Some(entry) = self.entries.get_mut((tag & u64::from(u32::MAX)) as usize) {
            entry.plain = entry.first;
        }
    }

    /// Whether the event of this fd is plain may have changed.
    #[inline]
    pub(crate) fn forget_plain(&mut self, fd: RawFd) {
        let _forgets_it = self.get_mut(fd);
    }

    /// Every fd the kernel watches or an event names.
    pub(crate) fn in_use(&self) -> Vec<RawFd> {
        (0..)
            .zip(&self.entries)
            .filter(|(_, entry)| entry.first != NONE || !entry.kernel.is_empty())
            .map(|(fd, _)| fd)
            .collect()
    }
}

impl FdEntry {
    pub(crate) fn tag(&self, fd: RawFd) -> u64 {
        u64::from(self.generation) << 32 | u64::from(fd as u32)
    }

    /// The kernel has forgotten the fd: reports under the old tag are void.
    pub(crate) fn forget(&mut self) {
        self.kernel = Interest::empty();
        // One less than the tag space, so that no tag is WAKE_TAG.
        self.generation = (self.generation + 1) % (u32::MAX - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_from_before_the_kernel_forgot_the_fd_resolves_to_nothing() {
        let mut map = FdMap::default();
        let tag = map.entry(7).tag(7);
        assert_eq!(map.resolve(tag), Some(7));
        map.entry(7).forget();
        assert_eq!(map.resolve(tag), None);
        let tag = map.entry(7).tag(7);
        assert_eq!(map.resolve(tag), Some(7));
        assert_eq!(map.resolve(crate::sys::WAKE_TAG), None);
    }
}
