//! Typed messages from any thread to a callback on the loop.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use super::inbox::{Op, Shared};
use crate::error::Error;
use crate::interest::Ready;
use crate::reactor::{Callback, EventId, Kind, Lent, LoopHandle};
use crate::sys::sync::{Mutex, lock};

/// The memory of a batch that has run is used again up to so many bytes; what a burst has made larger is given back.
pub(super) const KEPT: usize = 64 * 1024;

struct Letters<T> {
    queue: Vec<T>,
    /// An `Op::Mail` is under way or the callback has a batch, after which it looks: a sender need not push another.
    scheduled: bool,
    closed: bool,
}

/// Where senders leave their messages.
pub(super) struct Post<T> {
    letters: Mutex<Letters<T>>,
}

impl<T> Post<T> {
    pub(super) fn new() -> Arc<Post<T>> {
        let letters = Letters { queue: Vec::new(), scheduled: false, closed: false };
        Arc::new(Post { letters: Mutex::new(letters) })
    }

    /// Refuses from here on; what waits is dropped by the caller, with no lock held.
    pub(super) fn close(&self) -> Vec<T> {
        let mut letters = lock(&self.letters);
        letters.closed = true;
        std::mem::take(&mut letters.queue)
    }

    /// Swaps what waits for `batch`, which is empty; stays so if nothing does, and the next sender then asks to look.
    pub(super) fn take(&self, batch: &mut Vec<T>) {
        let mut letters = lock(&self.letters);
        if letters.queue.is_empty() {
            letters.scheduled = false;
        } else {
            std::mem::swap(batch, &mut letters.queue);
        }
    }
}

/// The loop's side: the messages that were taken together and have not run yet, ahead of all that wait. The callback
/// reads them, and the mailbox can drop them while it runs.
struct Desk<T> {
    post: Arc<Post<T>>,
    batch: RefCell<VecDeque<T>>,
}

impl<T> Desk<T> {
    fn is_empty(&self) -> bool {
        self.batch.borrow().is_empty()
    }

    /// Takes the next batch when the last one has run; tells whether there is one.
    fn look(&self) -> bool {
        // Neither way between the two forms copies anything.
        let mut batch = Vec::from(self.batch.take());
        if batch.capacity().saturating_mul(size_of::<T>()) > KEPT {
            batch = Vec::new();
        }
        self.post.take(&mut batch);
        let found = !batch.is_empty();
        self.batch.replace(VecDeque::from(batch));
        found
    }

    fn next(&self) -> Option<T> {
        self.batch.borrow_mut().pop_front()
    }

    /// Refuses from here on; hands out what nobody will read, the older first, to be dropped with nothing held.
    fn close(&self) -> (VecDeque<T>, Vec<T>) {
        (self.batch.take(), self.post.close())
    }
}

/// The callback's share of the desk: when it is dropped nobody will read any more.
struct Reader<T>(Rc<Desk<T>>);

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
    desk: Rc<Desk<T>>,
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
        let unread = self.desk.close();
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

impl<T> Sender<T> {
    pub(super) fn new(shared: Arc<Shared>, id: EventId, post: Arc<Post<T>>) -> Sender<T> {
        Sender { shared, id, post }
    }
}

