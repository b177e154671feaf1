//! The test's ends: of streams and of listeners.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

use crate::sys::{Address, By, ObjId, World};

/// The test's end of a stream. It has no number, and neither chance nor [`Faults`](super::Faults) touch it.
///
/// Dropping it closes it, as [`Peer::close`] does.
pub struct Peer {
    pub(super) world: Rc<World>,
    pub(super) id: ObjId,
}

impl Peer {
    /// Writes what there is room for and says how much that was.
    ///
    /// # Errors
    /// - `EAGAIN` (`WouldBlock`) if the buffer is full or the stream is not connected yet.
    /// - `EPIPE` or `ECONNRESET` if the program closed or reset the stream.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.world.with(|state| state.send(self.id, &[IoSlice::new(bytes)], By::Test))
    }

    /// Writes all of `bytes` or, if there is an error, nothing.
    ///
    /// # Errors
    /// - As for [`Peer::write`]; `WouldBlock` also if there is room for a part only.
    pub fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.world.with(|state| {
            if state.room(self.id)? < bytes.len() {
                return Err(io::Error::from_raw_os_error(libc::EAGAIN));
            }
            state.send(self.id, &[IoSlice::new(bytes)], By::Test).map(|_| ())
        })
    }

    /// Takes all that is there now, which may be nothing.
    pub fn read(&self) -> Vec<u8> {
        self.read_available(usize::MAX)
    }

    /// Takes at most `max` bytes of what is there now.
    pub fn read_available(&self, max: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        // An error tells no more than `is_reset` and `is_eof` do.
        let _ = self.world.with(|state| state.recv(self.id, &mut bytes, max, By::Test));
        bytes
    }

    /// Whether the program has closed its sending side and everything it sent was read.
    pub fn is_eof(&self) -> bool {
        self.world.with(|state| state.is_ended(self.id))
    }

    /// Whether the program has reset the stream: an RST, a unix socket closed with input unread, a pipe without reader.
    pub fn is_reset(&self) -> bool {
        self.world.with(|state| state.is_reset(self.id))
    }

    /// Whether the stream is connected: false while a connect is under way or waits, and after a reset.
    pub fn is_connected(&self) -> bool {
        self.world.with(|state| state.is_connected(self.id))
    }

    /// Takes the error that is waiting, `SO_ERROR`: `ECONNREFUSED` after a failed connect.
    pub fn take_error(&self) -> Option<io::Error> {
        self.world.with(|state| state.take_error(self.id)).ok().flatten()
    }

    /// Shuts down one direction or both.
    ///
    /// # Errors
    /// - `ENOTCONN` if the stream is not connected, `ENOTSOCK` for a pipe.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.world.with(|state| state.shutdown(self.id, how))
    }

    /// Closes the stream: with a FIN, or with an RST if something that arrived was not read, as TCP does.
    pub fn close(self) {}

    /// Closes the stream with an RST, as `SO_LINGER` with a time of 0 does.
    pub fn reset(self) {
        self.world.with(|state| state.abort(self.id));
    }

    /// Sets how many bytes the test may have sent without the program having read them; at least 1.
    pub fn set_send_buffer(&self, bytes: usize) {
        let _ = self.world.with(|state| state.set_capacity(self.id, bytes));
    }

    /// Sets the latency of the stream both ways; does nothing to a pipe.
    pub fn set_latency(&self, latency: Duration) {
        let _ = self.world.with(|state| state.set_latency(self.id, latency));
    }

    /// The address of this end.
    ///
    /// # Errors
    /// - `ENOTSOCK` for a pipe.
    pub fn local_address(&self) -> io::Result<Address> {
        self.world.with(|state| state.local_address(self.id))
    }

    /// The address of the program's end.
    ///
    /// # Errors
    /// - `ENOTCONN` if the stream is not connected, `ENOTSOCK` for a pipe.
    pub fn peer_address(&self) -> io::Result<Address> {
        self.world.with(|state| state.peer_address(self.id))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.world.with(|state| state.release(self.id));
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("id", &self.id).field("connected", &self.is_connected()).finish()
    }
}

/// A listener of the test's. Dropping it closes it: what waits in its backlog is reset.
pub struct PeerListener {
    pub(super) world: Rc<World>,
    pub(super) id: ObjId,
}

impl PeerListener {
    /// Takes the oldest connection that waits, if there is one.
    pub fn accept(&self) -> Option<Peer> {
        let id = self.world.with(|state| state.accept(self.id, By::Test)).ok()?;
        Some(Peer { world: Rc::clone(&self.world), id })
    }

    /// Where it listens, with the port that was picked.
    ///
    /// # Errors
    /// - None at present.
    pub fn address(&self) -> io::Result<Address> {
        self.world.with(|state| state.local_address(self.id))
    }
}

impl Drop for PeerListener {
    fn drop(&mut self) {
        self.world.with(|state| state.release(self.id));
    }
}

