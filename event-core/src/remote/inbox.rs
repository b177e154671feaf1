//! The loop's inbox: what other threads have asked for, and what the loop has taken of it and not run yet.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::mailbox::KEPT;
use super::posted::{self, Boxed, Posted};
use crate::error::Error;
use crate::interest::Ready;
use crate::reactor::{EventId, LoopHandle};
use crate::sys::Wake;
use crate::sys::sync::{AtomicBool, Mutex, lock};

/// At most this many messages and closures run in one turn, so that a busy sender cannot starve the fds.
pub(crate) const MESSAGES_PER_TURN: usize = 1024;

/// Coalesces wake-ups: many calls between two turns cost one write.
pub(super) struct WakeFlag {
    pub(super) pending: AtomicBool,
    pub(super) wake: Arc<dyn Wake>,
}

impl WakeFlag {
    fn wake(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            self.wake.wake();
        }
    }

    /// Takes the wake-up back, before its reasons are looked at. The kernel object first: a sender that comes between
    /// the two lines finds `pending` still set and writes nothing, and its message is found by the drain that follows.
    /// The other way round its write would be cleared while `pending` stays set, and no later sender would wake us.
    pub(super) fn clear(&self) {
        self.wake.clear();
        // A swap like the senders', so that each of them is either before it, and its message is seen, or after it.
        self.pending.swap(false, Ordering::AcqRel);
    }
}

/// What other threads have asked for since the loop last looked.
pub(crate) enum Op {
    Activate(EventId, Ready),
    Mail(EventId),
    /// Never empty.
    Post(Box<dyn Posted>),
}

#[derive(Default)]
struct Inbox {
    ops: VecDeque<Op>,
    /// An empty row with memory for closures of some type, for the next one of it.
    spare: Option<Box<dyn Posted>>,
    /// The type of the last closure, as it was posted.
    last: Option<TypeId>,
    exit: bool,
    stop: bool,
    gone: bool,
}

/// The stops asked for since the loop last looked.
#[derive(Default)]
pub(crate) struct Stops {
    pub(crate) exit: bool,
    pub(crate) stop: bool,
}

/// The part of a loop that other threads may hold. Outlives the loop, and then refuses.
pub(crate) struct Shared {
    pub(super) flag: WakeFlag,
    /// Operations wait: in the inbox, or taken by the loop and not run. Changed under the lock, but for the loop's
    /// own note that it has some left. The loop looks at it without the lock: what it misses comes with a wake-up,
    /// and after `clear` it sees every operation whose wake-up was cleared.
    queued: AtomicBool,
    /// The last closure was of another type than the one before. A guess at the next.
    mixed: AtomicBool,
    inbox: Mutex<Inbox>,
}

impl Shared {
    pub(crate) fn new(wake: Arc<dyn Wake>) -> Arc<Shared> {
        let flag = WakeFlag { pending: AtomicBool::new(false), wake };
        let inbox = Mutex::new(Inbox::default());
        Arc::new(Shared { flag, queued: AtomicBool::new(false), mixed: AtomicBool::new(false), inbox })
    }

    pub(crate) fn wake(&self) {
        self.flag.wake();
    }

    pub(crate) fn clear_wake(&self) {
        self.flag.clear();
    }

    pub(crate) fn take_stops(&self) -> Stops {
        let mut inbox = lock(&self.inbox);
        let Inbox { exit, stop, .. } = &mut *inbox;
        Stops { exit: std::mem::take(exit), stop: std::mem::take(stop) }
    }

    pub(crate) fn has_ops(&self) -> bool {
        self.queued.load(Ordering::Relaxed)
    }

    /// From here on every call is refused. What was queued is handed back, to be dropped with no lock held.
    pub(crate) fn close(&self) -> VecDeque<Op> {
        let mut inbox = lock(&self.inbox);
        inbox.gone = true;
        std::mem::take(&mut inbox.ops)
    }

    pub(super) fn is_gone(&self) -> bool {
        lock(&self.inbox).gone
    }

