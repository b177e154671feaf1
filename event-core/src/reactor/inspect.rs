//! Looking at a loop: its events one by one, in words, and by fd or signal.

use std::fmt;
use std::ops::ControlFlow;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::fdmap::NONE;
use crate::interest::{Ready, What};
use crate::reactor::{Callback, Core, EventId, Flags, Kind, LoopHandle};
use crate::slots::Key;

/// What there is to know of an event, timer or signal, as it was when this was asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EventInfo {
    /// Its id.
    pub id: EventId,
    /// The fd; `None` for timers, signals and events that have none.
    pub fd: Option<RawFd>,
    /// The signal's number; `None` for everything else.
    pub signal: Option<i32>,
    /// What it waits for when it is added, and how.
    pub what: What,
    /// What it waits for now; see [`LoopHandle::pending`].
    pub pending: Ready,
    /// The reasons it is queued with. It may be queued for none: see `is_active`.
    pub active: Ready,
    /// Whether it is queued to run, in this turn or the next.
    pub is_active: bool,
    /// When its timeout passes.
    pub deadline: Option<Instant>,
    /// The priority; 0 is the most urgent.
    pub priority: u8,
    /// Whether it does not keep the loop running.
    pub is_background: bool,
    /// Whether it belongs to a stream, a listener or a server and not to the program.
    pub is_internal: bool,
    kind: Kind,
    /// Until the deadline.
    left: Option<Duration>,
}

impl fmt::Display for EventInfo {
    /// In one line, for people; the format is not guaranteed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&describe(self.id, self.kind, self.fd.or(self.signal).unwrap_or(-1)))?;
        if !self.what.is_empty() && self.kind != Kind::Signal {
            write!(f, ", {}", names(self.what.iter_names()))?;
        }
        if let Some(left) = self.left {
            write!(f, ", timeout in {left:?}")?;
        }
        if self.is_active {
            write!(f, ", active for {}", names(self.active.iter_names()))?;
        }
        write!(f, ", priority {}", self.priority)?;
        if self.is_background {
            f.write_str(", background")?;
        }
        if self.is_internal {
            f.write_str(", internal")?;
        }
        Ok(())
    }
}

/// `READ|PERSIST`; `nothing` for an empty set.
fn names<T>(set: impl Iterator<Item = (&'static str, T)>) -> String {
    let names: Vec<_> = set.map(|(name, _)| name).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join("|") }
}

/// Which event, in words: `event 5.0 on fd 7`.
pub(super) fn describe(id: EventId, kind: Kind, source: i32) -> String {
    let name = format!("{}.{}", id.0.index, id.0.generation);
    match kind {
        Kind::Fd if source >= 0 => format!("event {name} on fd {source}"),
        Kind::Fd => format!("event {name} on no fd"),
        Kind::Mailbox => format!("mailbox {name}"),
        Kind::Remote => "what other threads asked for".to_owned(),
        Kind::Signal => format!("event {name} on signal {source}"),
    }
}

impl LoopHandle {
    /// What there is to know of one event; `None` for a stale id.
    #[doc(alias = "event_get_assignment")]
    pub fn event_info(&self, id: EventId) -> Option<EventInfo> {
        self.reactor.core.borrow_mut().queue_rest(&*self.reactor.sys);
        let pending = self.pending(id);
        // Known from here on.
        let deadline = self.deadline(id);
        let core = self.reactor.core.borrow();
        let slot = core.slots.get(id.0)?;
        let source = (slot.source >= 0).then_some(slot.source);
        Some(EventInfo {
            id,
            fd: source.filter(|_| slot.kind == Kind::Fd),
            signal: source.filter(|_| slot.kind == Kind::Signal),
            what: slot.what,
            pending,
            active: slot.active | slot.later,
            is_active: slot.flags.intersects(Flags::QUEUED | Flags::LATER),
            deadline,
            priority: slot.priority,
            is_background: slot.flags.contains(Flags::BACKGROUND),
            is_internal: matches!(slot.callback, Callback::Source(_)),
            kind: slot.kind,
            left: core.heap.deadline(id.0.index).map(|deadline| deadline.since(self.clock())),
        })
    }

