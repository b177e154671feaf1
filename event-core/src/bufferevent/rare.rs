//! What most streams never have: marks, timeouts, single closures, a transport, a partner. Kept in a box of its own so
//! that an idle connection does not pay for it.

use std::any::Any;
use std::io;
use std::rc::{Rc, Weak};
use std::time::Duration;

use super::changes::Changes;
use super::connecting::Connecting;
use super::inner::Inner;
use super::layers::Layer;
use super::rate_limit::Limits;
use super::{BufferEvent, StreamEvent, Transport};
use crate::clock::Time;
use crate::error::{ConnectError, Error};

/// Bounds a stream has unless it says otherwise: more than any sane message, less than a machine.
pub(super) const DEFAULT_MAX: usize = 16 << 20;

/// Where a stream's output has no more room unless it says otherwise: enough for any line, little for a server that has
/// a thousand slow readers.
pub(super) const DEFAULT_ROOM: usize = 1 << 20;

pub(super) type StreamCallback = Box<dyn FnMut(&BufferEvent)>;
pub(super) type EventCallback = Box<dyn FnMut(&BufferEvent, StreamEvent)>;

/// Why a stream failed.
#[derive(Clone, Debug)]
pub(super) enum Cause {
    Connect(ConnectError),
    Errno(i32),
    /// An error that is not the system's: of a filter or transport, or that what was to be sent ended too soon.
    Kind(io::ErrorKind),
    InputFull,
    /// The kernel lost the fd behind our back.
    Lost,
    OutputFull,
}

impl Cause {
    pub(super) fn of(error: &io::Error) -> Cause {
        match error.raw_os_error() {
            Some(errno) => Cause::Errno(errno),
            None => Cause::Kind(error.kind()),
        }
    }

    pub(super) fn error(self) -> Error {
        match self {
            Cause::Connect(error) => Error::Connect(error),
            Cause::Errno(errno) => Error::Io(io::Error::from_raw_os_error(errno)),
            Cause::Kind(kind) => Error::Io(kind.into()),
            Cause::InputFull => Error::InputFull,
            Cause::Lost => Error::Stale,
            Cause::OutputFull => Error::OutputFull,
        }
    }
}

pub(super) struct Rare {
    pub(super) read_cb: Option<StreamCallback>,
    pub(super) write_cb: Option<StreamCallback>,
    pub(super) event_cb: Option<EventCallback>,
    pub(super) room_cb: Option<StreamCallback>,
    /// Counts how the buffers change, for a callback.
    pub(super) changes: Option<Box<Changes>>,
    /// What the program itself wants told.
    pub(super) triggered: StreamEvent,
    pub(super) transport: Option<Box<dyn Transport>>,
    pub(super) partner: Weak<Inner>,
    /// What a stream over another one has.
    pub(super) layer: Option<Box<Layer>>,
    /// The stream that stands on this one.
    pub(super) above: Weak<Inner>,
    /// Rate limits.
    pub(super) limits: Option<Box<Limits>>,
    /// It is being joined to another one right now.
    pub(super) joining: bool,
    /// Dropped when the stream is freed.
    pub(super) kept: Option<Box<dyn Any>>,
    pub(super) cause: Option<Cause>,
    /// Sockets race to become the stream's.
    pub(super) connecting: Option<Rc<Connecting>>,
    pub(super) read_low: usize,
    pub(super) read_high: usize,
    pub(super) write_low: usize,
    /// Above it the output has no room.
    pub(super) write_high: usize,
    /// The most that one visit reads or writes. Not 0.
    pub(super) max_single_read: usize,
    pub(super) max_single_write: usize,
    pub(super) max_input: usize,
    pub(super) max_output: usize,
    pub(super) read_timeout: Option<Duration>,
    pub(super) write_timeout: Option<Duration>,
    /// When reading last got on, or was enabled.
    pub(super) last_read: Time,
}

impl Default for Rare {
    fn default() -> Rare {
        Rare {
            read_cb: None,
            write_cb: None,
            event_cb: None,
            room_cb: None,
            changes: None,
            triggered: StreamEvent::empty(),
            transport: None,
            partner: Weak::new(),
            layer: None,
            above: Weak::new(),
            limits: None,
            joining: false,
            kept: None,
            cause: None,
            connecting: None,
            read_low: 0,
            read_high: usize::MAX,
            write_low: 0,
            write_high: DEFAULT_ROOM,
            max_single_read: usize::MAX,
            max_single_write: usize::MAX,
            max_input: DEFAULT_MAX,
            max_output: DEFAULT_MAX,
            read_timeout: None,
            write_timeout: None,
            last_read: Time::default(),
        }
    }
}
