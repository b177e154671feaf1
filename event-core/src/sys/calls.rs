//! The kinds of call that cross the seam, and a count of each.

use std::fmt;
use std::ops::{Index, Sub};

/// One kind of call that the library makes to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Call {
    /// A connection is taken from a listening socket: `accept4`.
    Accept,
    /// The backend is made anew in the child of a fork.
    AfterFork,
    /// A socket that is to connect gets an address of its own.
    Bind,
    /// An fd is registered, changed or forgotten: `epoll_ctl`. Of those that are made to fail, only
    /// registering does.
    Change,
    /// An fd is closed.
    Close,
    /// A socket starts to connect; for a single address it is made in the same call.
    Connect,
    /// The close of a socket is made a reset: `SO_LINGER`.
    Linger,
    /// A listening socket is made.
    Listen,
    /// `getsockname`.
    LocalAddress,
    /// `getpeername`.
    PeerAddress,
    /// Bytes are read: `recv` or `read`.
    Recv,
    /// Bytes are written from one piece: `send` or `write`.
    Send,
    /// Bytes go from a file to a stream: `sendfile`.
    Sendfile,
    /// Bytes are written from several pieces: `sendmsg` or `writev`.
    Sendv,
    /// `O_NONBLOCK` is set.
    SetNonblocking,
    /// A direction of a socket is shut down.
    Shutdown,
    /// Deliveries of a signal begin to be counted: `sigaction`.
    SignalAdd,
    /// The old disposition of a signal comes back: `sigaction`.
    SignalDel,
    /// A socket is made that is to connect.
    Socket,
    /// `SO_ERROR` is read.
    TakeError,
    /// The loop asks for what is ready: `epoll_wait`.
    Wait,
}

impl Call {
    /// Every kind, in alphabetical order; for a test that goes through them all.
    pub const ALL: [Call; 21] = [
        Call::Accept,
        Call::AfterFork,
        Call::Bind,
        Call::Change,
        Call::Close,
        Call::Connect,
        Call::Linger,
        Call::Listen,
        Call::LocalAddress,
        Call::PeerAddress,
        Call::Recv,
        Call::Send,
        Call::Sendfile,
        Call::Sendv,
        Call::SetNonblocking,
        Call::Shutdown,
        Call::SignalAdd,
        Call::SignalDel,
        Call::Socket,
        Call::TakeError,
        Call::Wait,
    ];

    /// Whether a call of this kind can fail; closing and giving a signal back cannot.
    pub fn is_fallible(self) -> bool {
        !matches!(self, Call::Close | Call::SignalDel)
    }

    /// Whether a call of this kind moves bytes, so that it can be cut short.
    pub fn moves_bytes(self) -> bool {
        matches!(self, Call::Recv | Call::Send | Call::Sendfile | Call::Sendv)
    }
}

/// How many calls of each kind were made; `calls[Call::Recv]` is one count.
///
/// Two snapshots subtract, which gives the calls made between them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls([u64; Call::ALL.len()]);

impl Calls {
    /// The calls of all kinds together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn add(&mut self, call: Call) {
        self.0[call as usize] += 1;
    }
}

impl Index<Call> for Calls {
    type Output = u64;

    fn index(&self, call: Call) -> &u64 {
        &self.0[call as usize]
    }
}

impl Sub for Calls {
    type Output = Calls;

    /// The calls made since `earlier`; zero where `earlier` is the later one.
    fn sub(self, earlier: Calls) -> Calls {
        let mut result = self;
        for (count, before) in result.0.iter_mut().zip(earlier.0) {
            *count = count.saturating_sub(before);
        }
        result
    }
}

impl fmt::Debug for Calls {
    /// Shows the kinds that were called at all.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let made = Call::ALL.iter().map(|&call| (call, self[call])).filter(|&(_, count)| count > 0);
        f.debug_map().entries(made).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_place_of_its_own() {
        for (place, call) in Call::ALL.into_iter().enumerate() {
            assert_eq!(call as usize, place, "{call:?} is out of order in ALL");
        }
    }

    #[test]
    fn counts_add_up_and_subtract() {
        let mut calls = Calls::default();
        calls.add(Call::Recv);
        let before = calls;
        calls.add(Call::Recv);
        calls.add(Call::Wait);
        assert_eq!((calls[Call::Recv], calls[Call::Wait], calls.total()), (2, 1, 3));
        assert_eq!((calls - before)[Call::Recv], 1);
        assert_eq!((before - calls).total(), 0);
        assert_eq!(format!("{calls:?}"), "{Recv: 2, Wait: 1}");
    }
}
