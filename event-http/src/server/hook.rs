//! What a program wants to be told of a request that is out.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::conn::Seq;

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

/// The callbacks of one request. Each runs at most once; the completion exactly once unless the loop ends first.
pub(crate) struct Hook {
    pub(crate) seq: Seq,
    /// The answer is written; only sending it is left.
    pub(crate) done: bool,
    gone: Option<GoneCallback>,
    complete: Option<CompleteCallback>,
    flag: Option<Arc<AtomicBool>>,
    room: Option<RoomCallback>,
}

impl Hook {
    fn new(seq: Seq) -> Hook {
        Hook { seq, done: false, gone: None, complete: None, flag: None, room: None }
    }

    pub(crate) fn on_gone(seq: Seq, callback: GoneCallback) -> Hook {
        Hook { gone: Some(callback), ..Hook::new(seq) }
    }

    pub(crate) fn on_complete(seq: Seq, callback: CompleteCallback) -> Hook {
        Hook { complete: Some(callback), ..Hook::new(seq) }
    }

    /// A flag that is set when the connection ends before the answer.
    pub(crate) fn flag(seq: Seq, flag: Arc<AtomicBool>) -> Hook {
        Hook { flag: Some(flag), ..Hook::new(seq) }
    }

    pub(crate) fn on_room(seq: Seq, callback: RoomCallback) -> Hook {
        Hook { room: Some(callback), ..Hook::new(seq) }
    }

    pub(crate) fn take_room(&mut self) -> Option<(Seq, RoomCallback)> {
        Some((self.seq, self.room.take()?))
    }

    pub(crate) fn take_gone(&mut self, gone: Gone) -> Option<GoneCallback> {
        if gone == Gone::Reset
            && let Some(flag) = &self.flag
        {
            flag.store(true, Ordering::Release);
        }
        self.gone.take()
    }

    /// Sets the flag at once: other threads may ask before the callbacks have run.
    pub(crate) fn raise_flag(&self) {
        if let Some(flag) = &self.flag {
            flag.store(true, Ordering::Release);
        }
    }

    pub(crate) fn complete(self, completion: Completion) {
        if let Some(callback) = self.complete {
            callback(completion);
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").field("seq", &self.seq).field("done", &self.done).finish_non_exhaustive()
    }
}
