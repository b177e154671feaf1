//! Files in the output of streams: over sockets, pairs, pipes and transports, cut short, refused and cut while being sent.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use event_core::testing::{Call, Faults};
use event_core::{
    Buffer, BufferEvent, Callbacks, Direction, Error, EventBase, FileSegment, StreamEvent, Transport,
};
use tests::streams::{Recorder, Seen, nameless_file, words};
use tests::{Bed, Peer, each_backend};

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 3 % 253) as u8).collect()
}

/// "head ", the file, " tail".
fn message(bytes: &[u8]) -> (Buffer, Vec<u8>) {
    let mut buffer = Buffer::from("head ");
    buffer.add_file(nameless_file(bytes), 0, None).unwrap();
    buffer.add(b" tail");
    (buffer, [b"head ", bytes, b" tail"].concat())
}

/// Runs the loop and reads until so many bytes are there or the stream ends; says whether it ended.
fn receive(bed: &Bed, base: &mut EventBase, peer: &Peer, len: usize) -> (Vec<u8>, bool) {
    let (mut got, mut ended) = (Vec::new(), false);
    bed.run_until(base, || {
        let (bytes, end) = peer.read();
        got.extend_from_slice(&bytes);
        ended |= end;
        ended || got.len() >= len
    });
    (got, ended)
}

/// Collects what arrives.
struct Collect(Rc<RefCell<Vec<u8>>>, Seen);

impl Callbacks for Collect {
    fn on_read(&mut self, bev: &BufferEvent) {
        self.0.borrow_mut().extend_from_slice(&bev.read_buffer().to_vec());
    }

    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        self.1.push(words(event));
        bev.free();
    }
}

/// Counts releases from any thread.
fn released(segment: &FileSegment) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let hook = count.clone();
    segment.on_release(move || _ = hook.fetch_add(1, Ordering::Relaxed));
    count
}

#[test]
fn a_file_goes_through_a_socket_whole_and_is_not_read() {
    each_backend(|bed| {
        for len in [1, 100, 65_536, 3_000_000] {
            let faults = Faults::new();
            let mut base = bed.base_with(&faults);
            let (stream, peer) = bed.tcp_stream(&base);
            let seen = Seen::new();
            stream.set_callbacks(Recorder::new(&seen));
            let (buffer, whole) = message(&text(len));
            stream.write(buffer).unwrap();
            assert_eq!(stream.pending_output(), whole.len());
            let (got, ended) = receive(bed, &mut base, &peer, whole.len());
            assert_eq!((got == whole, ended), (true, false), "{len} bytes");
            bed.settle(&mut base);
            assert_eq!(seen.take().last().map(String::as_str), Some("wrote, 0 left"));
            if bed.sim().is_some() || cfg!(target_os = "linux") {
                assert_ne!(faults.count(Call::Sendfile), 0);
                let others = faults.count(Call::Send) + faults.count(Call::Sendv);
                assert!(others < 20, "{others} writes of what is in memory");
            }
        }
    });
}

#[test]
fn parts_of_segments_and_what_is_between_them_arrive_in_order() {
    each_backend(|bed| {
        let bytes = text(300_000);
        let segment = FileSegment::new(nameless_file(&bytes), 1000, Some(250_000)).unwrap();
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let mut whole = Vec::new();
        for (start, len) in [(0, 10), (249_999, 1), (100_000, 150_000), (5, 0), (0, 250_000), (7, 70_000)] {
            let mut output = stream.output();
            output.add_file_segment(&segment, start as u64, Some(len as u64)).unwrap();
            output.add(b"|");
            drop(output);
            whole.extend_from_slice(&bytes[1000 + start..1000 + start + len]);
            whole.push(b'|');
        }
        let (got, _) = receive(bed, &mut base, &peer, whole.len());
        assert!(got == whole);
        assert_eq!(stream.pending_output(), 0);
    });
}

#[test]
fn a_file_goes_through_a_pair_and_the_other_end_gets_memory() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (from, to) = BufferEvent::pair(&base).unwrap();
        let (got, seen) = (Rc::new(RefCell::new(Vec::new())), Seen::new());
        to.set_callbacks(Collect(got.clone(), seen.clone()));
        to.enable(Direction::READ).unwrap();
        let (buffer, whole) = message(&text(1_000_000));
        from.write(buffer).unwrap();
        from.close_after_flush();
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!((seen.take(), *got.borrow() == whole), (vec!["reading eof".to_owned()], true));
    });
}

