//! What lies under a stream that is not a plain socket.

use std::io;
use std::net::Shutdown;
use std::os::fd::RawFd;

use crate::buffer::Buffer;
use crate::interest::What;

/// Moves a stream's bytes: the seam on which encryption and the like stand. A stream without one is a socket, a pipe
/// or a terminal and needs none.
///
/// A transport runs inside its stream's step. It must not call back into the program or block, and must not use the
/// stream it belongs to. It is dropped with its stream.
///
/// ```
/// use event_core::{Buffer, BufferEvent, Direction, EventBase, Transport};
/// use std::{io, net::Shutdown, os::fd::{AsRawFd, RawFd}, os::unix::net::UnixStream};
///
/// /// Turns every letter by thirteen places, on the way in and on the way out.
/// struct Rot13(UnixStream);
///
/// fn rot13(bytes: &[u8]) -> Vec<u8> {
///     let turn = |byte: u8, a: u8| (byte - a + 13) % 26 + a;
///     bytes.iter().map(|byte| match byte {
///         b'a'..=b'z' => turn(*byte, b'a'),
///         b'A'..=b'Z' => turn(*byte, b'A'),
///         other => *other,
///     }).collect()
/// }
///
/// impl Transport for Rot13 {
///     fn fd(&self) -> RawFd {
///         self.0.as_raw_fd()
///     }
///     fn poll_read(&mut self, input: &mut Buffer, max: usize) -> io::Result<usize> {
///         let mut coded = Buffer::new();
///         let n = coded.read_from(&self.0, max)?;
///         input.add(&rot13(&coded.to_vec()));
///         Ok(n)
///     }
///     fn poll_write(&mut self, output: &mut Buffer, max: usize) -> io::Result<usize> {
///         let coded = rot13(&output.peek(max).collect::<Vec<_>>().concat());
///         let n = if coded.is_empty() { 0 } else { io::Write::write(&mut self.0, &coded)? };
///         output.drain(n);
///         Ok(n)
///     }
///     fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
///         self.0.shutdown(how)
///     }
/// }
///
/// let mut base = EventBase::new()?;
/// let (ours, theirs) = UnixStream::pair()?;
/// ours.set_nonblocking(true)?;
/// let coded = BufferEvent::with_transport(&base, Rot13(ours))?;
/// coded.write("Hello")?;
/// coded.shutdown_write();
/// let plain = BufferEvent::new(&base, theirs)?;
/// plain.set_read_cb(|bev| {
///     assert_eq!(*bev.input(), "Uryyb");
///     bev.free();
/// });
/// plain.enable(Direction::READ)?;
/// base.dispatch()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Transport {
    /// The fd whose readiness drives the stream.
    fn fd(&self) -> RawFd;

    /// Appends at most `max` bytes to `input` and returns how many; 0 is the end of the stream.
    ///
    /// # Errors
    /// - `WouldBlock` when nothing is to be had now; anything else ends the stream.
    fn poll_read(&mut self, input: &mut Buffer, max: usize) -> io::Result<usize>;

    /// Takes at most `max` bytes off the front of `output` and returns how many. Those are in memory; what is behind them
    /// may lie in a file. Called with nothing to write, too, when
    /// the fd is ready: a handshake goes on then.
    ///
    /// # Errors
    /// - `WouldBlock` when nothing can be taken now; anything else ends the stream.
    fn poll_write(&mut self, output: &mut Buffer, max: usize) -> io::Result<usize>;

    /// What the transport waits for on its own account (a handshake). It takes the place of what a write that got
    /// `WouldBlock` would wait for; while empty, that is `WRITE`.
    fn want(&self) -> What {
        What::empty()
    }

    /// Ends a direction as far as the transport's protocol has such an end: writing before a [graceful
    /// close](super::BufferEvent::close_after_flush), too, when all output was taken.
    ///
    /// # Errors
    /// - `WouldBlock` when the end cannot be said now: it is called again when the fd is ready. The stream waits for that
    ///   as for output, so its write timeout bounds it.
    /// - Anything else the system says; the stream goes on to close.
    fn shutdown(&mut self, how: Shutdown) -> io::Result<()>;
}
