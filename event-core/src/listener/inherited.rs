//! `listen_fds`: the sockets that a service manager has opened for this process.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;

use crate::error::Error;
use crate::sys;

/// A listening socket that the process was started with. Dropping it closes it.
#[derive(Debug)]
pub struct InheritedSocket {
    /// `FileDescriptorName=` of systemd's unit; `unknown` if it gave none.
    pub name: String,
    /// The socket, close-on-exec.
    pub fd: OwnedFd,
}

impl From<InheritedSocket> for OwnedFd {
    fn from(socket: InheritedSocket) -> OwnedFd {
        socket.fd
    }
}

/// Takes over the listening sockets that systemd, or whoever speaks its protocol, has opened for this process
/// (sd_listen_fds(3)). For [`Listener::from_fd`](super::Listener::from_fd), each by its name or in the order given.
///
/// Empty if there are none: `LISTEN_PID` is not set or not this process's, or they were taken before. The variables
/// (`LISTEN_PID`, `LISTEN_FDS`, `LISTEN_FDNAMES`) are read and left as they are, since changing the environment is not safe
/// beside other threads; children see them, and see by `LISTEN_PID` that they are not meant. The sockets themselves are
/// not passed on to children.
///
/// Call it early: what is said to lie at the numbers from 3 on must not have been closed or taken by anything else in the
/// program.
///
/// ```
/// use event_core::{EventBase, Listener};
///
/// let base = EventBase::new()?;
/// for socket in event_core::listen_fds()? {
///     println!("listening on {}", socket.name);
///     Listener::from_fd(&base, socket, |_, accepted| drop(accepted))?;
/// }
/// # Ok::<(), event_core::Error>(())
/// ```
///
/// # Errors
/// - `Error::Invalid` if `LISTEN_FDS` is no number.
/// - `Error::Io` if one of them is no socket or does not listen: the text names it. None is taken then.
pub fn listen_fds() -> Result<Vec<InheritedSocket>, Error> {
    let [pid, fds, names] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"].map(env::var_os);
    let names = announced(pid.as_deref(), fds.as_deref(), names.as_deref(), std::process::id())?;
    match sys::inherited(names.len()) {
        Ok(fds) => Ok(fds.into_iter().zip(names).map(|(fd, name)| InheritedSocket { name, fd }).collect()),
        Err((fd, error)) => {
            let text = format!("descriptor {fd} of LISTEN_FDS is no listening socket: {error}");
            Err(io::Error::new(io::ErrorKind::InvalidInput, text).into())
        }
    }
}

/// What the variables announce to the process `own`: a name for each descriptor.
fn announced(
    pid: Option<&OsStr>,
    fds: Option<&OsStr>,
    names: Option<&OsStr>,
    own: u32,
) -> Result<Vec<String>, Error> {
    let is_ours = pid.and_then(OsStr::to_str).and_then(number) == Some(own);
    let Some(fds) = fds.filter(|_| is_ours) else { return Ok(Vec::new()) };
    let count: Option<u16> = fds.to_str().and_then(number);
    let count = count.ok_or(Error::Invalid("LISTEN_FDS is no number of descriptors"))?;
    let names = names.map(OsStr::to_string_lossy).unwrap_or_default();
    let named = names.split(':').map(|name| if name.is_empty() { "unknown" } else { name });
    Ok(named.chain(std::iter::repeat("unknown")).take(count.into()).map(str::to_owned).collect())
}

/// Digits alone: `parse` would take a sign.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|digit| digit.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pid: &str, fds: &str, names: Option<&str>) -> Vec<String> {
        announced(Some(pid.as_ref()), Some(fds.as_ref()), names.map(OsStr::new), 42).unwrap()
    }

    #[test]
    fn what_is_meant_for_another_process_or_not_there_is_nothing() {
        for pid in ["41", "", "x", "42 ", "-42", "+42"] {
            assert_eq!(names(pid, "2", None), [""; 0], "{pid:?}");
        }
        assert_eq!(announced(None, Some("1".as_ref()), None, 42).unwrap(), [""; 0]);
        assert_eq!(announced(Some("42".as_ref()), None, None, 42).unwrap(), [""; 0]);
        assert_eq!(names("42", "0", Some("web")), [""; 0]);
    }

    #[test]
    fn every_descriptor_has_a_name() {
        assert_eq!(names("42", "2", None), ["unknown"; 2]);
        assert_eq!(names("42", "3", Some("web:")), ["web", "unknown", "unknown"]);
        assert_eq!(names("42", "1", Some("web:admin")), ["web"]);
    }

    #[test]
    fn a_count_that_is_none_is_refused() {
        for fds in ["", "x", "-1", "+1", "1 ", "99999"] {
            let answer = announced(Some("42".as_ref()), Some(fds.as_ref()), None, 42);
            assert!(matches!(answer, Err(Error::Invalid(_))), "{fds:?}");
        }
    }
}