#[test]
fn a_pair_whose_other_end_reads_little_reads_the_file_little_by_little() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (from, to) = BufferEvent::pair(&base).unwrap();
        to.set_watermark(Direction::READ, 0, Some(1000));
        to.enable(Direction::READ).unwrap();
        let whole = text(5_000);
        from.write(FileSegment::new(nameless_file(&whole), 0, None).unwrap()).unwrap();
        let mut got = Vec::new();
        bed.run_until(&mut base, || {
            let piece = to.read_buffer();
            assert!(piece.len() <= 1000 && !piece.has_files());
            got.extend_from_slice(&piece.to_vec());
            got.len() == whole.len()
        });
        assert!(got == whole);
    });
}

/// Sends `message` with one fault and says what arrived and what the program was told.
fn with_fault(bed: &Bed, faults: &Faults, len: usize) -> (Vec<u8>, Vec<u8>, Vec<String>) {
    let mut base = bed.base_with(faults);
    let (stream, peer) = bed.stream(&base);
    let seen = Seen::new();
    stream.set_callbacks(Recorder { drains: true, frees: true, seen: seen.clone() });
    let (buffer, whole) = message(&text(len));
    stream.write(buffer).unwrap();
    let mut got = Vec::new();
    let mut ended = false;
    bed.run_until(&mut base, || {
        let (bytes, end) = peer.read();
        got.extend_from_slice(&bytes);
        ended |= end;
        ended || got.len() == whole.len()
    });
    bed.settle(&mut base);
    let told = seen.take().into_iter().filter(|word| !word.starts_with("wrote")).collect();
    (got, whole, told)
}

#[test]
fn short_counts_and_eagain_at_every_call_change_nothing() {
    each_backend(|bed| {
        for nth in 1..=6 {
            for kind in [Call::Sendfile, Call::Sendv, Call::Send] {
                for cut in [1, 7, 4096] {
                    let faults = Faults::new();
                    (1..=nth).for_each(|nth| faults.cut(kind, nth, cut));
                    let (got, whole, told) = with_fault(bed, &faults, 400_000);
                    assert!(got == whole && told.is_empty(), "{kind:?} {nth} cut to {cut}: {told:?}");
                }
                let faults = Faults::new();
                faults.fail(kind, nth, libc::EAGAIN);
                let (got, whole, told) = with_fault(bed, &faults, 400_000);
                assert!(got == whole && told.is_empty(), "{kind:?} {nth} would block: {told:?}");
            }
        }
    });
}

#[test]
fn where_sendfile_is_refused_the_file_is_read() {
    each_backend(|bed| {
        for errno in [libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP] {
            for first in [1, 2] {
                let faults = Faults::new();
                faults.fail_from(Call::Sendfile, first, errno);
                let (got, whole, told) = with_fault(bed, &faults, 400_000);
                assert!(got == whole && told.is_empty(), "{errno} from call {first}: {told:?}");
            }
        }
    });
}

#[test]
fn any_other_failure_of_sendfile_ends_the_stream_with_an_error() {
    each_backend(|bed| {
        let faults = Faults::new();
        faults.fail(Call::Sendfile, 1, libc::EIO);
        let (got, whole, told) = with_fault(bed, &faults, 400_000);
        assert_eq!(told, ["writing error"]);
        assert!(got.len() < whole.len() && whole.starts_with(&got));
    });
}

/// Writes down why a stream failed.
struct Why(Rc<RefCell<Vec<String>>>);

impl Callbacks for Why {
    fn on_read(&mut self, _: &BufferEvent) {}

    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        let cut =
            matches!(bev.error(), Some(Error::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof);
        self.0.borrow_mut().push(format!("{} {cut}", words(event)));
        bev.free();
    }
}

