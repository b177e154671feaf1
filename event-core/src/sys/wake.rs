//! The waker: an fd that becomes readable, written from any thread or signal handler.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::seam::Wake;
use super::{errno, net, os};

/// Both ends of the wake fd.
///
/// The numbers stay the same for the life of the value, also over a fork: every clone of the `Arc` that holds it, in
/// whatever thread, goes on working.
pub(super) struct Waker {
    reader: OwnedFd,
    /// `None`: the reader is written to (eventfd(2)).
    writer: Option<OwnedFd>,
}

impl Waker {
    pub(super) fn new() -> io::Result<Waker> {
        let (reader, writer) = os::wake_ends()?;
        Ok(Waker { reader, writer })
    }

    /// The end that becomes readable.
    pub(super) fn fd(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// The end to give to `write`.
    pub(super) fn write_fd(&self) -> RawFd {
        self.writer.as_ref().unwrap_or(&self.reader).as_raw_fd()
    }

    /// Puts a new object under the same numbers, so that the parent of a fork and we do not wake each other.
    pub(super) fn after_fork(&self) -> io::Result<()> {
        let (reader, writer) = os::wake_ends()?;
        os::replace(&self.reader, reader)?;
        if let (Some(old), Some(new)) = (&self.writer, writer) {
            os::replace(old, new)?;
        }
        Ok(())
    }
}

impl Wake for Waker {
    fn wake(&self) {
        write(self.write_fd());
    }

    fn clear(&self) {
        // One read takes all of an eventfd, and all of a pipe unless somebody writes on and on.
        let mut sink = [MaybeUninit::uninit(); 512];
        while net::read(self.fd(), &mut sink).is_ok_and(|n| n == sink.len()) {}
    }
}

/// Makes the other end of `fd` readable. Async-signal-safe; keeps errno.
///
/// A full pipe or counter (`EAGAIN`) is readable already, so there is nothing to do then.
pub(super) fn write(fd: RawFd) {
    // eventfd(2) takes exactly eight bytes, a number to add; a pipe takes any.
    let one = 1u64.to_ne_bytes();
    errno::keep(|| {
        loop {
            // SAFETY: write(2) reads `one.len()` bytes at `one`, which live until it returns.
            let n = unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
            if n >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                return;
            }
        }
    });
}
