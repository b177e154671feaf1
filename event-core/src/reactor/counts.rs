//! How many events there are of each kind, and how many there have been at most.

use bitflags::bitflags;

use crate::reactor::LoopHandle;

bitflags! {
    /// What [`LoopHandle::num_events`] counts: libevent's `EVENT_BASE_COUNT_*`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EventCount: u8 {
        /// Activations that wait to run, in this turn or the next.
        #[doc(alias = "EVENT_BASE_COUNT_ACTIVE")]
        const ACTIVE = 0x01;
        /// What keeps the loop running without an event: each [`Hold`](crate::Hold).
        #[doc(alias = "EVENT_BASE_COUNT_VIRTUAL")]
        const VIRTUAL = 0x02;
        /// Events that are added, from `add` until they are deleted or, one-shot, have fired; those of streams and
        /// listeners, too. An event with a timeout is one.
        #[doc(alias = "EVENT_BASE_COUNT_ADDED")]
        const ADDED = 0x04;
    }
}

/// A count and the highest that it has been.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    now: usize,
    most: usize,
}

impl Mark {
    /// `counts`: whether this one is to be counted at all.
    #[inline]
    pub(crate) fn up(&mut self, counts: bool) {
        self.now += usize::from(counts);
        self.most = self.most.max(self.now);
    }

    #[inline]
    pub(crate) fn down(&mut self, counted: bool) {
        self.now -= usize::from(counted);
    }
}

impl LoopHandle {
    /// How many events there are of the kinds in `which`, added up.
    #[doc(alias = "event_base_get_num_events")]
    pub fn num_events(&self, which: EventCount) -> usize {
        self.marks(which, |mark| mark.now)
    }

    /// How many there have been at most of each of the kinds in `which`, added up. With `clear`, that is forgotten, and
    /// counted anew from what there is now.
    #[doc(alias = "event_base_get_max_events")]
    pub fn max_events(&self, which: EventCount, clear: bool) -> usize {
        self.marks(which, |mark| if clear { std::mem::replace(&mut mark.most, mark.now) } else { mark.most })
    }

    fn marks(&self, which: EventCount, mut of: impl FnMut(&mut Mark) -> usize) -> usize {
        let mut core = self.reactor.core.borrow_mut();
        let mut sum = 0;
        if which.contains(EventCount::ACTIVE) {
            sum += of(&mut core.active);
        }
        if which.contains(EventCount::ADDED) {
            sum += of(&mut core.added);
        }
        if which.contains(EventCount::VIRTUAL) {
            sum += of(&mut core.holds);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_stays_where_it_was_highest() {
        let mut mark = Mark::default();
        mark.up(true);
        mark.up(true);
        mark.up(false);
        mark.down(true);
        mark.down(false);
        assert_eq!((mark.now, mark.most), (1, 2));
    }
}
