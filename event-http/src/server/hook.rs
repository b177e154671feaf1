//! What a program wants to be told of a request that is out.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::conn::Seq;
use crate::server::flow::Flow;

/// How a client left while its answer was pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gone {
    /// It will send no more (FIN). Over TCP nobody can tell whether it still reads; an answer is still sent.
    Finished,
    /// The connection failed: a late answer goes nowhere, and is harmless.
    Reset,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Completion {
    /// The connection ended before the answer had left.
    ClientGone,
    /// The answer was handed to the kernel as a whole.
    Sent,
    /// The server was freed first.
    ServerGone,
}

pub(crate) type GoneCallback = Box<dyn FnOnce(Gone)>;
pub(crate) type RoomCallback = Box<dyn FnMut()>;
pub(crate) type CompleteCallback = Box<dyn FnOnce(Completion)>;

/// Runs a callback of the program's. A panic in it ends nothing else: it is logged; true if there was none.
pub(crate) fn guarded(name: &str, callback: impl FnOnce()) -> bool {
    let Err(payload) = catch_unwind(AssertUnwindSafe(callback)) else { return true };
    // Both are the program's code, too, and whoever calls this has more to do.
    forget_panic(|| log::error!("{name} panicked"));
    forget_panic(|| drop(payload));
    false
}

/// Runs what is left to do for a panic. If it panics itself, what it panicked with is leaked: dropping that might go on
/// so for ever.
fn forget_panic(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        std::mem::forget(payload);
    }
}

/// How far the answer of a hook's request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The program has not ended it.
    Pending,
    /// The program has ended it; perhaps it waits for the answers before it.
    Ended,
    /// All of it was given to the stream.
    Written,
}

/// A callback of one request. It runs at most once, except for room; the completion exactly once unless the loop ends
/// first.
pub(crate) struct Hook {
    pub(crate) seq: Seq,
    pub(crate) progress: Progress,
    gone: Option<GoneCallback>,
    complete: Option<CompleteCallback>,
    flag: Option<Arc<Flow>>,
    room: Option<RoomCallback>,
}

impl Hook {
    fn new(seq: Seq) -> Hook {
        Hook { seq, progress: Progress::Pending, gone: None, complete: None, flag: None, room: None }
    }

    pub(crate) fn on_gone(seq: Seq, callback: GoneCallback) -> Hook {
        Hook { gone: Some(callback), ..Hook::new(seq) }
    }

    pub(crate) fn on_complete(seq: Seq, callback: CompleteCallback) -> Hook {
        Hook { complete: Some(callback), ..Hook::new(seq) }
    }

    /// A call that is due.
    pub(crate) fn task(call: Box<dyn FnOnce()>) -> Hook {
        Hook { complete: Some(Box::new(move |_| call())), ..Hook::new(Seq::default()) }
    }

    /// A flag that is set when the connection ends before the answer.
    pub(crate) fn flag(seq: Seq, flag: Arc<Flow>) -> Hook {
        Hook { flag: Some(flag), ..Hook::new(seq) }
    }

    pub(crate) fn on_room(seq: Seq, callback: RoomCallback) -> Hook {
        Hook { room: Some(callback), ..Hook::new(seq) }
    }

    pub(crate) fn is_room(&self) -> bool {
        self.room.is_some()
    }

    /// False if it must not be called again.
    pub(crate) fn call_room(&mut self) -> bool {
        self.room.as_mut().is_some_and(|room| guarded("on_room", room))
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    pub(crate) fn take_gone(&mut self) -> Option<GoneCallback> {
        self.gone.take()
    }

    /// Sets the flag at once: other threads may ask before the callbacks have run.
    pub(crate) fn raise_flag(&self) {
        if let Some(flag) = &self.flag {
            flag.raise();
        }
    }

    /// Calls what waited for the end. A callback for the client's leaving that was added after it is called, too.
    pub(crate) fn complete(self, completion: Completion) {
        if let Some(callback) = self.gone
            && completion == Completion::ClientGone
        {
            guarded("on_client_gone", || callback(Gone::Reset));
        }
        if let Some(callback) = self.complete {
            guarded("on_complete", || callback(completion));
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook")
            .field("seq", &self.seq)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
