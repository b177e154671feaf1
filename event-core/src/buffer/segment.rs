//! `FileSegment`: a region of a file that any number of buffers refer to.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Buffer, MAX_LEN};
use crate::error::Error;

type Hook = Box<dyn FnOnce() + Send>;

/// A region of an open file, for buffers to refer to: libevent's `evbuffer_file_segment`.
///
/// A clone is another reference to the same region and costs a count. The file stays open until the last clone and the
/// last byte in the last buffer are gone; then what [`on_release`](FileSegment::on_release) was given runs, and the file
/// closes. The file is read at places: its own position neither matters nor moves, so one file may serve many
/// segments.
///
/// No memory is taken for the bytes until somebody looks at them. A stream over a socket has the kernel send them from
/// where they lie (`sendfile`); everything else reads them when it needs them. Reading a file blocks: on a slow disk the
/// loop waits for it.
///
/// # What changes in the file
/// Nothing is copied when a segment is made, so bytes that are overwritten later are sent as they are then. A file that
/// is cut gives an error (`UnexpectedEof`) where its bytes are missing; nothing is put in their place, and as the file is
/// not mapped there is no SIGBUS. Replace a file by renaming another over it: who sends the old one goes on with that.
///
/// # Examples
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use event_core::{Buffer, FileSegment};
///
/// let page = FileSegment::new(std::fs::File::open("index.html")?, 0, None)?;
/// let mut answer = Buffer::new();
/// write!(answer, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
/// answer.add_file_segment(&page, 0, None)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "evbuffer_file_segment")]
#[doc(alias = "evbuffer_file_segment_free")]
pub struct FileSegment {
    region: Arc<Region>,
}

struct Region {
    file: File,
    /// Where the region begins in the file.
    offset: u64,
    /// At most `MAX_LEN`.
    len: usize,
    hooks: Mutex<Vec<Hook>>,
}

impl FileSegment {
    /// Makes a segment of the `len` bytes of `file` from `offset` on; of all from there on if `len` is `None`.
    ///
    /// `file` is a [`File`] or an [`OwnedFd`], open for reading; the segment closes it. A region without bytes is allowed.
    ///
    /// # Errors
    /// - `Error::Invalid` if it is no regular file, if the file ends before the region does, or if the region is longer
    ///   than a buffer may be. The file is closed then.
    /// - `Error::Io` if the file cannot be asked, or is not open for reading.
    #[doc(alias = "evbuffer_file_segment_new")]
    pub fn new(file: impl Into<OwnedFd>, offset: u64, len: Option<u64>) -> Result<FileSegment, Error> {
        let file = File::from(file.into());
        let data = file.metadata().map_err(Error::Io)?;
        if !data.is_file() {
            return Err(Error::Invalid("a file segment is a part of a regular file"));
        }
        let there = data.len().checked_sub(offset);
        let Some(len) = there.and_then(|there| Some(len.unwrap_or(there)).filter(|len| *len <= there)) else {
            return Err(Error::Invalid("the file ends before the segment does"));
        };
        let len = usize::try_from(len).ok().filter(|len| *len <= MAX_LEN);
        let Some(len) = len else {
            return Err(Error::Invalid("the segment is longer than isize::MAX bytes"));
        };
        // Nothing is read yet: only whether it may be is asked.
        file.read_at(&mut [], offset).map_err(Error::Io)?;
        Ok(FileSegment { region: Arc::new(Region { file, offset, len, hooks: Mutex::default() }) })
    }

    /// Number of bytes in the segment.
    pub fn len(&self) -> usize {
        self.region.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Has `hook` run once when the last reference is gone, right before the file closes. Hooks run in the order in
    /// which they were given.
    ///
    /// It runs inside the call that lets the last reference go, on the thread that made it: draining a buffer, or the
    /// loop after it has sent the last byte. No borrow of the library's is held then, so it may use any handle that it
    /// can reach.
    #[doc(alias = "evbuffer_file_segment_add_cleanup_cb")]
    #[doc(alias = "evbuffer_file_segment_cleanup_cb")]
    pub fn on_release(&self, hook: impl FnOnce() + Send + 'static) {
        // Nothing that panics runs under this lock.
        self.region.hooks.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(hook));
    }

    pub(super) fn file(&self) -> &File {
        &self.region.file
    }

    /// Position in the file of byte `at` of the segment.
    pub(super) fn position(&self, at: usize) -> u64 {
        // No overflow: the region lies within a file, whose positions fit.
        self.region.offset + at as u64
    }

    /// Fills `out` with the bytes from `at` on; fewer if the file ends or fails there.
    ///
    /// # Errors
    /// What the system says if not even the first byte is to be had, `UnexpectedEof` if the file has been cut.
    pub(super) fn read(&self, at: usize, out: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < out.len() {
            match self.region.file.read_at(&mut out[done..], self.position(at + done)) {
                Ok(0) if done == 0 => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let hooks = std::mem::take(self.hooks.get_mut().unwrap_or_else(PoisonError::into_inner));
        hooks.into_iter().for_each(|hook| hook());
    }
}

impl fmt::Debug for FileSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Region { file, offset, len, .. } = &*self.region;
        f.debug_struct("FileSegment").field("file", file).field("offset", offset).field("len", len).finish()
    }
}

/// Refers to the whole segment.
impl From<FileSegment> for Buffer {
    fn from(segment: FileSegment) -> Buffer {
        let mut buffer = Buffer::new();
        let len = segment.len();
        buffer.push_part(segment, 0, len);
        buffer
    }
}
