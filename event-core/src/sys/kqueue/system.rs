//! kqueue(2) and kevent(2), and the table of backends of the systems that have them.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::{io, mem, ptr};

use socket2::SockRef;

use super::common::Method;
use super::kqueue::translate::{self, Filter, Kevent};
use super::kqueue::{Calls, Kqueue};
use super::poll::Poll;

/// The backends of this system, best first: libevent's `eventops[]`.
pub(crate) static METHODS: &[Method] = &[Method::of::<Kqueue<System>>(), Method::of::<Poll>()];

/// The real calls.
#[derive(Default)]
pub(super) struct System;

// What `translate` takes from the manual pages, held against this system's headers.
const _: () = {
    use translate::{EV_ADD, EV_CLEAR, EV_DELETE, EV_EOF, EV_ERROR, EV_RECEIPT};
    let ours = [EV_ADD, EV_DELETE, EV_CLEAR, EV_RECEIPT, EV_ERROR, EV_EOF];
    let theirs: [u32; 6] = [
        libc::EV_ADD as _,
        libc::EV_DELETE as _,
        libc::EV_CLEAR as _,
        libc::EV_RECEIPT as _,
        libc::EV_ERROR as _,
        libc::EV_EOF as _,
    ];
    let mut i = 0;
    while i < ours.len() {
        assert!(ours[i] == theirs[i]);
        i += 1;
    }
};

impl Calls for System {
    type Raw = libc::kevent;

    // SAFETY: all-zero bytes are a valid `kevent`: numbers and a pointer that nobody follows.
    const EMPTY: libc::kevent = unsafe { mem::zeroed() };

    // The widths of the fields differ from system to system; the values fit the narrowest.
    fn pack(kevent: &Kevent) -> libc::kevent {
        let mut raw = Self::EMPTY;
        raw.ident = kevent.fd as _;
        raw.filter = match kevent.filter {
            Filter::Read => libc::EVFILT_READ,
            Filter::Write => libc::EVFILT_WRITE,
        };
        raw.flags = kevent.flags as _;
        raw.fflags = kevent.fflags;
        raw.data = kevent.data as _;
        // The kernel hands it back as it is (kqueue(2)), and nobody follows it.
        raw.udata = ptr::without_provenance_mut(kevent.tag as usize);
        raw
    }

    fn unpack(raw: &libc::kevent) -> Option<Kevent> {
        let filter = match raw.filter {
            libc::EVFILT_READ => Filter::Read,
            libc::EVFILT_WRITE => Filter::Write,
            _ => return None,
        };
        Some(Kevent {
            fd: RawFd::try_from(raw.ident).ok()?,
            filter,
            flags: raw.flags as _,
            fflags: raw.fflags,
            data: raw.data as _,
            tag: raw.udata.addr() as _,
        })
    }

    fn kqueue(&self) -> io::Result<OwnedFd> {
        // SAFETY: kqueue(2) takes nothing.
        let fd = unsafe { libc::kqueue() };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: kqueue(2) has made this fd for us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // A fork in another thread does not inherit it (kqueue(2)), so that it cannot be executed with in between.
        SockRef::from(&fd).set_cloexec(true)?;
        Ok(fd)
    }

    fn kevent(
        &self,
        queue: RawFd,
        changes: &[libc::kevent],
        events: &mut [libc::kevent],
        timeout: Option<libc::timespec>,
    ) -> io::Result<usize> {
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let (sent, room) = (changes.len() as _, events.len() as _);
        // SAFETY: kevent(2) reads `sent` kevents and one timespec, or none at null, and writes at most `room` kevents.
        // All outlive the call.
        let n = unsafe { libc::kevent(queue, changes.as_ptr(), sent, events.as_mut_ptr(), room, timeout) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }
}
