//! What the loop keeps of one event: whoever it belongs to, whatever calls it.

use std::rc::Rc;

use bitflags::bitflags;

use crate::clock::Time;
use crate::fdmap::NONE;
use crate::interest::{Ready, What};
use crate::reactor::{Lent, LoopHandle};
use crate::slots::{Key, Slotted};

/// Names an event, timer, signal or stream of one loop. Free to copy; goes stale by itself when its object is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub(crate) Key);

impl EventId {
    /// Of no event: no key is of the last generation.
    pub(crate) const NOBODY: EventId = EventId(Key { index: u32::MAX, generation: u32::MAX });
}

/// The user's closure in one form: the handle types wrap theirs into it.
pub(crate) type BoxedCallback = Box<dyn FnMut(&Lent, Ready, u32)>;

/// An object of ours that the loop calls: a stream or a listener. Its own user callbacks are its affair.
pub(crate) trait Source {
    /// Something that was asked for has happened. Runs on a fresh stack with nothing borrowed.
    fn ready(self: Rc<Self>, handle: &LoopHandle, ready: Ready);

    /// Writes what others have left in the output since the object's own callback; runs no user code but the `Drop`
    /// of what was sent. Returns the bytes written.
    fn flush(self: Rc<Self>) -> usize {
        0
    }

    /// Whether the program adds, deletes and activates it by its id. What a stream waits for is its own affair.
    fn is_for_calls(&self) -> bool {
        false
    }

    /// When the timer really is due; an armed timer may be earlier, and then goes back for what is left.
    fn deadline(&self) -> Time {
        Time::NEVER
    }

    /// The kernel lost the fd behind our back.
    fn lost(self: Rc<Self>) {}

    /// The kernel refuses to watch the fd, which is still the object's.
    fn refused(self: Rc<Self>, errno: i32) {
        let _ = errno;
        self.lost();
    }

    /// Its slot was freed by its id.
    fn let_go(self: Rc<Self>) {
        self.teardown();
    }

    /// The object ends now: moves every callback out, drops it, closes what it owns. Called when the loop is dropped
    /// and when one of the object's callbacks has panicked.
    fn teardown(self: Rc<Self>);
}

/// Whom the loop calls.
#[derive(Default)]
pub(crate) enum Callback {
    /// Nobody: freed, or running right now.
    #[default]
    Empty,
    /// The object's own code.
    Source(Rc<dyn Source>),
    /// The base's token handler, with this token.
    Token(usize),
    /// A closure.
    User(BoxedCallback),
}

/// What `source` means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An fd, or -1 for none.
    #[default]
    Fd,
    /// A mailbox; no source.
    Mailbox,
    /// The loop's own slot that runs what other threads asked for.
    Remote,
    /// A signal number.
    Signal,
}

bitflags! {
    /// State of a slot.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Flags: u8 {
        /// Registered with its fd or signal.
        const ADDED = 0x01;
        /// Does not keep the loop running.
        const BACKGROUND = 0x02;
        /// Counted among what keeps the loop running.
        const COUNTED = 0x04;
        /// Freed by the loop once its callback has run: `once`.
        const FREE_AFTER = 0x08;
        /// A source that says so itself: keeps the loop running.
        const HELD = 0x10;
        /// In the list of activations for the next turn.
        const LATER = 0x20;
        /// A queue holds an activation that counts (its `seq` is the slot's).
        const QUEUED = 0x40;
        /// A timer and nothing else, whose timer says whether it is added and counted: see `timers`.
        const ALONE = 0x80;
    }
}

/// One event. About 64 bytes: an idle connection has one.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) callback: Callback,
    /// The timeout given to `add`, `None` without one; what a persistent event's timer restarts with.
    pub(crate) interval: Option<Interval>,
    /// The fd or signal number, -1 for none.
    pub(crate) source: i32,
    /// The next event of the same fd or signal, by slot index.
    pub(crate) next: u32,
    /// The activation that counts, if `QUEUED`.
    pub(crate) seq: u32,
    /// Of this slot: a key of another one is stale.
    generation: u32,
    /// How often the signal was delivered, for the activation that is queued. More than 65,535 between two turns are
    /// that many.
    pub(crate) deliveries: u16,
    pub(crate) what: What,
    pub(crate) kind: Kind,
    /// The reasons of the queued activation.
    pub(crate) active: Ready,
    /// The reasons of the activation for the next turn.
    pub(crate) later: Ready,
    pub(crate) flags: Flags,
    pub(crate) priority: u8,
}

/// A timeout in nanoseconds, plus one so that `Option` costs no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval(std::num::NonZeroU64);

impl Interval {
    pub(crate) fn new(duration: std::time::Duration) -> Interval {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Interval(std::num::NonZeroU64::MIN.saturating_add(nanos))
    }

    pub(crate) fn duration(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0.get() - 1)
    }
}

impl Slotted for Slot {
    #[inline]
    fn generation(&self) -> u32 {
        self.generation
    }

    fn set_generation(&mut self, generation: u32) {
        self.generation = generation;
    }
}

impl Slot {
    pub(crate) fn new(kind: Kind, source: i32, what: What, callback: Callback, priority: u8) -> Slot {
        Slot { callback, source, next: NONE, what, kind, priority, ..Slot::default() }
    }

    /// Whether there is anything but a timeout that could ever make it ready.
    pub(crate) fn waits(&self) -> bool {
        self.source >= 0 && (self.kind == Kind::Signal || !self.what.interest().is_empty())
    }

    /// Whether a report for its fd may go the short way: it is the only event there, and nothing but the report is to be
    /// dealt with when it runs.
    pub(crate) fn is_plain(&self) -> bool {
        let is_simple = self.what.contains(What::PERSIST) && self.interval.is_none();
        self.next == NONE && (is_simple || matches!(self.callback, Callback::Source(_)))
    }

    /// The part of `what` that is watched now.
    pub(crate) fn wanted(&self) -> crate::interest::Interest {
        if self.flags.contains(Flags::ADDED) && self.kind == Kind::Fd {
            self.what.interest()
        } else {
            crate::interest::Interest::empty()
        }
    }
}

const _: () = assert!(size_of::<Slot>() <= 56, "an idle connection has one slot");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::Slots;

    #[test]
    fn a_slot_is_fetched_from_where_it_is() {
        let mut slots = Slots::new();
        let slot = || Slot::new(Kind::Fd, -1, What::empty(), Callback::Token(1), 0);
        let keys: Vec<Key> = (0..3).map(|_| slots.insert(slot()).unwrap()).collect();
        for key in keys {
            assert_eq!(slots.address(key.index), std::ptr::from_ref(slots.get(key).unwrap()).cast());
        }
    }
}