#[test]
fn a_file_that_is_cut_while_it_is_sent_is_an_error_without_a_hole() {
    each_backend(|bed| {
        for refused in [false, true] {
            let bytes = text(4_000_000);
            let faults = Faults::new();
            if refused {
                faults.fail_from(Call::Sendfile, 1, libc::EINVAL);
            }
            let mut base = bed.base_with(&faults);
            let (stream, peer) = bed.stream(&base);
            let why = Rc::new(RefCell::new(Vec::new()));
            stream.set_callbacks(Why(why.clone()));
            let file = nameless_file(&bytes);
            let knife = file.try_clone().unwrap();
            stream.output().add_file(file, 0, None).unwrap();
            stream.write("behind").unwrap();
            // The other end reads nothing yet, so not all of it can be under way.
            bed.settle(&mut base);
            let left = stream.pending_output();
            assert!(left > 1_000_000 && left < bytes.len() + 6, "{left}");
            let cut_at = bytes.len() - left / 2;
            knife.set_len(cut_at as u64).unwrap();
            let (got, ended) = receive(bed, &mut base, &peer, usize::MAX);
            assert!(ended && got == bytes[..cut_at], "{} of {cut_at}", got.len());
            assert_eq!(why.take(), ["writing error true"]);
        }
    });
}

#[test]
fn a_file_that_is_cut_before_it_is_sent_is_an_error_on_a_pair_too() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (from, to) = BufferEvent::pair(&base).unwrap();
        let (got, seen) = (Rc::new(RefCell::new(Vec::new())), Seen::new());
        to.set_callbacks(Collect(got.clone(), seen.clone()));
        to.enable(Direction::READ).unwrap();
        let why = Rc::new(RefCell::new(Vec::new()));
        from.set_callbacks(Why(why.clone()));
        let bytes = text(200_000);
        let file = nameless_file(&bytes);
        let knife = file.try_clone().unwrap();
        from.output().add_file(file, 0, None).unwrap();
        from.write("behind").unwrap();
        knife.set_len(150_000).unwrap();
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(why.take(), ["writing error true"]);
        assert_eq!((seen.take(), *got.borrow() == bytes[..150_000]), (vec!["reading eof".to_owned()], true));
    });
}

#[test]
fn a_file_that_is_all_gone_sends_what_is_before_it_and_fails() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.stream(&base);
        let why = Rc::new(RefCell::new(Vec::new()));
        stream.set_callbacks(Why(why.clone()));
        let file = nameless_file(b"0123456789");
        let knife = file.try_clone().unwrap();
        let mut output = stream.output();
        output.add(b"before");
        output.add_file(file, 0, None).unwrap();
        output.add(b"behind");
        drop(output);
        knife.set_len(0).unwrap();
        let (got, ended) = receive(bed, &mut base, &peer, usize::MAX);
        assert_eq!((&got[..], ended, why.take()), (&b"before"[..], true, vec!["writing error true".into()]));
    });
}

