//! What crosses threads: wake-ups, closures, activations, stops, and typed messages to a callback on the loop.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::Error;
use crate::interest::Ready;
use crate::reactor::{Callback, EventId, Kind, Lent, LoopHandle};
use crate::sys::Wake;
use crate::sys::sync::{AtomicBool, Mutex, lock};

/// At most this many messages and closures run in one turn, so that a busy sender cannot starve the fds.
pub(crate) const MESSAGES_PER_TURN: usize = 1024;

/// Coalesces wake-ups: many calls between two turns cost one write.
struct WakeFlag {
    pending: AtomicBool,
    wake: Arc<dyn Wake>,
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
    fn clear(&self) {
        self.wake.clear();
        // A swap like the senders', so that each of them is either before it, and its message is seen, or after it.
        self.pending.swap(false, Ordering::AcqRel);
    }
}

/// What other threads have asked for since the loop last looked.
pub(crate) enum Op {
    Activate(EventId, Ready),
    Mail(EventId),
    Post(Box<dyn FnOnce(&LoopHandle) + Send>),
}

#[derive(Default)]
struct Inbox {
    ops: VecDeque<Op>,
    exit: bool,
    stop: bool,
    gone: bool,
}

/// The part of a loop that other threads may hold. Outlives the loop, and then refuses.
pub(crate) struct Shared {
    flag: WakeFlag,
    inbox: Mutex<Inbox>,
}

/// What the loop finds when it looks: the stops asked for and up to `max` operations.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) exit: bool,
    pub(crate) stop: bool,
    pub(crate) ops: Vec<Op>,
}

impl Shared {
    pub(crate) fn new(wake: Arc<dyn Wake>) -> Arc<Shared> {
        let flag = WakeFlag { pending: AtomicBool::new(false), wake };
        Arc::new(Shared { flag, inbox: Mutex::new(Inbox::default()) })
    }

    pub(crate) fn wake(&self) {
        self.flag.wake();
    }

    pub(crate) fn clear_wake(&self) {
        self.flag.clear();
    }

    pub(crate) fn take(&self, max: usize) -> Taken {
        let mut inbox = lock(&self.inbox);
        let count = inbox.ops.len().min(max);
        let ops = inbox.ops.drain(..count).collect();
        let taken = Taken { exit: inbox.exit, stop: inbox.stop, ops };
        inbox.exit = false;
        inbox.stop = false;
        taken
    }

    /// Hands back what was taken and not run; it stays at the head.
    pub(crate) fn put_back(&self, ops: std::vec::IntoIter<Op>) {
        let refused = {
            let mut inbox = lock(&self.inbox);
            if inbox.gone {
                Some(ops)
            } else {
                for op in ops.rev() {
                    inbox.ops.push_front(op);
                }
                None
            }
        };
        drop(refused);
    }

    pub(crate) fn has_ops(&self) -> bool {
        !lock(&self.inbox).ops.is_empty()
    }

    /// From here on every call is refused. What was queued is handed back, to be dropped with no lock held.
    pub(crate) fn close(&self) -> VecDeque<Op> {
        let mut inbox = lock(&self.inbox);
        inbox.gone = true;
        std::mem::take(&mut inbox.ops)
    }

    fn is_gone(&self) -> bool {
        lock(&self.inbox).gone
    }

    /// Hands an operation back if the loop is gone.
    fn push(&self, op: Op) -> Result<(), Op> {
        {
            let mut inbox = lock(&self.inbox);
            if inbox.gone {
                return Err(op);
            }
            inbox.ops.push_back(op);
        }
        self.flag.wake();
        Ok(())
    }

    fn set(&self, set: impl FnOnce(&mut Inbox)) -> Result<(), Error> {
        {
            let mut inbox = lock(&self.inbox);
            if inbox.gone {
                return Err(Error::LoopGone);
            }
            set(&mut inbox);
        }
        self.flag.wake();
        Ok(())
    }
}

/// Wakes the loop from any thread and does nothing else: the loop takes one turn.
///
/// Dropping it does nothing. It may outlive the loop; waking is then without effect.
#[derive(Clone)]
pub struct Waker {
    shared: Arc<Shared>,
}

