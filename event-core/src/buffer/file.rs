//! Bytes of a buffer that lie in a file: added, looked at, and read into memory when something needs them there.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use super::chunk::{Chunk, Own};
use super::{Buffer, FileSegment};
use crate::error::Error;

/// What is read at once for somebody who looks at a file's bytes: as much as a stream reads.
const BLOCK: usize = 64 * 1024;

/// A part of a segment, as one chunk of a buffer.
pub(super) struct Part {
    segment: FileSegment,
    /// Where the part begins in the segment.
    start: usize,
    len: usize,
    /// Where the blocks below begin in the segment: `start` until there are any.
    base: usize,
    /// What was looked at through `&self`, block by block. A block that is too short ends where the file failed.
    blocks: OnceLock<Box<[Block]>>,
}

type Block = OnceLock<Box<[u8]>>;

impl Part {
    /// `start + len <= segment.len()`.
    fn new(segment: FileSegment, start: usize, len: usize) -> Part {
        debug_assert!(start + len <= segment.len());
        Part { segment, start, len, base: start, blocks: OnceLock::new() }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory for what was looked at.
    pub(super) fn held(&self) -> usize {
        let blocks = self.blocks.get().map_or(&[][..], |blocks| blocks);
        blocks.iter().filter_map(OnceLock::get).map(|block| block.len()).sum()
    }

    /// A second part with the same bytes, of which nothing is in memory.
    pub(super) fn share(&self) -> Part {
        Part::new(self.segment.clone(), self.start, self.len)
    }

    /// Forgets the first `n` bytes, `n <= len`.
    pub(super) fn advance(&mut self, n: usize) {
        let passed = (self.start - self.base) / BLOCK;
        self.start += n;
        self.len -= n;
        match self.blocks.get_mut() {
            None => self.base = self.start,
            Some(blocks) => {
                let now = (self.start - self.base) / BLOCK;
                blocks.iter_mut().take(now).skip(passed).for_each(|block| drop(block.take()));
            }
        }
        self.fit();
    }

    /// Forgets all but the first `n` bytes.
    pub(super) fn truncate(&mut self, n: usize) {
        self.len = self.len.min(n);
        let kept = (self.start + self.len - self.base).div_ceil(BLOCK);
        if let Some(blocks) = self.blocks.get_mut() {
            blocks.iter_mut().skip(kept).for_each(|block| drop(block.take()));
        }
        self.fit();
    }

    /// Lets go of blocks of which under a quarter is left: they can be read again. Longer parts are most of their blocks.
    fn fit(&mut self) {
        if self.len < BLOCK && self.held() > 4 * self.len {
            self.blocks = OnceLock::new();
            self.base = self.start;
        }
    }

    /// Some of the bytes from `at` on, read if they are not in memory; none if the file cannot give them.
    #[cold]
    pub(super) fn piece(&self, at: usize) -> &[u8] {
        if at >= self.len {
            return &[];
        }
        let end = self.start + self.len;
        let place = self.start + at - self.base;
        let blocks = self.blocks.get_or_init(|| {
            (0..(end - self.base).div_ceil(BLOCK)).map(|_| OnceLock::new()).collect::<Vec<_>>().into()
        });
        let block = blocks[place / BLOCK].get_or_init(|| {
            let from = self.base + place / BLOCK * BLOCK;
            let mut block = vec![0; BLOCK.min(end - from)];
            // Why it is short is told to who asks with `load`.
            let n = self.segment.read(from, &mut block).unwrap_or(0);
            block.truncate(n);
            block.into_boxed_slice()
        });
        let piece = block.get(place % BLOCK..).unwrap_or(&[]);
        &piece[..piece.len().min(self.len - at)]
    }

    /// Copies bytes from `at` on to `out`, past the blocks: as `FileSegment::read`.
    pub(super) fn read(&self, at: usize, out: &mut [u8]) -> io::Result<usize> {
        let n = out.len().min(self.len.saturating_sub(at));
        self.segment.read(self.start + at, &mut out[..n])
    }

    /// The first `n` bytes, or as many as the file gives but at least one, in memory of their own.
    fn first(&self, n: usize) -> io::Result<Own> {
        let n = n.min(self.len);
        let mut mem = Vec::new();
        mem.try_reserve_exact(n).map_err(|_| io::Error::from(ErrorKind::OutOfMemory))?;
        mem.resize(n, 0);
        let read = self.read(0, &mut mem)?;
        mem.truncate(read);
        mem.shrink_to_fit();
        Ok(Own::new(mem))
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {:?} from {}", self.len, self.segment, self.start)
    }
}

/// The bytes of a file that stand at the front of a buffer.
pub(crate) struct FileFront<'a> {
    pub(crate) file: &'a File,
    /// Where they begin in the file.
    pub(crate) offset: u64,
    pub(crate) len: usize,
}

