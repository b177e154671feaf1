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
        self.renew(os::wake_ends()?)
    }

    /// Takes ends of the same kind as its own.
    fn renew(&self, (reader, writer): (OwnedFd, Option<OwnedFd>)) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::super::posix;
    use super::*;

    fn is_readable(fd: RawFd) -> bool {
        let mut fds = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        os::poll(&mut fds, Some(std::time::Duration::ZERO)).unwrap() == 1
    }

    /// The waker of this system, and the one of the others.
    fn each_kind(test: impl Fn(Waker)) {
        test(Waker::new().unwrap());
        let (reader, writer) = posix::wake_ends().unwrap();
        test(Waker { reader, writer });
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_waker_is_readable_from_wake_to_clear() {
        each_kind(|waker| {
            assert!(!is_readable(waker.fd()));
            waker.wake();
            waker.wake();
            assert!(is_readable(waker.fd()));
            waker.clear();
            assert!(!is_readable(waker.fd()));
            waker.clear();
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_full_waker_neither_blocks_nor_changes_errno() {
        each_kind(|waker| {
            if waker.writer.is_none() {
                // One below the highest number there is (eventfd(2)).
                let most = (u64::MAX - 1).to_ne_bytes();
                // SAFETY: write(2) reads eight bytes.
                let n = unsafe { libc::write(waker.fd(), most.as_ptr().cast(), most.len()) };
                assert_eq!(n, 8);
            }
            // SAFETY: close(2) of no fd does nothing but set errno.
            unsafe { libc::close(-1) };
            for _ in 0..20_000 {
                waker.wake();
            }
            assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
            assert!(is_readable(waker.fd()));
            waker.clear();
            assert!(!is_readable(waker.fd()), "all of it is taken");
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "the real kernel")]
    fn a_new_object_under_the_same_numbers_is_idle_and_works() {
        each_kind(|waker| {
            let numbers = (waker.fd(), waker.write_fd());
            waker.wake();
            // What a parent would have: the same objects under other numbers.
            let theirs = waker.reader.try_clone().unwrap();
            if waker.writer.is_some() {
                waker.renew(posix::wake_ends().unwrap()).unwrap();
            } else {
                waker.after_fork().unwrap();
            }
            assert_eq!((waker.fd(), waker.write_fd()), numbers);
            for fd in [waker.fd(), waker.write_fd()] {
                // SAFETY: fcntl(2) F_GETFD takes no further argument.
                let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
                assert_eq!(flags, libc::FD_CLOEXEC);
                // SAFETY: fcntl(2) F_GETFL takes no further argument.
                let status = unsafe { libc::fcntl(fd, libc::F_GETFL) };
                assert!(status & libc::O_NONBLOCK != 0);
            }
            assert!(is_readable(theirs.as_raw_fd()));
            assert!(!is_readable(waker.fd()));
            waker.wake();
            assert!(is_readable(waker.fd()));
            waker.clear();
            assert!(is_readable(theirs.as_raw_fd()), "theirs is not cleared by us");
        });
    }

    #[test]
    fn wakers_may_be_used_from_any_thread() {
        fn is_send_and_sync<T: Send + Sync>() {}
        is_send_and_sync::<Waker>();
    }
}
