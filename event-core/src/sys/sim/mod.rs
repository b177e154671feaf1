//! A kernel in memory: the `Sys` that tests run on. It has its own time, and a seed decides whatever a real one leaves
//! open.
//!
//! A [`World`] holds the open files; each loop in it is a [`Sim`] with registrations, signals and a waker of its own.
//! No thread but the waker's, no system call, no unsafe.

mod connect;
mod fds;
mod names;
mod random;
mod sockets;
mod stream;
mod waker;
mod watch;
mod world;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::clock::Time;
use crate::interest::{Features, Interest};
use crate::sys::calls::Call;
use crate::sys::seam::{Address, FdKind, FileId, ListenOptions, Reported, Sys, Wake};

use waker::SimWaker;
use watch::WatchSet;
use world::{SetId, State};

pub use connect::Reach;
pub(crate) use sockets::By;
pub(crate) use stream::Step;
pub(crate) use world::{ObjId, World};

/// Pieces that one `sendv` takes.
const MAX_PIECES: usize = 64;

/// Bytes that one `sendfile` takes: as much as a socket's buffer may have room for.
const MAX_FROM_FILE: usize = 256 * 1024;

/// The highest signal number of Linux (`SIGRTMAX`).
const MAX_SIGNAL: i32 = 64;

/// One loop's view of a world.
pub(crate) struct Sim {
    world: Rc<World>,
    set: SetId,
    waker: Arc<SimWaker>,
}

impl Sim {
    pub(crate) fn new(world: Rc<World>) -> Sim {
        let (set, waker) = world.with(|state| {
            let set = state.add_set();
            let waker = state.sets.get(&set).map(|set| Arc::clone(&set.waker)).unwrap_or_default();
            (set, waker)
        });
        Sim { world, set, waker }
    }

    /// Runs `f` on the state as one call of the kind `call`.
    fn call<R>(&self, call: Call, f: impl FnOnce(&mut State) -> R) -> R {
        self.world.with(|state| {
            state.count(call);
            f(state)
        })
    }

    fn set_of<'a>(&self, state: &'a mut State) -> io::Result<&'a mut WatchSet> {
        // Present as long as `self` is: only its drop removes it.
        state.sets.get_mut(&self.set).ok_or_else(|| errno(libc::EBADF))
    }

    fn note_kind(&self, fd: RawFd, kind: &Cell<FdKind>) {
        if kind.get() == FdKind::Socket && self.world.with(|state| state.is_file(fd)) {
            kind.set(FdKind::File);
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.world.remove_set(self.set);
    }
}