impl Buffer {
    /// Appends the `len` bytes of `file` from `offset` on, or all from there on, by reference: see [`FileSegment`].
    ///
    /// The file closes when the last of them is gone. To use one file often make a [`FileSegment`].
    ///
    /// # Errors
    /// As [`FileSegment::new`] and [`add_file_segment`](Buffer::add_file_segment). The file is closed and the buffer as it
    /// was then.
    #[doc(alias = "evbuffer_add_file")]
    pub fn add_file(&mut self, file: impl Into<OwnedFd>, offset: u64, len: Option<u64>) -> Result<(), Error> {
        let segment = FileSegment::new(file, offset, len)?;
        self.add_file_segment(&segment, 0, None)
    }

    /// Appends `len` bytes of `segment` from its byte `offset` on, or all from there on, by reference.
    ///
    /// Moving, sharing, cutting and draining such bytes reads nothing, and a stream over a socket sends them from where
    /// they lie. What looks at them reads them: [`pullup`](Buffer::pullup), [`copyout`](Buffer::copyout),
    /// [`peek`](Buffer::peek), the searches, comparison, [`std::io::Read`], and a stream over a pair or a
    /// [`Transport`](crate::Transport). What is looked at through `&self` stays in memory until it is drained.
    ///
    /// Where the file cannot give its bytes any more (it was cut, the disk fails), a call that looks sees the buffer end
    /// there: it finds no more, copies fewer bytes, gives `None`. The calls that return an `io::Result` say why;
    /// [`load`](Buffer::load) asks for that alone. A stream that was to send them ends with an error.
    ///
    /// # Errors
    /// `Error::Invalid` if the range is not in the segment, or the buffer would be longer than `isize::MAX` bytes;
    /// nothing has changed then.
    #[doc(alias = "evbuffer_add_file_segment")]
    pub fn add_file_segment(
        &mut self,
        segment: &FileSegment,
        offset: u64,
        len: Option<u64>,
    ) -> Result<(), Error> {
        let all = segment.len();
        let start = usize::try_from(offset).ok().filter(|start| *start <= all);
        let Some(start) = start else {
            return Err(Error::Invalid("the file segment ends before the offset"));
        };
        let len = len.map_or(Some(all - start), |len| usize::try_from(len).ok());
        let Some(len) = len.filter(|len| *len <= all - start) else {
            return Err(Error::Invalid("the file segment ends before the range does"));
        };
        if len > super::MAX_LEN - self.len() {
            return Err(Error::Invalid("the buffer would be longer than isize::MAX bytes"));
        }
        self.push_part(segment.clone(), start, len);
        Ok(())
    }

    /// Reads what of the first `n` bytes, or of all if there are fewer, lies in files, into memory of the buffer's own.
    ///
    /// # Errors
    /// What the system says where the bytes are not to be had, `UnexpectedEof` if the file was cut, `OutOfMemory`. The
    /// buffer has all its bytes still; those before the place are in memory.
    #[inline]
    pub fn load(&mut self, n: usize) -> io::Result<()> {
        if self.has_files() { self.load_all(n) } else { Ok(()) }
    }

