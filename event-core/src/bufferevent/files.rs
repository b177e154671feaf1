//! Output that lies in files: sent from there over a socket, read for everything else.

use std::io::{self, ErrorKind};

use super::inner::Inner;
use crate::buffer::{Buffer, READ_BLOCK};
use crate::sys::FdKind;

impl Inner {
    /// Has the kernel send what of the output's front lies in a file, at most `max` bytes: how much was taken, and whether that was all that
    /// was offered. `None` if memory is first, or is now that the file and the fd do not go together.
    pub(super) fn send_file(&self, output: &mut Buffer, max: usize) -> io::Result<Option<(usize, bool)>> {
        let Some(front) = output.front_file() else { return Ok(None) };
        let max = front.len.min(max);
        let sent = if self.kind.get() == FdKind::File {
            Err(ErrorKind::Unsupported.into())
        } else {
            self.handle.sys().sendfile(self.fd.get(), front.file, front.offset, max)
        };
        match sent {
            // It has been cut. What it had before is sent; there is nothing that could stand for the rest.
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                output.drain_to_pool(n, self.handle.pool());
                Ok(Some((n, n == max)))
            }
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
                load(output, READ_BLOCK)?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Reads what of the first `max` bytes of the output lies in files, a block at a time; returns how many of them may be
/// given out now.
pub(super) fn load(output: &mut Buffer, max: usize) -> io::Result<usize> {
    if !output.has_files() {
        return Ok(max);
    }
    output.load_some(max.min(READ_BLOCK))
}
