//! What a test lays down by hand: the readiness of a plain file, and obstacles for the next calls on an open one.

use std::os::fd::RawFd;

use crate::interest::{Ready, Report};
use crate::sys::Step;

use super::Sim;

/// A file whose readiness the test sets by hand, for raw `Event`s.
///
/// The number is the program's to close ([`Sim::close`]); dropping this value does nothing. Reads and writes of it
/// answer `EAGAIN`.
#[derive(Clone, Debug)]
pub struct SimFd {
    pub(super) sim: Sim,
    pub(super) fd: RawFd,
}

impl SimFd {
    /// The number.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// Says what the file is ready for from now on: `READ`, `WRITE` and `CLOSED`; other bits mean nothing.
    ///
    /// Each call is an edge, also one that changes nothing. Does nothing once the number is closed.
    pub fn set_ready(&self, ready: Ready) {
        // The bits of both sets are the same.
        self.set(Report::READ | Report::WRITE | Report::CLOSED, Report::from_bits_truncate(ready.bits()));
    }

    /// Says whether the file is hung up (`EPOLLHUP`), which is reported whether asked for or not.
    pub fn set_hang_up(&self, hung_up: bool) {
        self.set(Report::HUP, if hung_up { Report::HUP } else { Report::empty() });
    }

    /// Says whether the file has an error (`EPOLLERR`), which is reported whether asked for or not.
    pub fn set_error(&self, error: bool) {
        self.set(Report::ERR, if error { Report::ERR } else { Report::empty() });
    }

    fn set(&self, mask: Report, value: Report) {
        let _ = self.sim.world.with(|state| state.set_plain(self.fd, mask, value));
    }
}

/// Lays things in the way of the next calls on one open file; made by [`Sim::script`].
///
/// The steps for reads and accepts are met in the order in which they were laid, and apart from them those for writes.
/// A failure meets the next call whatever it could have done; a cut meets the next one that would move something.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    pub(super) sim: &'a Sim,
    pub(super) fd: RawFd,
}

impl Script<'_> {
    /// Has the next receive or accept fail with `errno`.
    pub fn recv_fails(self, errno: i32) -> Self {
        self.lay(true, Step::Fail(errno))
    }

    /// Has the next receive take at most `bytes`, but at least 1.
    pub fn recv_at_most(self, bytes: usize) -> Self {
        self.lay(true, Step::AtMost(bytes))
    }

    /// Has the next send fail with `errno`.
    pub fn send_fails(self, errno: i32) -> Self {
        self.lay(false, Step::Fail(errno))
    }

    /// Has the next send take at most `bytes`, but at least 1.
    pub fn send_at_most(self, bytes: usize) -> Self {
        self.lay(false, Step::AtMost(bytes))
    }

    fn lay(self, taking: bool, step: Step) -> Self {
        if let Err(error) = self.sim.world.with(|state| state.lay(self.fd, taking, step)) {
            panic!("no script for fd {}: {error}", self.fd);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use super::*;
    use crate::interest::Interest;
    use crate::sys::Sys;

    fn wait(sys: &dyn Sys) -> Report {
        let mut out = Vec::new();
        sys.wait(&mut out, Some(Duration::ZERO)).unwrap();
        out.iter().fold(Report::empty(), |all, reported| all | reported.report())
    }

    #[test]
    fn a_plain_file_is_ready_for_what_the_test_says() {
        let sim = Sim::new(1);
        let (sys, file) = (sim.sys(), sim.plain());
        sys.change(file.fd(), 1, Interest::empty(), Interest::READ | Interest::CLOSED).unwrap();
        assert_eq!(wait(&*sys), Report::empty());
        file.set_ready(Ready::READ | Ready::WRITE | Ready::TIMEOUT);
        assert_eq!(wait(&*sys), Report::READ);
        file.set_hang_up(true);
        file.set_error(true);
        file.set_ready(Ready::CLOSED);
        assert_eq!(wait(&*sys), Report::CLOSED | Report::HUP | Report::ERR);
        file.set_hang_up(false);
        file.set_error(false);
        file.set_ready(Ready::empty());
        assert_eq!(wait(&*sys), Report::empty());
        sim.close(file.fd()).unwrap();
        file.set_ready(Ready::READ);
        assert_eq!(wait(&*sys), Report::empty());
    }

    #[test]
    fn setting_the_readiness_again_is_an_edge() {
        let sim = Sim::new(1);
        let (sys, file) = (sim.sys(), sim.plain());
        sys.change(file.fd(), 1, Interest::empty(), Interest::READ | Interest::EDGE).unwrap();
        for _ in 0..2 {
            file.set_ready(Ready::READ);
            assert_eq!(wait(&*sys), Report::READ);
            assert_eq!(wait(&*sys), Report::empty());
        }
    }

    #[test]
    fn the_steps_of_a_script_are_met_in_order() {
        let sim = Sim::new(1);
        let (fd, peer) = sim.pair();
        peer.write_all(b"abcdef").unwrap();
        sim.script(fd)
            .recv_at_most(2)
            .recv_fails(libc::EINTR)
            .recv_at_most(1)
            .send_fails(libc::ENOBUFS)
            .send_at_most(3);
        assert_eq!(sim.read(fd, 100).unwrap(), b"ab");
        assert_eq!(sim.write(fd, b"12345").unwrap_err().raw_os_error(), Some(libc::ENOBUFS));
        assert_eq!(sim.read(fd, 100).unwrap_err().raw_os_error(), Some(libc::EINTR));
        assert_eq!(sim.write(fd, b"12345").unwrap(), 3);
        assert_eq!(sim.read(fd, 100).unwrap(), b"c");
        assert_eq!(sim.read(fd, 100).unwrap(), b"def");
        assert_eq!(peer.read(), b"123");
        sim.close(fd).unwrap();
        assert!(catch_unwind(AssertUnwindSafe(|| sim.script(fd).recv_at_most(1).fd)).is_err());
    }
}
