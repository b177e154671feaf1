//! What can go wrong in a call to the reactor.

use std::{fmt, io};

/// The error of every fallible call in this crate.
///
/// System calls keep their errno: see [`Error::Io`] and [`Error::raw_os_error`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
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
    /// The errno of a failed system call, `None` for every other error.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Error::Io(error) => error.raw_os_error(),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}
