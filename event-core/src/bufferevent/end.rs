//! How a stream ends: at once, after its output, one way, both ways.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::rc::Rc;

use super::buffers::Side;
use super::inner::Inner;
use super::state::{Due, State};

impl Inner {
    pub(super) fn close_after_flush(self: &Rc<Self>) {
        if self.is_freed() {
            return;
        }
        let failed = self.due.get().intersects(Due::WRITE_ERROR | Due::ERROR);
        if !failed && self.has(State::WRITE_ENABLED) {
            self.ask_finish();
        }
        if failed || !self.has(State::WRITE_ENABLED) || self.has(State::DETACHED) {
            self.free();
            return;
        }
        self.set(State::CLOSE_AFTER_FLUSH, true);
        if self.is_flushed() {
            return self.close_flushed();
        }
        self.output_changed();
        self.update();
    }

    /// Frees the stream, all of which is sent, once its transport has said its last word.
    fn close_flushed(self: &Rc<Self>) {
        if !self.has(State::WRITE_SHUT) && self.is_over_transport() {
            self.shutdown_now();
        }
        // A filter is not flushed while a transport below has its last word to say.
        let is_over =
            if self.has(State::TRANSPORT) { self.has(State::WRITE_SHUT) } else { self.is_flushed() };
        if is_over {
            self.free();
        }
    }

    /// The transport has something to say at the end, for which the kernel has no room yet: it is output that waits.
    pub(super) fn ends_later(&self) -> bool {
        self.state.get().contains(State::TRANSPORT | State::SHUTDOWN_AFTER_FLUSH) && self.is_flushed()
    }

    /// Frees the stream so that the peer is told of a reset.
    pub(super) fn close_with_reset(&self) {
        if self.is_freed() {
            return;
        }
        let layer = self.rare_if(|rare| rare.layer.take()).flatten();
        if let Some(layer) = layer {
            self.free();
            layer.close_with_reset();
            return;
        }
        if self.has(State::PAIR) {
            self.reset_partner();
        } else if self.fd.get() >= 0 && self.has(State::OWNS_FD | State::TRANSPORT) {
            // Refused by what knows no resets, which is then closed in the usual way.
            let _ = self.handle.sys().reset_on_close(self.fd.get());
        }
        self.free();
    }

    pub(super) fn shutdown_write(self: &Rc<Self>) {
        if self.is_freed() || self.has(State::WRITE_SHUT) {
            return;
        }
        if !self.ask_finish() && self.is_flushed() && !self.has(State::CONNECTING) {
            self.shutdown_now();
            self.free_if_over();
        } else {
            self.set(State::SHUTDOWN_AFTER_FLUSH, true);
        }
    }

    pub(super) fn shutdown_now(self: &Rc<Self>) {
        if self.has(State::TRANSPORT) {
            let shut = self.with_transport(|transport| transport.shutdown(Shutdown::Write));
            if shut.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                if !self.ends_later() {
                    self.touch_write();
                }
                self.set(State::SHUTDOWN_AFTER_FLUSH | State::BLOCKED, true);
                return self.update();
            }
        }
        self.set(State::WRITE_SHUT, true);
        self.set(State::SHUTDOWN_AFTER_FLUSH, false);
        if self.has(State::UNDER_FILTER) {
            // That was what the one above may have waited for.
            self.raise(Due::WRITE);
        }
        if let Some(below) = self.below() {
            below.shutdown_write();
        } else if self.has(State::PAIR) {
            self.end_partner(false);
        } else if self.has(State::TRANSPORT) {
            self.update();
        } else if self.fd.get() >= 0 {
            // ENOTCONN: the peer is gone, and reading will say so.
            let shut = self.handle.sys().shutdown(self.fd.get(), Shutdown::Write);
            let is_file = shut.is_err_and(|error| error.raw_os_error() == Some(libc::ENOTSOCK));
            if is_file && !self.has(State::READ_ENABLED) {
                // A pipe that is only written to ends by being closed.
                self.set(State::EOF, true);
            }
        }
    }

    /// Everything is sent: what was to happen then happens, once the callbacks know.
    pub(super) fn finish_if_flushed(self: &Rc<Self>) {
        if self.is_freed() || !self.due.get().is_empty() {
            return;
        }
        if self.has(State::CLOSE_AFTER_FLUSH | State::SHUTDOWN_AFTER_FLUSH) && self.is_flushed() {
            if self.has(State::CLOSE_AFTER_FLUSH) {
                return self.close_flushed();
            }
            if self.has(State::SHUTDOWN_AFTER_FLUSH) && !self.has(State::CONNECTING) {
                self.shutdown_now();
            }
        }
        self.free_if_over();
    }

    /// Both directions have ended, and the callbacks know it.
    pub(super) fn free_if_over(&self) {
        if self.has(State::EOF)
            && self.has(State::WRITE_SHUT)
            && !self.has(State::IN_STEP | State::UNDER_FILTER)
            && (!self.has(State::FILTER) || self.is_flushed())
            && self.due.get().is_empty()
        {
            self.free();
        }
    }

    /// If the other side has ended and everybody has been told, tells it once more: there is somebody new.
    pub(super) fn tell_end_again(self: &Rc<Self>) {
        if self.has(State::EOF) && !self.has(State::UNTOLD_EOF) {
            self.raise(Due::READ_EOF);
            self.update();
        }
    }

    /// Frees the stream. What drops, drops here, last, with nothing borrowed.
    pub(super) fn free(&self) {
        if self.is_freed() {
            return;
        }
        self.set(State::FREED, true);
        let slot = self.handle.remove_slot(self.id.get().0);
        if self.has(State::PAIR) {
            self.end_partner(true);
        }
        if self.has(State::UNDER_FILTER) {
            self.leave_above();
        }
        if self.has(State::LIMITED) {
            self.leave_group();
        }
        let fd = self.fd.replace(-1);
        let layer = self.rare_if(|rare| rare.layer.take()).flatten();
        let transport = self.rare_if(|rare| rare.transport.take()).flatten();
        let kept = self.rare_if(|rare| rare.kept.take()).flatten();
        let closures = (self.take_closures(), self.rare_if(|rare| rare.changes.take()));
        let callbacks = self.callbacks.take();
        let connecting = self.rare_if(|rare| rare.connecting.take()).flatten();
        let ended = connecting.map(|connecting| connecting.end());
        let buffers = (self.take(Side::Input), self.take(Side::Output));
        if fd >= 0 && self.has(State::OWNS_FD) {
            self.handle.sys().close(fd);
        }
        // After all of this stream's is in hand: it drops also if a drop below panics.
        if let Some(layer) = &layer {
            layer.free();
        }
        drop((slot, transport, closures, callbacks, buffers, kept, ended, layer));
    }
}
