//! How many events there are of each kind, and how many there have been at most.

use bitflags::bitflags;

use crate::reactor::{Core, Flags, Kind, LoopHandle, Uses};

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
struct Mark {
    now: usize,
    most: usize,
}

impl Mark {
    fn up(&mut self) {
        self.now += 1;
        self.most = self.most.max(self.now);
    }

    fn down(&mut self) {
        self.now -= 1;
    }
}

/// The highest counts. Those of events are kept from when they are first asked for: an addition for each activation is
/// not much, and more than nothing.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    on: bool,
    /// Activations that wait to run; the loop's own slot, for other threads, is nobody's event.
    active: Mark,
    /// Slots that are `ADDED`.
    added: Mark,
    holds: Mark,
}

impl Marks {
    /// Whether events are counted.
    #[inline]
    pub(super) fn are_kept(&self) -> bool {
        self.on
    }

    /// An activation was queued.
    #[inline]
    pub(super) fn activated(&mut self, kind: Kind) {
        if self.on {
            self.count_active(kind, Mark::up);
        }
    }

    /// So many activations of fds were queued.
    #[inline]
    pub(super) fn activated_more(&mut self, count: usize) {
        if self.on {
            (0..count).for_each(|_| self.active.up());
        }
    }

    /// An activation runs, or was taken back.
    #[inline]
    pub(super) fn ran(&mut self, kind: Kind) {
        if self.on {
            self.count_active(kind, Mark::down);
        }
    }

    #[inline]
    pub(super) fn added(&mut self) {
        if self.on {
            self.count_added(Mark::up);
        }
    }

    #[inline]
    pub(super) fn deleted(&mut self) {
        if self.on {
            self.count_added(Mark::down);
        }
    }

    pub(super) fn held(&mut self) {
        self.holds.up();
    }

    pub(super) fn let_go(&mut self) {
        self.holds.down();
    }

    #[cold]
    fn count_active(&mut self, kind: Kind, count: fn(&mut Mark)) {
        if kind != Kind::Remote {
            count(&mut self.active);
        }
    }

    #[cold]
    fn count_added(&mut self, count: fn(&mut Mark)) {
        count(&mut self.added);
    }
}

impl LoopHandle {
    /// How many events there are of the kinds in `which`, added up. Looks at every event.
    #[doc(alias = "event_base_get_num_events")]
    pub fn num_events(&self, which: EventCount) -> usize {
        let mut core = self.reactor.core.borrow_mut();
        core.queue_rest(&*self.reactor.sys);
        let (active, added) = core.count();
        let counts = [
            (EventCount::ACTIVE, active),
            (EventCount::ADDED, added),
            (EventCount::VIRTUAL, core.marks.holds.now),
        ];
        counts.iter().filter(|(kind, _)| which.contains(*kind)).map(|(_, count)| count).sum()
    }

    /// How many there have been at most of each of the kinds in `which`, added up. With `clear` that is forgotten, and
    /// counted anew from what there is now.
    ///
    /// The first call begins to count events, which costs a little for each activation, and so gives what there is then:
    /// call it once before the loop runs.
    #[doc(alias = "event_base_get_max_events")]
    pub fn max_events(&self, which: EventCount, clear: bool) -> usize {
        let mut core = self.reactor.core.borrow_mut();
        if !core.marks.on {
            core.queue_rest(&*self.reactor.sys);
            self.reactor.extras.set(Uses::MARKS, true);
            let (active, added) = core.count();
            core.settle_all();
            core.marks.on = true;
            core.marks.active = Mark { now: active, most: active };
            core.marks.added = Mark { now: added, most: added };
        }
        let marks = &mut core.marks;
        let marks = [
            (EventCount::ACTIVE, &mut marks.active),
            (EventCount::ADDED, &mut marks.added),
            (EventCount::VIRTUAL, &mut marks.holds),
        ];
        let mut sum = 0;
        for (_, mark) in marks.into_iter().filter(|(kind, _)| which.contains(*kind)) {
            sum += mark.most;
            if clear {
                mark.most = mark.now;
            }
        }
        sum
    }
}

impl Core {
    /// Activations that wait to run, and events that are added.
    fn count(&self) -> (usize, usize) {
        let (mut active, mut added) = (0, 0);
        for key in self.slots.keys() {
            let Some(slot) = self.slots.get(key).filter(|slot| slot.kind != Kind::Remote) else { continue };
            active += usize::from(slot.flags.contains(Flags::QUEUED));
            active += usize::from(slot.flags.contains(Flags::LATER));
            let armed = slot.flags.contains(Flags::ALONE) && self.heap.is_armed(key.index);
            added += usize::from(armed || slot.flags.contains(Flags::ADDED));
        }
        // The marks, where they are kept, are the same counts.
        debug_assert!(!self.marks.on || (active, added) == (self.marks.active.now, self.marks.added.now));
        (active, added)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_stays_where_it_was_highest() {
        let mut mark = Mark::default();
        mark.up();
        mark.up();
        mark.down();
        assert_eq!((mark.now, mark.most), (1, 2));
    }
}