    /// Queues an operation and does not wake the loop: true if the caller has to, with no lock held. It need not if
    /// others wait: whoever queued the first of them has woken the loop, or is about to. Hands the operation back if
    /// the loop is gone.
    pub(super) fn add(&self, op: Op) -> Result<bool, Op> {
        let mut inbox = lock(&self.inbox);
        if inbox.gone {
            return Err(op);
        }
        let is_first = inbox.ops.is_empty();
        inbox.ops.push_back(op);
        self.note(is_first);
        Ok(is_first)
    }

    /// Queues an operation. Hands it back if the loop is gone.
    pub(super) fn push(&self, op: Op) -> Result<(), Op> {
        if self.add(op)? {
            self.flag.wake();
        }
        Ok(())
    }

    /// Queues a closure: by value if it is small and the others are of its type, else in a box, which is made here,
    /// before the lock is taken.
    pub(super) fn post<F: FnOnce(&LoopHandle) + Send + 'static>(&self, f: F) -> Result<(), Error> {
        let posted = TypeId::of::<F>();
        if size_of::<F>() <= posted::BY_VALUE && !self.mixed.load(Ordering::Relaxed) {
            self.add_closure(f, posted).map_err(|_| Error::LoopGone)
        } else {
            let f: Boxed = Box::new(f);
            self.add_closure(f, posted).map_err(|_| Error::LoopGone)
        }
    }

    /// Hands the closure back if the loop is gone.
    fn add_closure<F: FnOnce(&LoopHandle) + Send + 'static>(&self, f: F, posted: TypeId) -> Result<(), F> {
        let is_first = {
            let mut inbox = lock(&self.inbox);
            if inbox.gone {
                return Err(f);
            }
            let Inbox { ops, spare, last, .. } = &mut *inbox;
            let is_first = ops.is_empty();
            let row = match ops.back_mut() {
                Some(Op::Post(row)) => Some(row),
                _ => None,
            };
            let row = posted::add(f, row, spare);
            // One by value that joins a row is of the last one's type.
            if row.is_some() || TypeId::of::<F>() != posted {
                let mixed = last.replace(posted).is_some_and(|last| last != posted);
                self.mixed.store(mixed, Ordering::Relaxed);
            }
            if let Some(row) = row {
                ops.push_back(Op::Post(row));
            }
            self.note(is_first);
            is_first
        };
        if is_first {
            self.flag.wake();
        }
        Ok(())
    }

    /// Under the lock.
    fn note(&self, is_first: bool) {
        if is_first {
            self.queued.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn set(&self, stops: Stops) -> Result<(), Error> {
        {
            let mut inbox = lock(&self.inbox);
            if inbox.gone {
                return Err(Error::LoopGone);
            }
            inbox.exit |= stops.exit;
            inbox.stop |= stops.stop;
        }
        self.flag.wake();
        Ok(())
    }

    /// Moves all operations behind those that were taken before, and leaves the memory of the last closures.
    fn take(&self, taken: &mut VecDeque<Op>, spare: &mut Option<Box<dyn Posted>>) {
        let mut inbox = lock(&self.inbox);
        if taken.is_empty() {
            std::mem::swap(taken, &mut inbox.ops);
        } else {
            taken.append(&mut inbox.ops);
        }
        if spare.is_some() {
            // The other one is the caller's to drop.
            std::mem::swap(spare, &mut inbox.spare);
        }
        self.queued.store(false, Ordering::Relaxed);
    }
}

/// What the loop has taken out of its inbox and not run yet. The loop's own: no other thread sees it. A panic or a
/// break leaves the rest here, ahead of all that comes later.
#[derive(Default)]
pub(crate) struct Taken {
    ops: RefCell<VecDeque<Op>>,
    spare: Cell<Option<Box<dyn Posted>>>,
}

impl Taken {
    /// Hands out what was not run, to be dropped with nothing borrowed.
    pub(crate) fn close(&self) -> VecDeque<Op> {
        self.spare.set(None);
        self.ops.take()
    }

    /// Takes what waits now; what comes while it runs waits for the next turn.
    pub(super) fn fill(&self, shared: &Shared) {
        let mut spare = self.spare.take();
        let mut ops = self.ops.borrow_mut();
        if ops.is_empty() && ops.capacity().saturating_mul(size_of::<Op>()) > KEPT {
            // A burst has come and gone.
            *ops = VecDeque::new();
        }
        shared.take(&mut ops, &mut spare);
    }

    pub(super) fn next(&self) -> Option<Op> {
        self.ops.borrow_mut().pop_front()
    }
}

/// Closures that run, away from the queue. What is left of them when this is dropped, also by a panic in one, goes back
/// to the head.
struct Running<'a> {
    handle: &'a LoopHandle,
    row: Option<Box<dyn Posted>>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let taken = self.handle.taken();
        match self.row.take() {
            Some(row) if row.is_empty() => taken.spare.set(Some(row)),
            Some(row) => taken.ops.borrow_mut().push_front(Op::Post(row)),
            None => {}
        }
        if !taken.ops.borrow().is_empty() {
            self.handle.shared().queued.store(true, Ordering::Relaxed);
        }
    }
}

