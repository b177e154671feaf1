//! The two ends of a pair: what one does to the other.

use std::io;
use std::rc::Rc;

use super::buffers::Side;
use super::files::load;
use super::inner::Inner;
use super::rare::Cause;
use super::state::{Due, State};
use crate::buffer::Buffer;

impl Inner {
    /// The other end of a pair, unless it is gone.
    pub(super) fn partner(&self) -> Option<Rc<Inner>> {
        self.rare(None, |rare| rare.partner.upgrade()).filter(|partner| !partner.is_freed())
    }

    /// Moves output into the other end's input.
    pub(super) fn give_partner(&self, output: &mut Buffer, max: usize) -> io::Result<(usize, bool)> {
        let Some(partner) = self.partner() else {
            return Err(io::Error::from_raw_os_error(libc::EPIPE));
        };
        if !partner.may_read() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // The other end gets memory: a file that fails is this end's error.
        let mut room = partner.room();
        if partner.has(State::LIMITED) {
            room = room.min(partner.quota(Side::Input));
        }
        let room = load(output, room.min(max))?;
        if !partner.may_read() {
            // A file that is used up is let go, which may run code of the program's.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut input = partner.borrow(Side::Input);
        let moved = output.remove_buffer(&mut input, room);
        drop(input);
        if moved > 0 {
            partner.touch_read();
            if partner.has(State::LIMITED) {
                partner.charge(Side::Input, moved, moved == room);
            }
            // Below the low mark too: its step looks at the bound of the input.
            partner.raise(Due::ARRIVED);
            partner.update();
        }
        Ok((moved, output.is_empty() || moved == max))
    }

    /// The other end of a pair may have something for us.
    pub(super) fn ask_partner(&self) {
        if self.has(State::PAIR)
            && let Some(partner) = self.partner()
        {
            partner.set(State::BLOCKED, false);
            if partner.may_write() && partner.has_output() {
                partner.push_unflushed();
            }
        }
    }

    /// Tells the other end of a pair that no more will come: at once if this one is gone, else when that one reads, as
    /// on a socket.
    pub(super) fn end_partner(&self, gone: bool) {
        self.tell_partner(gone, Due::READ_EOF);
    }

    /// Tells the other end of a pair that this one was reset.
    pub(super) fn reset_partner(&self) {
        self.tell_partner(true, Due::READ_ERROR);
    }

    fn tell_partner(&self, gone: bool, due: Due) {
        let Some(partner) = self.rare(None, |rare| rare.partner.upgrade()) else { return };
        if partner.is_freed() {
            return;
        }
        if !partner.has(State::EOF) {
            if gone || partner.has(State::READ_ENABLED) {
                partner.set(State::UNTOLD_EOF, false);
                partner.set(State::EOF, true);
                if due == Due::READ_ERROR {
                    partner.set(State::READ_ENABLED, false);
                    partner.set_cause(Cause::Errno(libc::ECONNRESET));
                }
                partner.raise(due);
            } else {
                partner.set(State::UNTOLD_EOF, true);
            }
        }
        if gone {
            // What waits there for a reader fails now.
            partner.set(State::BLOCKED, false);
            if partner.may_write() && partner.has_output() {
                partner.push_unflushed();
            }
        }
        partner.update();
    }
}
