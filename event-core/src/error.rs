//! What can go wrong in a call to the reactor.

use std::sync::Arc;
use std::{fmt, io};

/// The error of every fallible call in this crate.
///
/// System calls keep their errno: see [`Error::Io`] and [`Error::raw_os_error`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A stream could not be connected: which step failed, and why.
    Connect(ConnectError),
    /// The process has forked since this loop was made; call `EventBase::after_fork` in the child first.
    Forked,
    /// The input of a stream reached `max_input` and nobody took it.
    InputFull,
    /// An argument does not fit: the text says which.
    Invalid(&'static str),
    /// A system call failed.
    Io(io::Error),
    /// The `EventBase` was dropped.
    LoopGone,
    /// The output of a stream reached `max_output`; the bytes were kept and the stream is about to fail.
    OutputFull,
    /// The event, timer, signal or stream was freed.
    Stale,
}

impl Error {
    /// The errno of a failed system call or connect, `None` for every other error.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Error::Connect(error) => error.raw_os_error(),
            Error::Io(error) => error.raw_os_error(),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Connect(error) => error.fmt(f),
            Error::Forked => f.write_str("the process has forked since the loop was made"),
            Error::InputFull => f.write_str("the input buffer is full"),
            Error::Invalid(what) => f.write_str(what),
            Error::Io(_) => f.write_str("a system call failed"),
            Error::LoopGone => f.write_str("the event loop is gone"),
            Error::OutputFull => f.write_str("the output buffer is full"),
            Error::Stale => f.write_str("the object was freed"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Connect(error) => Some(error.cause()),
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// On the way to a connection, what failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectPhase {
    /// The name has no address, or none was found in time.
    Resolve,
    /// No address took the connection.
    Connect,
}

/// Why a stream could not be connected.
///
/// Of several addresses that were tried it is the last to fail that says more than that there is no way to it
/// (ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, EAFNOSUPPORT); of such ones alone, the last.
#[derive(Clone, Debug)]
#[doc(alias = "bufferevent_socket_get_dns_error")]
pub struct ConnectError {
    phase: ConnectPhase,
    // Shared, since a stream tells its error as often as it is asked.
    cause: Arc<io::Error>,
}

impl ConnectError {
    pub(crate) fn new(phase: ConnectPhase, cause: io::Error) -> ConnectError {
        ConnectError { phase, cause: Arc::new(cause) }
    }

    /// What failed.
    pub fn phase(&self) -> ConnectPhase {
        self.phase
    }

    /// Why: what the system, or the resolver, said. Of kind `TimedOut`, with ETIMEDOUT, if a deadline has passed.
    pub fn cause(&self) -> &io::Error {
        &self.cause
    }

    /// The errno. A failed look-up often has none.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.cause.raw_os_error()
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.phase {
            ConnectPhase::Resolve => "the name was not resolved",
            ConnectPhase::Connect => "the connection was not made",
        })
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.cause())
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}