impl fmt::Debug for PeerListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerListener").field("address", &self.address().ok()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sim;

    fn code<T>(result: io::Result<T>) -> i32 {
        result.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
    }

    #[test]
    fn both_ends_talk_and_part() {
        let sim = Sim::new(1);
        let (fd, peer) = sim.pair();
        assert_eq!(peer.write(b"ping").unwrap(), 4);
        assert_eq!(sim.read(fd, 100).unwrap(), b"ping");
        sim.write(fd, b"pong").unwrap();
        assert_eq!(peer.read_available(3), b"pon");
        sim.close(fd).unwrap();
        assert!(!peer.is_eof(), "a byte is left");
        assert_eq!(peer.read(), b"g");
        assert!(peer.is_eof() && !peer.is_reset() && peer.is_connected());
        peer.write_all(b"too late").unwrap();
        assert!(peer.is_reset() && !peer.is_connected());
        assert_eq!(code(peer.write(b"x")), libc::EPIPE);
        assert_eq!(peer.read(), b"");
    }

    #[test]
    fn all_is_written_or_nothing() {
        let sim = Sim::new(1);
        let (fd, peer) = sim.pair();
        peer.set_send_buffer(5);
        peer.write_all(b"abc").unwrap();
        peer.write_all(b"").unwrap();
        assert_eq!(peer.write_all(b"def").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(peer.write(b"def").unwrap(), 2);
        assert_eq!(sim.read(fd, 100).unwrap(), b"abcde");
        peer.write_all(b"def").unwrap();
    }

    #[test]
    fn a_peer_that_is_dropped_closes_and_one_with_unread_input_resets() {
        let sim = Sim::new(1);
        let (fd, peer) = sim.pair();
        drop(peer);
        assert_eq!(sim.read(fd, 1).unwrap(), b"");
        let (fd, peer) = sim.pair();
        sim.write(fd, b"x").unwrap();
        peer.close();
        assert_eq!(code(sim.read(fd, 1)), libc::ECONNRESET);
        let (fd, peer) = sim.pair();
        peer.write_all(b"x").unwrap();
        peer.reset();
        assert_eq!(sim.read(fd, 1).unwrap(), b"x");
        assert_eq!(code(sim.read(fd, 1)), libc::ECONNRESET);
        let (fd, peer) = sim.pair();
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(sim.read(fd, 1).unwrap(), b"");
        sim.write(fd, b"still").unwrap();
        assert_eq!(peer.read(), b"still");
    }

    #[test]
    fn the_test_is_client_and_server() {
        let sim = Sim::new(1);
        let server = sim.listen(&Address::Ip(([127, 0, 0, 1], 0).into())).unwrap();
        let address = server.address().unwrap();
        assert!(server.accept().is_none());
        let client = sim.connect(&address).unwrap();
        let end = server.accept().unwrap();
        assert_eq!(client.peer_address().unwrap(), address);
        assert_eq!(end.local_address().unwrap(), address);
        assert_eq!(client.local_address().unwrap(), end.peer_address().unwrap());
        end.write_all(b"hi").unwrap();
        assert_eq!(client.read(), b"hi");
        let waiting = sim.connect(&address).unwrap();
        drop(server);
        assert!(waiting.is_reset() && !client.is_reset());
        assert_eq!(code(sim.connect(&address)), libc::ECONNREFUSED);
        assert_eq!(sim.open_fds(), [], "the test's ends have no numbers");
    }

    #[test]
    fn a_latency_delays_what_either_end_sends() {
        let sim = Sim::new(1);
        let (fd, peer) = sim.pair();
        peer.set_latency(Duration::from_millis(5));
        peer.write_all(b"x").unwrap();
        sim.write(fd, b"y").unwrap();
        assert_eq!((code(sim.read(fd, 1)), peer.read()), (libc::EAGAIN, vec![]));
        sim.advance(Duration::from_millis(5));
        assert_eq!((sim.read(fd, 1).unwrap(), peer.read()), (b"x".to_vec(), b"y".to_vec()));
    }

    #[test]
    fn the_test_holds_either_end_of_a_pipe() {
        let sim = Sim::new(1);
        let (fd, writer) = sim.pipe_reader();
        writer.write_all(b"x").unwrap();
        assert_eq!(sim.read(fd, 9).unwrap(), b"x");
        writer.close();
        assert_eq!(sim.read(fd, 9).unwrap(), b"");
        let (fd, reader) = sim.pipe_writer();
        sim.write(fd, b"x").unwrap();
        assert_eq!(reader.read(), b"x");
        sim.close(fd).unwrap();
        assert!(reader.is_eof());
        let (fd, writer) = sim.pipe_reader();
        sim.close(fd).unwrap();
        assert!(writer.is_reset());
        assert_eq!(code(writer.write_all(b"x")), libc::EPIPE);
    }

    #[test]
    fn the_close_of_a_unix_socket_is_a_hang_up() {
        let sim = Sim::new(1);
        let (fd, peer) = sim.unix_pair();
        sim.write(fd, b"x").unwrap();
        sim.close(fd).unwrap();
        assert_eq!(peer.read(), b"x");
        assert!(peer.is_eof() && !peer.is_reset());
        assert_eq!(code(peer.write(b"x")), libc::EPIPE);
        let (fd, peer) = sim.unix_pair();
        peer.write_all(b"x").unwrap();
        sim.close(fd).unwrap();
        assert!(peer.is_reset());
    }
}