    /// Calls `visit` once for each event that is added or active, in no particular order, until it breaks. Returns what
    /// it returned last.
    ///
    /// The events are those that there are when this is called. The visitor may do whatever a callback may; what it
    /// adds is not visited, and neither is what it has freed.
    ///
    /// ```
    /// use event_core::{EventBase, Timer};
    /// use std::{ops::ControlFlow, time::Duration};
    ///
    /// let base = EventBase::new()?;
    /// let timer = Timer::new(&base, |_| {})?;
    /// timer.add(Duration::from_secs(60))?;
    /// let mut timeouts = 0;
    /// let _ = base.for_each_event(|event| {
    ///     timeouts += usize::from(event.deadline.is_some());
    ///     ControlFlow::Continue(())
    /// });
    /// assert_eq!(timeouts, 1);
    /// # Ok::<(), event_core::Error>(())
    /// ```
    #[doc(alias = "event_base_foreach_event")]
    #[doc(alias = "event_base_foreach_event_cb")]
    pub fn for_each_event(&self, mut visit: impl FnMut(&EventInfo) -> ControlFlow<()>) -> ControlFlow<()> {
        for id in self.event_ids() {
            if let Some(info) = self.event_info(id) {
                visit(&info)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// The events in words, a line each, for people; the format is not guaranteed.
    #[doc(alias = "event_base_dump_events")]
    pub fn dump_events(&self) -> String {
        let events: Vec<_> = self.event_ids().into_iter().filter_map(|id| self.event_info(id)).collect();
        let mut text = String::new();
        for (title, is_active) in [("Added events:\n", false), ("Active events:\n", true)] {
            text.push_str(title);
            for event in events.iter().filter(|event| event.is_active == is_active) {
                text.push_str("  ");
                text.push_str(&event.to_string());
                text.push('\n');
            }
        }
        text
    }

    /// Activates the events of an fd that wait for any of `ready`, for that: the reasons each waits for. With `TIMEOUT`
    /// those that have a timeout, too. They run in this pass, as with [`activate_now`](Self::activate_now). Returns how
    /// many there are; an fd that nobody watches has none.
    ///
    /// # Errors
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "event_base_active_by_fd")]
    pub fn active_by_fd(&self, fd: RawFd, ready: Ready) -> Result<usize, Error> {
        self.check()?;
        let first = |core: &Core| core.fds.get(fd).map_or(NONE, |entry| entry.first);
        self.activate_list(first, |core, key| {
            let Some(slot) = core.slots.get(key) else { return Ready::empty() };
            let waits_for = Ready::from_bits_truncate(slot.wanted().bits());
            let timeout = if core.heap.is_armed(key.index) { Ready::TIMEOUT } else { Ready::empty() };
            ready & (waits_for | timeout)
        })
    }

    /// Activates the events of a signal as if it had been delivered once. They run in this pass, as with
    /// [`activate_now`](Self::activate_now). Returns how many there are.
    ///
    /// # Errors
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "event_base_active_by_signal")]
    pub fn active_by_signal(&self, signal: i32) -> Result<usize, Error> {
        self.check()?;
        let entry = |core: &Core| core.signals.iter().find(|entry| entry.0 == signal).map(|entry| entry.1);
        self.activate_list(|core| entry(core).unwrap_or(NONE), |_, _| Ready::SIGNAL)
    }

    /// Activates the events of a list of slots, each for the reasons that are found for it, if there are any.
    fn activate_list(
        &self,
        first: impl Fn(&Core) -> u32,
        reasons: impl Fn(&Core, Key) -> Ready,
    ) -> Result<usize, Error> {
        let mut count = 0;
        {
            let mut core = self.reactor.core.borrow_mut();
            core.queue_rest(&*self.reactor.sys);
            let mut at = first(&core);
            while let Some(key) = core.slots.key_at(at) {
                at = core.slots.get(key).map_or(NONE, |slot| slot.next);
                let ready = reasons(&core, key);
                if !ready.is_empty() {
                    count += 1;
                    core.activate(key, ready, u16::from(ready.contains(Ready::SIGNAL)));
                    self.recount(&mut core, key);
                }
            }
        }
        self.touched()?;
        Ok(count)
    }

    /// Every event that is added or active; the loop's own slot is none.
    fn event_ids(&self) -> Vec<EventId> {
        let core = self.reactor.core.borrow();
        let is_one = |key: &Key| {
            let Some(slot) = core.slots.get(*key) else { return false };
            let in_use = slot.flags.intersects(Flags::ADDED | Flags::QUEUED | Flags::LATER);
            slot.kind != Kind::Remote && (in_use || core.heap.is_armed(key.index))
        };
        core.slots.keys().into_iter().filter(is_one).map(EventId).collect()
    }
}