impl<T: Send> Sender<T> {
    /// Queues a message; the mailbox's callback gets it in the loop's next turn, in the order of the calls. The queue
    /// has no bound of its own: a producer that must not run ahead needs an answer back.
    ///
    /// # Errors
    /// - `SendError` with the message if the mailbox or the `EventBase` was dropped.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let must_wake = {
            let mut letters = lock(&self.post.letters);
            if letters.closed {
                return Err(SendError(message));
            }
            let mut must_wake = false;
            if !letters.scheduled {
                // Under the lock, so that the answer is known before the message is given away.
                let Ok(is_first) = self.shared.add(Op::Mail(self.id)) else {
                    letters.closed = true;
                    return Err(SendError(message));
                };
                letters.scheduled = true;
                must_wake = is_first;
            }
            letters.queue.push(message);
            must_wake
        };
        if must_wake {
            self.shared.wake();
        }
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
    /// Makes a mailbox: `cb` stays on the loop's thread and runs once for each message that a [`Sender`] sends; it may
    /// capture what it likes. At most 1,024 messages run in a turn.
    ///
    /// ```
    /// use event_core::{EventBase, LoopFlags};
    /// use std::thread;
    ///
    /// let mut base = EventBase::new()?;
    /// let handle = base.handle();
    /// let (_mailbox, sender) = base.mailbox(move |answer: u64| {
    ///     println!("{answer}");
    ///     let _ = handle.loopexit(None);
    /// })?;
    /// thread::spawn(move || sender.send((1..=1000).sum()));
    /// base.run(LoopFlags::NO_EXIT_ON_EMPTY)?; // a mailbox alone does not keep the loop running
    /// # Ok::<(), event_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `Error::LoopGone` if the `EventBase` was dropped.
    pub fn mailbox<T: Send + 'static>(
        &self,
        mut cb: impl FnMut(T) + 'static,
    ) -> Result<(Mailbox<T>, Sender<T>), Error> {
        let desk = Rc::new(Desk { post: Post::new(), batch: RefCell::default() });
        let reader = Reader(desk.clone());
        let callback = move |lent: &Lent, _: Ready, _: u32| {
            let (handle, id) = (lent.handle(), lent.id());
            let desk = &*reader.0;
            if desk.is_empty() && !desk.look() {
                return;
            }
            while !handle.must_yield(id) && handle.has_message_budget() {
                let Some(message) = desk.next() else { break };
                handle.take_message_budget();
                handle.note_progress();
                cb(message);
                handle.callback_ended();
            }
            // What is left, or came meanwhile, waits a turn and needs no wake-up.
            if !desk.is_empty() || desk.look() {
                handle.activate_internal(id);
            }
        };
        let id = self.insert(Kind::Mailbox, -1, Default::default(), Callback::User(Box::new(callback)))?;
        let sender = Sender::new(self.shared().clone(), id, desk.post.clone());
        Ok((Mailbox { handle: self.clone(), id, desk, detached: false }, sender))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::few::few_under_miri;
    use crate::remote::inbox::tests::Counting;
    use crate::slots::Key;

    #[test]
    fn a_batch_is_one_wake_and_one_request_to_look() {
        let wake = Arc::new(Counting::default());
        let shared = Shared::new(wake.clone());
        let desk = Desk { post: Post::new(), batch: RefCell::default() };
        let sender = Sender::new(shared.clone(), EventId(Key { index: 0, generation: 0 }), desk.post.clone());
        let send = |range: std::ops::Range<u32>| range.for_each(|n| assert!(sender.send(n).is_ok()));
        let read = || std::iter::from_fn(|| desk.next()).collect::<Vec<_>>();
        let requests = || {
            shared.clear_wake();
            let taken = crate::remote::Taken::default();
            taken.fill(&shared);
            (wake.0.swap(0, Ordering::Relaxed), taken.close().len())
        };
        send(0..1000);
        assert_eq!(requests(), (1, 1));
        assert!(desk.look());
        send(1000..2000);
        assert_eq!(requests(), (0, 0), "the callback looks again when its batch has run");
        assert_eq!(read(), (0..1000).collect::<Vec<_>>());
        assert!(desk.look());
        assert_eq!(read(), (1000..2000).collect::<Vec<_>>());
        assert!(!desk.look());
        send(0..2);
        assert_eq!(requests(), (1, 1), "nobody looks any more without being asked");
    }

    #[test]
    fn memory_is_used_again_but_for_that_of_a_burst() {
        let desk = Desk { post: Post::new(), batch: RefCell::default() };
        let capacity = || desk.post.letters.lock().unwrap().queue.capacity();
        let send = |count: usize| (0..count).for_each(|n| desk.post.letters.lock().unwrap().queue.push(n));
        let read = || while desk.next().is_some() {};
        send(100);
        let first = capacity();
        for _ in 0..2 {
            assert!(desk.look());
            read();
            send(1);
        }
        assert_eq!(capacity(), first);
        send(few_under_miri(100_000, 10_000));
        for _ in 0..2 {
            assert!(desk.look());
            read();
            send(1);
        }
        assert!(desk.look());
        assert!(capacity() * size_of::<usize>() <= KEPT);
        assert!(desk.batch.borrow().capacity() * size_of::<usize>() <= KEPT);
    }
}