impl LoopHandle {
    /// Runs what other threads asked for, within the turn's budget. A panic or a stop leaves the rest for the next turn.
    pub(crate) fn run_taken(&self) {
        let taken = self.taken();
        taken.fill(self.shared());
        let mut running = Running { handle: self, row: None };
        while self.has_message_budget()
            && let Some(op) = taken.next()
        {
            match op {
                Op::Activate(id, ready) => {
                    self.take_message_budget();
                    let _ = self.activate_now(id, ready);
                }
                Op::Mail(id) => {
                    self.take_message_budget();
                    let _ = self.activate_now(id, Ready::empty());
                }
                Op::Post(row) => {
                    self.note_progress();
                    let row = running.row.insert(row);
                    row.run(self);
                    if !row.is_empty() || self.is_stopping() {
                        break;
                    }
                    // Empty: a row for the next closure of its type.
                    taken.spare.set(running.row.take());
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::few::few_under_miri;
    use crate::slots::Key;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn clear(&self) {}
    }

    const ID: EventId = EventId(Key { index: 0, generation: 0 });

    fn nothing(_: &LoopHandle) {}

    #[test]
    fn a_batch_is_one_wake_and_the_loop_is_told_only_while_it_has_some() {
        let wake = Arc::new(Counting::default());
        let shared = Shared::new(wake.clone());
        let taken = Taken::default();
        for batch in 1..=3 {
            assert!(!shared.has_ops());
            for _ in 0..few_under_miri(1000, 20) {
                assert!(shared.post(nothing).is_ok() && shared.push(Op::Mail(ID)).is_ok());
                assert!(shared.has_ops());
            }
            assert_eq!(wake.0.load(Ordering::Relaxed), batch);
            shared.clear_wake();
            taken.fill(&shared);
            assert_eq!(taken.close().len(), 2 * few_under_miri(1000, 20));
        }
    }

    /// How many rows of closures wait.
    fn rows(shared: &Shared) -> usize {
        let taken = Taken::default();
        taken.fill(shared);
        taken.close().len()
    }

    #[test]
    fn closures_stand_in_few_rows_whether_their_types_alternate_or_not() {
        let shared = Shared::new(Arc::new(Counting::default()));
        let large = [0_u8; posted::BY_VALUE + 1];
        (0..100).for_each(|_| assert!(shared.post(nothing).is_ok()));
        assert_eq!(rows(&shared), 1);
        for _ in 0..100 {
            assert!(shared.post(nothing).is_ok());
            assert!(shared.post(|_| ()).is_ok());
            assert!(shared.post(move |_| assert_eq!(large[0], 0)).is_ok());
        }
        assert_eq!(rows(&shared), 3, "the first two, and all the others boxed");
        (0..100).for_each(|_| assert!(shared.post(nothing).is_ok()));
        assert_eq!(rows(&shared), 2, "some boxed, and by value again");
    }

    #[test]
    fn what_was_taken_stays_ahead_of_what_comes_later() {
        let shared = Shared::new(Arc::new(Counting::default()));
        let taken = Taken::default();
        for index in 0..3 {
            assert!(shared.push(Op::Mail(EventId(Key { index, generation: 0 }))).is_ok());
            taken.fill(&shared);
        }
        let order = taken.close().into_iter().map(|op| match op {
            Op::Mail(EventId(key)) => key.index,
            _ => u32::MAX,
        });
        assert_eq!(order.collect::<Vec<_>>(), [0, 1, 2]);
    }
}