#[test]
fn one_segment_serves_many_streams_and_is_released_once_behind_the_last() {
    each_backend(|bed| {
        let bytes = text(100_000);
        let segment = FileSegment::new(nameless_file(&bytes), 0, None).unwrap();
        let count = released(&segment);
        let mut base = bed.base();
        let streams: Vec<_> = (0..10).map(|_| bed.stream(&base)).collect();
        for (stream, _) in &streams {
            stream.write(segment.clone()).unwrap();
            stream.output().add_file_segment(&segment, 50_000, None).unwrap();
        }
        let mut elsewhere = Buffer::from(segment);
        let whole = [&bytes[..], &bytes[50_000..]].concat();
        for (_, peer) in &streams {
            let (got, _) = receive(bed, &mut base, peer, whole.len());
            assert!(got == whole);
        }
        bed.settle(&mut base);
        assert_eq!(streams.iter().map(|(stream, _)| stream.pending_output()).sum::<usize>(), 0);
        elsewhere.drain(99_999);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        elsewhere.drain(1);
        assert_eq!(count.load(Ordering::Relaxed), 1);
        drop((streams, base));
        assert_eq!(count.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_stream_that_is_freed_lets_its_file_go() {
    each_backend(|bed| {
        let base = bed.base();
        let (stream, _peer) = bed.stream(&base);
        let segment = FileSegment::new(nameless_file(b"unsent"), 0, None).unwrap();
        let count = released(&segment);
        stream.write(segment).unwrap();
        stream.free();
        assert_eq!(count.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn the_hook_may_free_the_stream_that_sends_the_last_byte() {
    thread_local! {
        static STREAM: RefCell<Option<BufferEvent>> = const { RefCell::new(None) };
    }
    each_backend(|bed| {
        for pair in [false, true] {
            let mut base = bed.base();
            let ((stream, _peer), _other) = match pair {
                false => (bed.stream(&base), None),
                true => {
                    let (from, to) = BufferEvent::pair(&base).unwrap();
                    to.enable(Direction::READ).unwrap();
                    let (_, peer) = bed.stream(&base);
                    ((from, peer), Some(to))
                }
            };
            let segment = FileSegment::new(nameless_file(b"last"), 0, None).unwrap();
            segment.on_release(|| {
                if let Some(stream) = STREAM.take() {
                    stream.free();
                }
            });
            stream.write(segment).unwrap();
            stream.write(vec![b'x'; 1000]).unwrap();
            STREAM.set(Some(stream.clone()));
            bed.run_until(&mut base, || stream.is_freed());
            bed.settle(&mut base);
        }
    });
}

#[test]
fn a_file_does_not_count_as_output_that_is_held_in_memory() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, _peer) = bed.stream(&base);
        let seen = Seen::new();
        stream.set_callbacks(Recorder::new(&seen));
        stream.set_max(None, Some(1000));
        let file = nameless_file(b"");
        file.set_len(1 << 30).unwrap();
        stream.write(FileSegment::new(file, 0, None).unwrap()).unwrap();
        assert!(stream.write(vec![0; 1000]).is_ok());
        assert!(matches!(stream.write("x"), Err(Error::OutputFull)));
        bed.run_until(&mut base, || !seen.is_empty());
        assert_eq!(seen.take(), ["error"]);
    });
}

#[test]
fn a_pipe_gets_the_file_too() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        for first_in_memory in [false, true] {
            let mut base = bed.base();
            let (mut reader, writer) = io::pipe().unwrap();
            let stream = BufferEvent::new(&base, OwnedFd::from(writer)).unwrap();
            let bytes = text(500_000);
            let mut whole = Vec::new();
            if first_in_memory {
                // Which is how the stream learns that it is none over a socket.
                stream.write("head").unwrap();
                whole.extend_from_slice(b"head");
            }
            whole.extend_from_slice(&bytes);
            stream.output().add_file(nameless_file(&bytes), 0, None).unwrap();
            stream.close_after_flush();
            let reading = std::thread::spawn(move || {
                let mut got = Vec::new();
                reader.read_to_end(&mut got).unwrap();
                got
            });
            bed.run_until(&mut base, || reading.is_finished());
            assert!(reading.join().unwrap() == whole);
        }
    });
}

/// Hands bytes through unchanged, and looks at no more than it is told to.
struct Plain(UnixStream);

impl Transport for Plain {
    fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn poll_read(&mut self, input: &mut Buffer, max: usize) -> io::Result<usize> {
        input.read_from(&self.0, max)
    }

    fn poll_write(&mut self, output: &mut Buffer, max: usize) -> io::Result<usize> {
        let piece: Vec<u8> = output.peek(max).flatten().copied().collect();
        assert_eq!(piece.len(), max.min(output.len()), "all that was offered is there");
        let n = self.0.write(&piece)?;
        output.drain(n);
        Ok(n)
    }

    fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }
}

#[test]
fn a_transport_gets_memory_block_by_block() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        for cut in [false, true] {
            let mut base = bed.base();
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            theirs.set_nonblocking(true).unwrap();
            let stream = BufferEvent::with_transport(&base, Plain(ours)).unwrap();
            let why = Rc::new(RefCell::new(Vec::new()));
            stream.set_callbacks(Why(why.clone()));
            let bytes = text(500_000);
            let file = nameless_file(&bytes);
            let knife = file.try_clone().unwrap();
            stream.write("head ").unwrap();
            stream.output().add_file(file, 0, None).unwrap();
            stream.write(" tail").unwrap();
            let mut whole = [b"head ", &bytes[..], b" tail"].concat();
            if cut {
                knife.set_len(300_000).unwrap();
                whole.truncate(300_005);
            }
            let (peer, len) = (Peer::Unix(theirs), if cut { usize::MAX } else { whole.len() });
            let (got, ended) = receive(bed, &mut base, &peer, len);
            assert!(got == whole && ended == cut, "{} bytes", got.len());
            bed.settle(&mut base);
            assert_eq!(why.take(), vec!["writing error true"; usize::from(cut)]);
        }
    });
}