impl Sys for Sim {
    fn name(&self) -> &'static str {
        "simulation"
    }

    fn features(&self) -> Features {
        Features::EDGE | Features::O1 | Features::ANY_FD | Features::EARLY_CLOSE
    }

    fn now(&self) -> Time {
        self.world.with(|state| state.now())
    }

    fn wall(&self) -> SystemTime {
        self.world.with(|state| state.wall())
    }

    fn change(&self, fd: RawFd, tag: u64, old: Interest, new: Interest) -> io::Result<()> {
        self.call(Call::Change, |state| match state.file_of(fd) {
            Ok(id) => self.set_of(state)?.change(fd, id, tag, old, new),
            Err(_) if new.is_empty() => Ok(()),
            Err(error) => Err(error),
        })
    }

    /// Also runs the actions that fall due, with nothing borrowed.
    fn wait(&self, out: &mut Vec<Reported>, timeout: Option<Duration>) -> io::Result<()> {
        self.world.wait(self.set, &self.waker, out, timeout);
        Ok(())
    }

    fn after_fork(&self) -> io::Result<()> {
        self.call(Call::AfterFork, |state| self.set_of(state).map(WatchSet::clear))?;
        self.waker.clear();
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.waker) as Arc<dyn Wake>
    }

    fn poll_fd(&self) -> Option<RawFd> {
        None
    }

    fn recv(&self, fd: RawFd, kind: &Cell<FdKind>, buf: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        self.note_kind(fd, kind);
        let max = max.min(buf.capacity() - buf.len());
        self.call(Call::Recv, |state| {
            let id = state.file_of(fd)?;
            state.recv(id, buf, max, By::Program)
        })
    }

    fn send(&self, fd: RawFd, kind: &Cell<FdKind>, buf: &[u8]) -> io::Result<usize> {
        self.note_kind(fd, kind);
        self.call(Call::Send, |state| {
            let id = state.file_of(fd)?;
            state.send(id, &[IoSlice::new(buf)], By::Program)
        })
    }

    fn sendv(&self, fd: RawFd, kind: &Cell<FdKind>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.note_kind(fd, kind);
        self.call(Call::Sendv, |state| {
            let id = state.file_of(fd)?;
            state.send(id, &bufs[..bufs.len().min(MAX_PIECES)], By::Program)
        })
    }

    fn sendfile(&self, fd: RawFd, file: &File, offset: u64, max: usize) -> io::Result<usize> {
        // Files are real: only what becomes of their bytes is simulated.
        let mut bytes = vec![0; max.min(MAX_FROM_FILE)];
        let n = file.read_at(&mut bytes, offset)?;
        self.call(Call::Sendfile, |state| {
            let id = state.file_of(fd)?;
            state.send(id, &[IoSlice::new(&bytes[..n])], By::Program)
        })
    }

    fn listen(&self, address: &Address, options: &ListenOptions) -> io::Result<RawFd> {
        self.call(Call::Listen, |state| {
            state.fds.check_limit()?;
            let id = state.listen(address, options)?;
            Ok(state.install(id))
        })
    }

    fn adopt(&self, fd: RawFd, _: i32) -> io::Result<()> {
        self.call(Call::Listen, |state| {
            let id = state.file_of(fd)?;
            state.adopt(id)
        })
    }

    fn own(&self, _: RawFd) -> io::Result<OwnedFd> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a simulated file is none of the system's"))
    }

    fn accept(&self, fd: RawFd) -> io::Result<(RawFd, Address)> {
        self.call(Call::Accept, |state| {
            let listener = state.file_of(fd)?;
            let id = state.accept(listener, By::Program)?;
            let remote = state.stream(id)?.remote.clone();
            Ok((state.install(id), remote))
        })
    }

    fn connect(&self, address: &Address) -> io::Result<RawFd> {
        self.call(Call::Connect, |state| {
            state.fds.check_limit()?;
            let id = state.connect(address)?;
            Ok(state.install(id))
        })
    }

    fn socket(&self, address: &Address) -> io::Result<RawFd> {
        self.call(Call::Socket, |state| {
            state.fds.check_limit()?;
            let id = state.socket(address);
            Ok(state.install(id))
        })
    }

    fn bind(&self, fd: RawFd, source: &Address) -> io::Result<()> {
        self.call(Call::Bind, |state| {
            let id = state.file_of(fd)?;
            state.bind(id, source)
        })
    }

    fn start_connect(&self, fd: RawFd, address: &Address) -> io::Result<()> {
        self.call(Call::Connect, |state| {
            let id = state.file_of(fd)?;
            state.start_connect(id, address)
        })
    }

    fn borrow<'a>(&self, _: RawFd) -> Option<BorrowedFd<'a>> {
        None
    }

    fn take_error(&self, fd: RawFd) -> io::Result<Option<io::Error>> {
        self.call(Call::TakeError, |state| {
            let id = state.file_of(fd)?;
            state.take_error(id)
        })
    }

    fn shutdown(&self, fd: RawFd, how: Shutdown) -> io::Result<()> {
        self.call(Call::Shutdown, |state| {
            let id = state.file_of(fd)?;
            state.shutdown(id, how)
        })
    }

    fn reset_on_close(&self, fd: RawFd) -> io::Result<()> {
        self.call(Call::Linger, |state| {
            let id = state.file_of(fd)?;
            state.reset_on_close(id)
        })
    }

    fn close(&self, fd: RawFd) {
        // EBADF has no other effect on a real system either.
        let _ = self.call(Call::Close, |state| state.close(fd));
    }

    fn local_address(&self, fd: RawFd) -> io::Result<Address> {
        self.call(Call::LocalAddress, |state| {
            let id = state.file_of(fd)?;
            state.local_address(id)
        })
    }

    fn peer_address(&self, fd: RawFd) -> io::Result<Address> {
        self.call(Call::PeerAddress, |state| {
            let id = state.file_of(fd)?;
            state.peer_address(id)
        })
    }

    fn set_nonblocking(&self, fd: RawFd) -> io::Result<()> {
        self.call(Call::SetNonblocking, |state| state.file_of(fd).map(|_| ()))
    }

    fn file_at(&self, _: &Path) -> Option<FileId> {
        // A name is bound at most once at a time here.
        None
    }

    fn unlink(&self, path: &Path) {
        self.world.with(|state| state.unlink(path));
    }

    fn open_file_limit(&self) -> usize {
        self.world.with(|state| state.open_file_limit())
    }

    fn signal_add(&self, signal: i32) -> io::Result<()> {
        self.call(Call::SignalAdd, |state| {
            // sigaction(2), and the two signals that the C library keeps to itself.
            let refused = [libc::SIGKILL, libc::SIGSTOP, 32, 33].contains(&signal);
            if refused || !(1..=MAX_SIGNAL).contains(&signal) {
                return Err(errno(libc::EINVAL));
            }
            self.set_of(state)?.signals.entry(signal).or_insert(0);
            Ok(())
        })
    }

    fn signal_del(&self, signal: i32) {
        self.call(Call::SignalDel, |state| {
            if let Ok(set) = self.set_of(state) {
                set.signals.remove(&signal);
            }
        });
    }

    fn take_signals(&self, out: &mut Vec<(i32, u32)>) {
        self.world.with(|state| {
            let Ok(set) = self.set_of(state) else { return };
            for (&signal, count) in set.signals.iter_mut().filter(|(_, count)| **count > 0) {
                out.push((signal, std::mem::take(count)));
            }
        });
    }
}

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

#[cfg(test)]
mod tests;