impl Waker {
    /// Makes the loop take a turn, now or as soon as it waits next. Many calls between two turns cost one system call.
    pub fn wake(&self) {
        self.shared.wake();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

/// What other threads may ask of a loop. `Clone`, `Send` and `Sync`; made by [`LoopHandle::remote`].
///
/// Everything is done by the loop's thread in its next turn, in the order it was asked for; at most 1,024 requests
/// run in a turn. Dropping a `Remote` does nothing. It may outlive the loop: calls then give [`Error::LoopGone`]. A
/// remote does not keep the loop running.
#[derive(Clone)]
pub struct Remote {
    shared: Arc<Shared>,
}

impl Remote {
    pub(crate) fn new(shared: Arc<Shared>) -> Remote {
        Remote { shared }
    }

    /// Runs `f` on the loop's thread. It gets the loop's handle, and must not need anything else of the loop's state:
    /// for that there is [`LoopHandle::mailbox`].
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped; `f` is dropped.
    pub fn post(&self, f: impl FnOnce(&LoopHandle) + Send + 'static) -> Result<(), Error> {
        self.shared.push(Op::Post(Box::new(f))).map_err(|_| Error::LoopGone)
    }

    /// Queues the event's callback with `ready` as its reasons, as [`LoopHandle::activate`] does. A stale id is ignored.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped.
    #[doc(alias = "event_active")]
    pub fn activate(&self, id: EventId, ready: Ready) -> Result<(), Error> {
        self.shared.push(Op::Activate(id, ready)).map_err(|_| Error::LoopGone)
    }

    /// Ends the loop after the turn that is running, or, if none runs, after the first turn of the next `dispatch`.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped.
    #[doc(alias = "event_base_loopexit")]
    pub fn loopexit(&self) -> Result<(), Error> {
        self.shared.set(|inbox| inbox.exit = true)
    }

    /// Ends the loop as soon as it sees this: no callback runs after that. Kept until a loop has seen it.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped.
    #[doc(alias = "event_base_loopbreak")]
    pub fn loopbreak(&self) -> Result<(), Error> {
        self.shared.set(|inbox| inbox.stop = true)
    }

    /// A handle that only wakes.
    pub fn waker(&self) -> Waker {
        Waker { shared: self.shared.clone() }
    }

    /// Whether the `EventBase` was dropped.
    pub fn is_gone(&self) -> bool {
        self.shared.is_gone()
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

struct Letters<T> {
    queue: VecDeque<T>,
    /// An `Op::Mail` is under way, so a sender need not push another.
    scheduled: bool,
    closed: bool,
}

struct Post<T> {
    letters: Mutex<Letters<T>>,
}

impl<T> Post<T> {
    /// Refuses from here on; what waits is dropped by the caller, with no lock held.
    fn close(&self) -> VecDeque<T> {
        let mut letters = lock(&self.letters);
        letters.closed = true;
        std::mem::take(&mut letters.queue)
    }

    fn next(&self) -> Option<T> {
        let mut letters = lock(&self.letters);
        let message = letters.queue.pop_front();
        if message.is_none() {
            letters.scheduled = false;
        }
        message
    }
}

/// The callback's share of the letters: when it is dropped nobody will read any more.
struct Reader<T>(Arc<Post<T>>);

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        drop(self.0.close());
    }
}

/// The loop's end of a mailbox; its callback runs once for each message.
///
/// Dropping it drops the callback (after it returns, if it is running) and the messages that wait; senders then get
/// them back. It does not keep the loop running.
#[must_use = "dropping the mailbox stops it"]
pub struct Mailbox<T> {
    handle: LoopHandle,
    id: EventId,
    post: Arc<Post<T>>,
    detached: bool,
}

impl<T> Mailbox<T> {
    /// Leaves the mailbox to the loop: it then lives until the `EventBase` is dropped.
    pub fn detach(mut self) {
        self.detached = true;
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        if self.detached {
            return;
        }
        let unread = self.post.close();
        let _ = self.handle.free(self.id);
        drop(unread);
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The error of [`Sender::send`]: nobody will read the message, which comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendError(..)")
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the mailbox is gone")
    }
}

impl<T> std::error::Error for SendError<T> {}

/// Sends messages to a [`Mailbox`] from any thread. `Clone`; `Send` and `Sync` when `T` is `Send`.
///
/// Dropping it does nothing. It may outlive mailbox and loop, and then hands messages back.
pub struct Sender<T> {
    shared: Arc<Shared>,
    id: EventId,
    post: Arc<Post<T>>,
}

impl<T: Send> Sender<T> {
    /// Queues a message; the mailbox's callback gets it in the loop's next turn, in the order of the calls. The queue
    /// has no bound of its own: a producer that must not run ahead needs an answer back.
    ///
    /// # Errors
    /// - `SendError` with the message if the mailbox or the `EventBase` was dropped.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let mut letters = lock(&self.post.letters);
        if letters.closed {
            return Err(SendError(message));
        }
        if !letters.scheduled {
            // Under the lock, so that the answer is known before the message is given away.
            if self.shared.push(Op::Mail(self.id)).is_err() {
                letters.closed = true;
                return Err(SendError(message));
            }
            letters.scheduled = true;
        }
        letters.queue.push_back(message);
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { shared: self.shared.clone(), id: self.id, post: self.post.clone() }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl LoopHandle {
    /// A handle for other threads.
    pub fn remote(&self) -> Remote {
        Remote::new(self.shared().clone())
    }

    /// A handle for other threads that only wakes the loop.
    pub fn waker(&self) -> Waker {
        Waker { shared: self.shared().clone() }
    }

    /// Makes a mailbox: `cb` stays on the loop's thread and runs once for each message that a [`Sender`] sends; it may
    /// capture what it likes. At most 1,024 messages run in a turn.
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped.
    pub fn mailbox<T: Send + 'static>(
        &self,
        mut cb: impl FnMut(T) + 'static,
    ) -> Result<(Mailbox<T>, Sender<T>), Error> {
        let letters = Letters { queue: VecDeque::new(), scheduled: false, closed: false };
        let post = Arc::new(Post { letters: Mutex::new(letters) });
        let inbox = Reader(post.clone());
        let callback = move |lent: &Lent, _: Ready, _: u32| {
            let (handle, id) = (lent.handle(), lent.id());
            while handle.is_alive(id) {
                if handle.must_yield(id) || !handle.take_message_budget() {
                    // The rest waits a turn.
                    handle.activate_internal(id);
                    return;
                }
                let Some(message) = inbox.0.next() else { return };
                handle.note_progress();
                cb(message);
            }
        };
        let id = self.insert(Kind::Mailbox, -1, Default::default(), Callback::User(Box::new(callback)))?;
        let sender = Sender { shared: self.shared().clone(), id, post: post.clone() };
        Ok((Mailbox { handle: self.clone(), id, post, detached: false }, sender))
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