    fn load_all(&mut self, n: usize) -> io::Result<()> {
        let n = n.min(self.len());
        let mut loaded = self.load_some(n)?;
        while loaded < n {
            // It stopped at a place; going on from there says why.
            let more = self.load_from(loaded, n)?;
            loaded += more;
        }
        Ok(())
    }

    /// Whether some of the bytes lie in a file. O(1).
    #[inline]
    pub fn has_files(&self) -> bool {
        self.list.file_len() > 0
    }

    /// Number of bytes that are in memory, not in files. O(1).
    #[inline]
    pub(crate) fn memory_len(&self) -> usize {
        self.list.len() - self.list.file_len()
    }

    /// The file whose bytes are first.
    #[inline]
    pub(crate) fn front_file(&self) -> Option<FileFront<'_>> {
        match self.list.front() {
            Some(Chunk::File(part)) => Some(FileFront {
                file: part.segment.file(),
                offset: part.segment.position(part.start),
                len: part.len,
            }),
            _ => None,
        }
    }

    /// As `load`, but an `Ok` may say that only so many of the `n` bytes are in memory: the next is not to be had.
    pub(crate) fn load_some(&mut self, n: usize) -> io::Result<usize> {
        let n = n.min(self.len());
        if n == 0 || !self.has_files() {
            return Ok(n);
        }
        self.load_from(0, n)
    }

    /// Reads what of the bytes from `from` to `to` lies in files; returns how many of them are in memory now, and an error
    /// if there are none for one.
    fn load_from(&mut self, from: usize, to: usize) -> io::Result<usize> {
        let (mut passed, mut used_up) = (Vec::new(), Vec::new());
        let mut done = 0;
        let mut result = Ok(());
        while done < to && result.is_ok() {
            let Some(mut chunk) = self.list.pop_front() else { break };
            let Chunk::File(part) = &mut chunk else {
                done += chunk.len();
                passed.push(chunk);
                continue;
            };
            let wanted = part.len.min(to - done);
            match part.first(wanted) {
                Ok(own) => {
                    let n = own.len();
                    part.advance(n);
                    done += n;
                    passed.push(Chunk::own(own));
                    if n < wanted {
                        result = Err(None);
                    }
                }
                Err(error) => result = Err(Some(error)),
            }
            if chunk.is_empty() {
                used_up.push(chunk);
            } else {
                self.list.push_front(chunk);
            }
        }
        passed.into_iter().rev().for_each(|chunk| self.list.push_front(chunk));
        // Here, with everything in its place, goes what may run code of the program's.
        drop(used_up);
        match result {
            Err(Some(error)) if done <= from => Err(error),
            _ => Ok(done.min(to).saturating_sub(from)),
        }
    }

    /// `start + len <= segment.len()`, and the sum of the lengths is one that a buffer may have.
    pub(super) fn push_part(&mut self, segment: FileSegment, start: usize, len: usize) {
        if len > 0 {
            self.push_back(Chunk::File(Box::new(Part::new(segment, start, len))));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs;
    use std::io::{BufRead, Read};
    use std::process;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    use super::*;
    use crate::buffer::Eol;

    /// A file of these bytes, which has no name any more.
    fn file(bytes: &[u8]) -> File {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("event-core-part-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = env::temp_dir().join(name);
        fs::write(&path, bytes).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        file
    }

    fn text(len: usize) -> Vec<u8> {
        (0..len).map(|n| (n / 7 % 251) as u8).collect()
    }

    fn segment(bytes: &[u8]) -> FileSegment {
        FileSegment::new(file(bytes), 0, None).unwrap()
    }

    /// "head ", the bytes by reference to a file, " tail".
    fn around(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::from("head ");
        buffer.add_file(file(bytes), 0, None).unwrap();
        buffer.add(b" tail");
        buffer
    }

    #[test]
    fn a_range_of_a_range_of_a_file_is_added() {
        let bytes = text(1000);
        let part = FileSegment::new(file(&bytes), 100, Some(500)).unwrap();
        let mut buffer = Buffer::new();
        buffer.add_file_segment(&part, 50, Some(200)).unwrap();
        assert_eq!((buffer.len(), buffer.held(), buffer.has_files()), (200, 0, true));
        assert_eq!(buffer, bytes[150..350]);
        buffer.add_file_segment(&part, 499, None).unwrap();
        buffer.add_file_segment(&part, 500, None).unwrap();
        assert_eq!((buffer.len(), buffer.to_vec()[200]), (201, bytes[599]));
        assert_eq!(Buffer::from(part), bytes[100..600]);
    }

    #[test]
    fn ranges_that_are_not_there_are_refused_and_change_nothing() {
        let invalid = |result: Result<FileSegment, Error>| matches!(result, Err(Error::Invalid(_)));
        for (offset, len) in [
            (11, None),
            (u64::MAX, None),
            (0, Some(11)),
            (5, Some(6)),
            (1, Some(u64::MAX)),
            (u64::MAX, Some(2)),
        ] {
            assert!(invalid(FileSegment::new(file(b"0123456789"), offset, len)), "{offset} {len:?}");
            let (part, mut buffer) = (segment(b"0123456789"), Buffer::from("before"));
            assert!(matches!(buffer.add_file_segment(&part, offset, len), Err(Error::Invalid(_))));
            assert!(buffer.add_file(file(b"0123456789"), offset, len).is_err());
            assert_eq!((&buffer, buffer.chunks().count()), (&Buffer::from("before"), 1));
        }
        let (reader, _writer) = io::pipe().unwrap();
        assert!(invalid(FileSegment::new(OwnedFd::from(reader), 0, Some(0))), "a pipe has no places");
        assert!(invalid(FileSegment::new(File::open(env::temp_dir()).unwrap(), 0, None)), "a directory");
    }

    #[test]
    fn a_file_that_may_not_be_read_is_refused_at_once() {
        let path = env::temp_dir().join(format!("event-core-write-only-{}", process::id()));
        let only_written = File::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(matches!(FileSegment::new(only_written, 0, None), Err(Error::Io(_))));
    }

    #[test]
    fn an_empty_segment_adds_nothing() {
        let mut buffer = Buffer::new();
        buffer.add_file(file(b""), 0, None).unwrap();
        buffer.add_file_segment(&segment(b"x"), 1, None).unwrap();
        assert_eq!((buffer.len(), buffer.chunks().count(), buffer.has_files()), (0, 0, false));
        assert!(segment(b"").is_empty());
    }

    #[test]
    fn a_buffer_with_a_file_is_no_longer_than_any_other() {
        let long = file(b"");
        let len = 1_u64 << 62;
        if long.set_len(len).is_err() {
            println!("skipped: a file of that length");
            return;
        }
        let part = FileSegment::new(long, 0, None).unwrap();
        let mut buffer = Buffer::new();
        buffer.add_file_segment(&part, 0, None).unwrap();
        assert!(matches!(buffer.add_file_segment(&part, 0, None), Err(Error::Invalid(_))));
        assert_eq!(buffer.len() as u64, len);
    }

    #[test]
    fn every_way_to_look_gives_the_bytes_of_the_file() {
        let bytes = text(200_000);
        let mut whole = b"head ".to_vec();
        whole.extend_from_slice(&bytes);
        whole.extend_from_slice(b" tail");
        let fresh = || around(&bytes);
        assert_eq!(fresh(), whole);
        assert_eq!(fresh().to_vec(), whole);
        assert_eq!(fresh().into_vec(), whole);
        assert_eq!(fresh(), Buffer::from(&whole[..]));
        assert_eq!(fresh().chunks().collect::<Vec<_>>().concat(), whole);
        assert_eq!(fresh().pullup(whole.len()), Some(&whole[..]));
        assert_eq!(fresh().pullup(100_000), whole.get(..100_000));
        assert_eq!(fresh().pullup(200_000), whole.get(..200_000));
        assert_eq!(fresh().peek_from(150_000, 100).collect::<Vec<_>>().concat(), whole[150_000..150_100]);
        assert_eq!(fresh().search(b" tail", 0), Some(200_005));
        let across = &bytes[60_000..70_000];
        let found = whole.windows(10_000).position(|window| window == across);
        assert_eq!(fresh().search(across, 0), found);
        let mut out = vec![0; 150_000];
        assert_eq!(fresh().copyout_from(10_000, &mut out), 150_000);
        assert_eq!(out, whole[10_000..160_000]);
        let mut read = Vec::new();
        fresh().read_to_end(&mut read).unwrap();
        assert_eq!(read, whole);
        let mut slices = [io::IoSlice::new(&[]); 64];
        let buffer = fresh();
        let count = buffer.io_slices(usize::MAX, &mut slices);
        assert_eq!(slices[..count].iter().map(|slice| slice.len()).sum::<usize>(), whole.len());
    }

    #[test]
    fn lines_are_read_out_of_a_file() {
        let mut buffer = Buffer::from("first, ");
        buffer.add_file(file(b"begun\nsecond\r\nlast"), 0, None).unwrap();
        assert_eq!(buffer.readln(Eol::Crlf).as_deref(), Some(&b"first, begun"[..]));
        let mut line = String::new();
        buffer.read_line(&mut line).unwrap();
        assert_eq!(line, "second\r\n");
        assert_eq!((buffer.readln(Eol::Crlf), &buffer), (None, &Buffer::from("last")));
    }

    #[test]
    fn nothing_is_in_memory_before_somebody_looks_and_little_then() {
        let bytes = text(1 << 20);
        let mut buffer = Buffer::from(segment(&bytes));
        let mut other = buffer.share();
        let mut third = buffer.split_to(300_000);
        third.add_buffer(&mut buffer);
        other.drain(1000);
        other.truncate(1_000_000);
        assert_eq!((other.held(), third.held()), (0, 0));
        assert_eq!(format!("{third:?}"), "Buffer { len: 1048576, chunks: 2, bytes: \"\".. }");
        assert_eq!(other.contiguous(), &bytes[1000..1000 + BLOCK]);
        assert_eq!(other.held(), BLOCK);
        other.drain(BLOCK + 10);
        assert_eq!((other.held(), other.peek(5).next()), (0, bytes.get(66_546..66_551)));
        assert_eq!(other.held(), BLOCK);
        let mut out = vec![0; 500_000];
        other.read_exact(&mut out).unwrap();
        assert_eq!((&out[..], other.held()), (&bytes[66_546..566_546], 0), "read past the blocks");
        assert_eq!(third.to_vec(), bytes);
        assert_eq!(third.held(), 0);
    }

    #[test]
    fn very_many_files_are_passed_over_and_looked_at() {
        let part = segment(b"ab");
        let mut buffer = Buffer::new();
        (0..200_000).for_each(|_| buffer.add_file_segment(&part, 1, None).unwrap());
        assert_eq!(buffer.peek_from(199_998, 9).collect::<Vec<_>>(), [b"b", b"b"]);
        assert_eq!((buffer.peek_from(200_000, 9).count(), buffer.search_byte(b'a', 100_000)), (0, None));
        assert_eq!((buffer.held(), buffer.drain(199_999), buffer), (100_000, 199_999, Buffer::from("b")));
    }

    #[test]
    fn loading_makes_memory_of_what_was_asked_for() {
        let bytes = text(100_000);
        let mut buffer = around(&bytes);
        buffer.load(3).unwrap();
        assert_eq!(buffer.memory_len(), 10);
        buffer.load(50_005).unwrap();
        assert_eq!((buffer.memory_len(), buffer.has_files()), (50_010, true));
        buffer.load(usize::MAX).unwrap();
        assert_eq!(
            (buffer.has_files(), buffer.len(), &buffer.to_vec()[5..100_005]),
            (false, 100_010, &bytes[..])
        );
        Buffer::new().load(9).unwrap();
    }

    #[test]
    fn a_file_that_was_cut_ends_every_look_and_leaves_no_hole() {
        let bytes = text(200_000);
        let part = segment(&bytes);
        let fresh = || {
            let mut buffer = Buffer::from("head ");
            buffer.add_file_segment(&part, 0, None).unwrap();
            buffer.add(b" tail");
            buffer
        };
        part.file().set_len(100_000).unwrap();
        let mut there = b"head ".to_vec();
        there.extend_from_slice(&bytes[..100_000]);
        let mut buffer = fresh();
        assert_eq!(buffer.len(), 200_010);
        assert_eq!((buffer.to_vec(), buffer.clone().into_vec()), (there.clone(), there.clone()));
        assert_eq!(buffer.chunks().collect::<Vec<_>>().concat(), there);
        assert_eq!(buffer.search(b" tail", 0), None);
        assert_eq!(buffer.copyout_from(100_005, &mut [0; 9]), 0);
        assert_ne!(buffer, there);
        assert_ne!(buffer, fresh());
        assert_ne!(buffer, [there.clone(), vec![0; 100_000], b" tail".to_vec()].concat());
        assert_eq!(buffer.load(100_005).map_err(|error| error.kind()), Ok(()));
        assert_eq!(buffer.load(100_006).map_err(|error| error.kind()), Err(ErrorKind::UnexpectedEof));
        assert_eq!(fresh().load(usize::MAX).map_err(|error| error.kind()), Err(ErrorKind::UnexpectedEof));
        assert_eq!(fresh().pullup(100_006), None);
        assert_eq!(fresh().pullup(100_005), Some(&there[..]));
        for mut buffer in [fresh(), buffer] {
            let mut read = Vec::new();
            let end = buffer.read_to_end(&mut read).map_err(|error| error.kind());
            assert_eq!((end, &read), (Err(ErrorKind::UnexpectedEof), &there));
            assert_eq!(buffer.fill_buf().map_err(|error| error.kind()), Err(ErrorKind::UnexpectedEof));
            assert_eq!((buffer.contiguous(), buffer.len()), (&b""[..], 100_005));
            assert_eq!(buffer.drain(100_000), 100_000);
            assert_eq!(buffer, " tail");
        }
    }

    #[test]
    fn the_hook_runs_once_when_the_last_reference_goes() {
        let (told, hears) = mpsc::channel();
        let part = segment(&text(10_000));
        for n in 1..=2 {
            let told = told.clone();
            part.on_release(move || told.send(n).unwrap());
        }
        let mut buffer = Buffer::from("head");
        buffer.add_file_segment(&part, 0, Some(9_000)).unwrap();
        buffer.add_file_segment(&part, 100, None).unwrap();
        drop(part);
        let mut other = buffer.share();
        let head = other.split_to(5_000);
        drop(other);
        buffer.drain(usize::MAX);
        assert!(hears.try_recv().is_err());
        drop(head);
        assert_eq!(hears.try_iter().collect::<Vec<_>>(), [1, 2]);
        // What is read into memory needs the file no more.
        let part = segment(b"text");
        part.on_release(move || told.send(3).unwrap());
        let mut buffer = Buffer::from(part);
        buffer.load(3).unwrap();
        assert!(hears.try_recv().is_err());
        buffer.load(4).unwrap();
        assert_eq!((hears.try_recv(), &buffer), (Ok(3), &Buffer::from("text")));
    }

    #[test]
    fn a_hook_may_use_the_segments_of_others_and_panic() {
        let part = segment(b"x");
        let other = part.clone();
        let second = segment(b"y");
        part.on_release(move || assert_eq!(Buffer::from(second), "y"));
        part.on_release(|| panic!("on purpose"));
        drop(other);
        let mut buffer = Buffer::from(part);
        buffer.add(b"after");
        let drained = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| buffer.drain(1)));
        assert!(drained.is_err());
        assert_eq!((buffer.len(), buffer.to_vec()), (5, b"after".to_vec()));
    }
}
