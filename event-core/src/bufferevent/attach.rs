//! A stream's fd: replaced, taken away, and connected anew, with everything else of the stream kept.

use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use super::BufferEvent;
use super::inner::Inner;
use super::state::{Due, State};
use crate::error::{ConnectError, ConnectPhase, Error};
use crate::interest::What;
use crate::reactor::LoopHandle;
use crate::sys::{Address, FdKind};

impl BufferEvent {
    /// Makes a stream that has no fd yet: `bufferevent_socket_new` with -1. What is written waits for
    /// [`replace_fd`](Self::replace_fd) or [`reconnect`](Self::reconnect); until then it keeps no loop running.
    ///
    /// # Errors
    /// - `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_socket_new")]
    pub fn without_fd(handle: &LoopHandle) -> Result<BufferEvent, Error> {
        handle.check()?;
        Ok(BufferEvent::made(handle, -1, State::DETACHED))
    }

    /// Gives the stream another fd, which is made non-blocking and closed with it; the old one is closed, if it was the
    /// stream's. Buffers, callbacks, marks, timeouts and what is enabled stay. Whatever was known of the old one, its
    /// end and its errors included, is forgotten: an event of it that was not told yet does not come.
    ///
    /// # Errors
    /// - `Error::Invalid` for an end of a pair and for a stream over a transport or another stream.
    /// - `Error::Io` if the fd cannot be made non-blocking, after which all is as before, or if the backend refuses it:
    ///   then the stream has none.
    /// - `Error::Stale` if the stream was freed; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_replacefd")]
    #[doc(alias = "bufferevent_setfd")]
    pub fn replace_fd(&self, fd: impl Into<OwnedFd>) -> Result<(), Error> {
        let fd = fd.into();
        self.inner.check_replaceable()?;
        self.inner.handle.sys().set_nonblocking(std::os::fd::AsRawFd::as_raw_fd(&fd))?;
        self.inner.attach(fd.into_raw_fd(), State::empty())
    }

    /// Like `replace_fd`, with an fd that the loop's own kernel made.
    pub(crate) fn replace_raw_fd(&self, fd: RawFd) -> Result<(), Error> {
        self.inner.check_replaceable()?;
        self.inner.attach(fd, State::empty())
    }

    /// Takes the fd out of the stream, which goes on without: non-blocking, and the caller's to close. `None` if there
    /// is none. What was read stays in the input and what was not sent in the output.
    ///
    /// # Errors
    /// - `Error::Invalid` for an end of a pair and for a stream over a transport or another stream.
    /// - `Error::Stale` if the stream was freed; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_setfd")]
    pub fn detach_fd(&self) -> Result<Option<RawFd>, Error> {
        self.inner.check_replaceable()?;
        let fd = self.fd();
        self.inner.set(State::OWNS_FD, false);
        self.inner.attach(-1, State::empty())?;
        Ok(fd)
    }

    /// Closes the fd, if there is one, and starts to connect: as [`connect`](Self::connect), but on a stream that is
    /// there, with its callbacks and with what its output holds. WRITE is enabled, as on a new stream; READ stays as it
    /// is, which after a failed connect is off.
    ///
    /// # Errors
    /// - `Error::Io` if the system cannot even try; nothing has changed then. A refusal is an event.
    /// - `Error::Invalid` for an end of a pair and for a stream over a transport or another stream.
    /// - `Error::Stale` if the stream was freed; `Error::LoopGone`, `Error::Forked`.
    #[doc(alias = "bufferevent_socket_connect")]
    pub fn reconnect(&self, address: &Address) -> Result<(), Error> {
        self.inner.check_replaceable()?;
        let (fd, refused) = match self.inner.handle.sys().connect(address) {
            Ok(fd) => (fd, None),
            Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => (-1, Some(error)),
            Err(error) => return Err(error.into()),
        };
        self.inner.set(State::WRITE_ENABLED, true);
        self.inner.attach(fd, State::CONNECTING)?;
        if let Some(error) = refused {
            self.inner.connect_failed(ConnectError::new(ConnectPhase::Connect, error));
        }
        Ok(())
    }
}

impl Inner {
    pub(super) fn check_replaceable(&self) -> Result<(), Error> {
        self.check()?;
        self.handle.check()?;
        if self.has(State::PAIR | State::TRANSPORT | State::FILTER) {
            return Err(Error::Invalid("this stream brings its bytes along without an fd of its own"));
        }
        Ok(())
    }

    /// Puts `fd`, which is the stream's from here on, in the place of the old one.
    fn attach(self: &Rc<Self>, fd: RawFd, state: State) -> Result<(), Error> {
        let connecting = self.rare_if(|rare| rare.connecting.take()).flatten();
        let ended = (connecting.map(|connecting| connecting.end()), self.take_cause());
        let old = self.swap_fd(fd);
        self.set(state, true);
        if let Some(old) = old {
            self.handle.sys().close(old);
        }
        self.touch_write();
        self.touch_read();
        let started = self.start().and_then(|()| self.try_update());
        if let Err(error) = started {
            if let Some(refused) = self.swap_fd(-1) {
                self.handle.sys().close(refused);
            }
            self.update();
            drop(ended);
            return Err(error);
        }
        self.output_changed();
        drop(ended);
        Ok(())
    }

    /// Forgets everything of the old fd, which is returned if it is ours to close.
    pub(super) fn swap_fd(&self, fd: RawFd) -> Option<RawFd> {
        let owned = self.has(State::OWNS_FD);
        let old = self.fd.replace(fd);
        self.handle.set_source(self.id.get(), fd);
        self.watched.set(What::empty());
        self.kind.set(FdKind::Socket);
        self.set(
            State::EOF
                | State::UNTOLD_EOF
                | State::WRITE_SHUT
                | State::SHUTDOWN_AFTER_FLUSH
                | State::BLOCKED
                | State::CONNECTING
                | State::REGISTERED,
            false,
        );
        self.set(State::OWNS_FD | State::REPLACED, true);
        self.set(State::DETACHED, fd < 0);
        drop(self.take_cause());
        let due = self.due.get() - Due::OF_FD;
        self.due.set(Due::empty());
        if !due.is_empty() {
            // Taken off the queue with the old fd.
            self.raise(due);
        }
        // So was the timer.
        self.rearm();
        (owned && old >= 0).then_some(old)
    }
}
