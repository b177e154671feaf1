//! Every call that a stream or listener makes fails once, or moves less than asked; and what a process may run out of.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use event_core::testing::{Call, Faults, Sim};
use event_core::{
    Accepted, Address, Buffer, BufferEvent, Callbacks, Config, Direction, EventBase, Listener, LoopEnd,
    LoopFlags, StreamEvent, What,
};
use nix::sys::signal::{SigHandler, Signal, signal};
use tests::each_backend;
use tests::streams::{Block, Canary, Recorder, Seen, socket_path, words};

const MS: Duration = Duration::from_millis(1);

/// What a run of the scenario came to.
struct Outcome {
    got: Vec<u8>,
    /// How often the program was told of a failure: an `Err`, an error event, the error callback of the listener.
    told: usize,
    leaked: Vec<i32>,
    alive: usize,
    /// Which calls of `Call::Change` told the kernel of a new fd. Others, for one that it knows, do not fail.
    adds: Vec<u64>,
    /// Ended by itself, without the help of the scenario's last clock.
    ended: bool,
}

/// Where failures are noted.
#[derive(Clone, Default)]
struct Told(Rc<Cell<usize>>);

impl Told {
    fn note<T, E>(&self, result: Result<T, E>) -> Option<T> {
        if result.is_err() {
            self.0.set(self.0.get() + 1);
        }
        result.ok()
    }
}

/// Sends everything back; a failure is noted and frees.
struct Server {
    told: Told,
    _held: Canary,
}
impl Callbacks for Server {
    fn on_read(&mut self, bev: &BufferEvent) {
        let data = bev.read_buffer();
        self.told.note(bev.write(data));
    }
    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        if event.intersects(StreamEvent::ERROR | StreamEvent::TIMEOUT) {
            self.told.note(Err::<(), ()>(()));
            bev.free();
        } else if event.contains(StreamEvent::EOF) {
            bev.close_after_flush();
        }
    }
}

/// Passes what comes on into a pair; a failure is noted and ends both.
struct Relay {
    told: Told,
    onward: BufferEvent,
    _held: Canary,
}
impl Callbacks for Relay {
    fn on_read(&mut self, bev: &BufferEvent) {
        let data = bev.read_buffer();
        self.told.note(self.onward.write(data));
    }
    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        if event.contains(StreamEvent::CONNECTED) {
            return;
        }
        if event.intersects(StreamEvent::ERROR | StreamEvent::TIMEOUT) {
            self.told.note(Err::<(), ()>(()));
        }
        self.onward.close_after_flush();
        bev.free();
    }
}

const MESSAGE: &[u8] = &[b'm'; 2000];

fn message() -> Vec<u8> {
    (0..3 * MESSAGE.len()).map(|n| (n % 251) as u8).collect()
}

/// Client, listener, echo and a pair behind it, all in one loop of a simulated world.
fn scenario(sim: &Sim, faults: &Faults, unix: bool) -> Outcome {
    let told = Told::default();
    let canary = Canary::new();
    let got = Rc::new(RefCell::new(Vec::new()));
    let mut ended = false;
    let adds = Rc::new(RefCell::new(Vec::new()));
    if let Some(mut base) = told.note(sim.event_base_with(faults)) {
        let next = adds.clone();
        let counter = faults.clone();
        let adding = Rc::new(move || next.borrow_mut().push(counter.count(Call::Change) + 1));
        ended = run(&mut base, unix, adding, &told, &canary, &got);
    }
    Outcome {
        got: got.take(),
        told: told.0.get(),
        leaked: sim.open_fds(),
        alive: canary.alive(),
        adds: adds.take(),
        ended,
    }
}

/// Says which fault it was if the run under it panics.
struct Under<'a>(&'a str);
impl Drop for Under<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("under this fault: {}", self.0);
        }
    }
}

fn run(
    base: &mut EventBase,
    unix: bool,
    adding: Rc<dyn Fn()>,
    told: &Told,
    canary: &Canary,
    got: &Rc<RefCell<Vec<u8>>>,
) -> bool {
    let (server_told, held, adds) = (told.clone(), canary.clone(), adding.clone());
    let accept = move |listener: &Listener, accepted: Accepted| {
        let stream = accepted.into_stream();
        stream.set_timeouts(Some(10_000 * MS), Some(10_000 * MS));
        stream.set_callbacks(Server { told: server_told.clone(), _held: held.clone() });
        adds();
        server_told.note(stream.enable(Direction::READ));
        listener.free();
    };
    adding();
    let listener = if unix {
        Listener::bind(base, "unix:/simulated/socket", accept)
    } else {
        Listener::bind(base, "127.0.0.1:0", accept)
    };
    let Some(listener) = told.note(listener) else { return true };
    let errors = told.clone();
    listener.set_error_cb(move |_, _| {
        errors.note(Err::<(), ()>(()));
    });
    let Some(address) = told.note(listener.local_address()) else { return true };
    let (one, other) = BufferEvent::pair(base).unwrap();
    let sink = got.clone();
    other.set_read_cb(move |bev| sink.borrow_mut().extend(bev.read_buffer().to_vec()));
    other.enable(Direction::READ).unwrap();
    adding();
    if let Some(client) = told.note(BufferEvent::connect(base, &address)) {
        client.set_timeouts(Some(20_000 * MS), Some(20_000 * MS));
        client.set_callbacks(Relay { told: told.clone(), onward: one.clone(), _held: canary.clone() });
        told.note(client.enable(Direction::READ));
        for piece in message().chunks(MESSAGE.len()) {
            let mut buffer = Buffer::new();
            buffer.add_reference(event_core::Bytes::copy_from_slice(piece));
            told.note(client.write(buffer));
        }
        client.shutdown_write();
    } else {
        one.free();
    }
    let handle = base.handle();
    let gone = listener.clone();
    // A listener to which nobody came.
    base.once(-1, What::empty(), Some(60_000 * MS), move |_| gone.free()).unwrap();
    base.once(-1, What::empty(), Some(3_600_000 * MS), move |_| handle.loopexit(None).unwrap()).unwrap();
    for _ in 0..100 {
        match told.note(base.dispatch()) {
            // The two clocks are over: the rest had an hour to end.
            Some(LoopEnd::Exit) => return base.run(LoopFlags::NONBLOCK).unwrap() == LoopEnd::Empty,
            Some(end) => panic!("{end:?} before the clock"),
            None => {}
        }
    }
    panic!("the loop fails for ever");
}

/// Runs the scenario and says what must be true of it under a fault; nobody may notice a harmless one.
fn judge(sim: &Sim, faults: &Faults, unix: bool, harmless: bool, what: &str) -> Outcome {
    let _under = Under(what);
    let outcome = scenario(sim, faults, unix);
    let all = message();
    assert!(all.starts_with(&outcome.got), "{what}: out of order after {} bytes", outcome.got.len());
    assert!(outcome.got.len() == all.len() || outcome.told > 0, "{what}: lost in silence");
    assert!(outcome.leaked.is_empty(), "{what}: fds {:?} leaked", outcome.leaked);
    assert_eq!(outcome.alive, 0, "{what}: callbacks leaked");
    assert!(outcome.ended, "{what}: something kept the loop running");
    if harmless {
        assert_eq!((outcome.got.len(), outcome.told), (all.len(), 0), "{what}: not noticed otherwise");
    }
    outcome
}

#[test]
fn whatever_call_fails_the_bytes_arrive_or_the_program_is_told() {
    for unix in [false, true].into_iter().take(tests::few_under_miri(2, 1)) {
        let clean = Faults::new();
        let adds = judge(&Sim::new(1), &clean, unix, true, "no fault").adds;
        assert_eq!(adds.len(), 3);
        for call in Call::ALL.into_iter().filter(|call| call.is_fallible()) {
            let errnos: &[i32] = match call {
                Call::Recv | Call::Send | Call::Sendv => {
                    &[libc::EAGAIN, libc::EIO, libc::ECONNRESET, libc::ENOBUFS]
                }
                Call::Accept => &[libc::EAGAIN, libc::ECONNABORTED, libc::EMFILE, libc::ENOMEM],
                Call::Connect => &[libc::ECONNREFUSED, libc::EMFILE],
                Call::Change => &[libc::ENOMEM, libc::ENOSPC, libc::EPERM],
                _ => &[libc::EIO],
            };
            let times: Vec<u64> =
                if call == Call::Change { adds.clone() } else { (1..=clean.count(call)).collect() };
            for &errno in &errnos[..tests::few_under_miri(errnos.len(), 1)] {
                // A refusal, or a client that has gone, is nobody's loss.
                let harmless = matches!(errno, libc::EAGAIN | libc::ECONNABORTED);
                for &nth in times.iter().step_by(tests::few_under_miri(1, 50)) {
                    let faults = Faults::new();
                    faults.fail(call, nth, errno);
                    let what = format!("{call:?} {nth} fails with {errno}");
                    judge(&Sim::new(1), &faults, unix, harmless, &what);
                }
                // No kernel refuses for ever what it reports, forgets fds or never waits.
                if !harmless && !matches!(call, Call::Change | Call::Wait) {
                    let faults = Faults::new();
                    faults.fail_from(call, 1 + clean.count(call) / 2, errno);
                    let what = format!("{call:?} fails with {errno} from half-way on");
                    judge(&Sim::new(1), &faults, unix, false, &what);
                }
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of turns each")]
fn whatever_call_moves_less_nobody_notices() {
    let clean = Faults::new();
    scenario(&Sim::new(1), &clean, false);
    for call in Call::ALL.into_iter().filter(|call| call.moves_bytes()) {
        for nth in 1..=clean.count(call) {
            let lengths = [1, 2, 100, MESSAGE.len() - 1, MESSAGE.len(), MESSAGE.len() + 1];
            for bytes in lengths {
                let faults = Faults::new();
                faults.cut(call, nth, bytes);
                judge(&Sim::new(1), &faults, false, true, &format!("{call:?} {nth} moves {bytes}"));
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of turns each")]
fn luck_does_not_matter() {
    for seed in 1..=50 {
        let sim = Sim::new(seed);
        sim.set_cuts(true);
        sim.set_send_buffer(1 + (seed as usize * 37) % 3000);
        sim.set_latency(MS * (seed as u32 % 5));
        judge(&sim, &Faults::new(), seed % 2 == 0, true, &format!("seed {seed}"));
    }
}

#[test]
fn a_reset_in_the_middle_ends_both_sides_and_releases_what_waited() {
    each_backend(|bed| {
        let mut base = bed.base();
        let (stream, peer) = bed.tcp_stream(&base);
        let seen = Recorder::on(&stream);
        let released = Rc::new(Cell::new(0));
        let count = released.clone();
        let _end = tests::streams::on_release(move |_| count.set(count.get() + 1));
        for name in 0..8 {
            let mut buffer = Buffer::new();
            buffer.add_reference(Block::bytes(name, b'x', 1 << 20));
            stream.write(buffer).unwrap();
        }
        bed.settle(&mut base);
        assert!(released.get() < 8);
        peer.reset();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert!(stream.is_freed());
        assert_eq!(released.get(), 8);
        let seen = seen.take();
        assert!(seen.len() == 1 && seen[0].ends_with("error"), "{seen:?}");
    });
}

// Pipes and terminals.

#[test]
#[cfg_attr(miri, ignore = "real sockets")]
fn a_pipe_is_a_stream_each_way() {
    each_backend(|bed| {
        if bed.sim().is_some() {
            return;
        }
        let mut base = bed.base();
        let (reader, writer) = std::io::pipe().unwrap();
        let (from, to) = (
            BufferEvent::new(&base, OwnedFd::from(reader)).unwrap(),
            BufferEvent::new(&base, OwnedFd::from(writer)).unwrap(),
        );
        let seen = Seen::new();
        let (log, total) = (seen.clone(), Rc::new(Cell::new(0)));
        let sum = total.clone();
        from.set_read_cb(move |bev| sum.set(sum.get() + bev.read_buffer().len()));
        from.set_event_cb(move |bev, event| {
            log.push(words(event));
            bev.free();
        });
        from.enable(Direction::READ).unwrap();
        // More than a pipe holds: it blocks and goes on.
        to.write(vec![b'x'; 1 << 20]).unwrap();
        to.close_after_flush();
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        assert_eq!((total.get(), seen.take()), (1 << 20, vec!["reading eof".to_owned()]));
    });
}

#[test]
fn a_simulated_pipe_is_a_stream_each_way() {
    let sim = Sim::new(1);
    let mut base = sim.event_base().unwrap();
    let (reader, writer) = sim.pipe();
    let from = BufferEvent::from_borrowed_fd(&base, reader).unwrap();
    let to = BufferEvent::from_borrowed_fd(&base, writer).unwrap();
    let seen = Recorder::on(&from);
    to.write("through").unwrap();
    to.close_after_flush();
    base.run(LoopFlags::ONCE).unwrap();
    base.run(LoopFlags::NONBLOCK).unwrap();
    assert_eq!(seen.take(), ["read through"]);
    assert!(to.is_freed());
    from.free();
    assert_eq!(sim.open_fds(), [reader, writer], "borrowed fds stay the caller's");
}

// What belongs to the whole process: children of this test.

/// The command that runs one test of this file in a process of its own.
fn child(name: &str, shell: &str) -> Command {
    let mut command = Command::new("sh");
    let exe = std::env::current_exe().unwrap();
    command.args(["-c", &format!("{shell} exec \"$0\" \"$@\"")]).arg(exe);
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env("STREAM_CHILD", name);
    command
}

fn is_child(name: &str) -> bool {
    std::env::var("STREAM_CHILD").is_ok_and(|child| child == name)
}

fn real_base(method: &str) -> EventBase {
    let config = EventBase::supported_methods()
        .filter(|other| *other != method)
        .fold(Config::new().ignore_env(), |config, other| config.avoid_method(other));
    EventBase::with_config(config).unwrap()
}

#[test]
fn the_child_that_runs_out_of_descriptors() {
    if !is_child("the_child_that_runs_out_of_descriptors") {
        return;
    }
    let mut base = real_base(&std::env::var("METHOD").unwrap());
    let streams = Rc::new(RefCell::new(Vec::new()));
    let (kept, accepted, errors) = (streams.clone(), Rc::new(Cell::new(0)), Seen::new());
    let count = accepted.clone();
    let listener = Listener::bind(&base, "127.0.0.1:0", move |_, accepted| {
        count.set(count.get() + 1);
        kept.borrow_mut().push(accepted);
    })
    .unwrap();
    let log = errors.clone();
    listener.set_error_cb(move |_, error| log.push(error.raw_os_error().unwrap().to_string()));
    let Address::Ip(address) = listener.local_address().unwrap() else { panic!("no port") };
    println!("listening {address}");
    let start = Instant::now();
    while errors.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20));
        base.run(LoopFlags::ONCE).unwrap();
    }
    // A while without descriptors: few turns, one word.
    let turns = Rc::new(Cell::new(0));
    let (n, handle) = (turns.clone(), base.handle());
    base.set_wait_hook(move || n.set(n.get() + 1), || {});
    base.once(-1, What::empty(), Some(450 * MS), move |_| handle.loopexit(None).unwrap()).unwrap();
    base.dispatch().unwrap();
    assert_eq!(errors.take(), [libc::EMFILE.to_string()]);
    assert!(turns.get() <= 20, "{} turns", turns.get());
    let full = accepted.get();
    assert!(full < 60);
    // Descriptors come back: it goes on by itself.
    while accepted.get() < 60 {
        assert!(start.elapsed() < Duration::from_secs(20), "{} accepted", accepted.get());
        streams.borrow_mut().clear();
        base.run(LoopFlags::ONCE).unwrap();
    }
    println!("done");
}

#[test]
#[cfg_attr(miri, ignore = "processes of their own")]
fn a_process_without_descriptors_rests_and_goes_on() {
    for method in EventBase::supported_methods() {
        let mut child = child("the_child_that_runs_out_of_descriptors", "ulimit -n 32;")
            .env("METHOD", method)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address: SocketAddr = loop {
            let line = lines.next().unwrap().unwrap();
            if let Some((_, address)) = line.split_once("listening ") {
                break address.trim().parse().unwrap();
            }
        };
        let clients: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(lines.any(|line| line.unwrap().contains("done")), "{method}");
        assert!(child.wait().unwrap().success(), "{method}");
        drop(clients);
    }
}

#[test]
fn the_child_that_does_not_ignore_sigpipe() {
    if !is_child("the_child_that_does_not_ignore_sigpipe") {
        return;
    }
    // SAFETY: the default action is no handler at all, and this process has one thread that matters.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }.unwrap();
    for method in EventBase::supported_methods() {
        let mut base = real_base(method);
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (tcp, _) = listener.accept().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        drop((theirs, client, reader));
        for fd in [OwnedFd::from(ours), OwnedFd::from(tcp), OwnedFd::from(writer)] {
            for pieces in [1, 3] {
                let stream = BufferEvent::new(&base, fd.try_clone().unwrap()).unwrap();
                let seen = Seen::new();
                stream.set_callbacks(Recorder::new(&seen));
                // A TCP peer has to answer the first with a reset before the second can fail.
                for _ in 0..100 {
                    for _ in 0..pieces {
                        let mut buffer = Buffer::new();
                        buffer.add_reference(event_core::Bytes::from(vec![b'x'; 2000]));
                        let _ = stream.write(buffer);
                    }
                    base.run(LoopFlags::NONBLOCK).unwrap();
                    base.run(LoopFlags::NONBLOCK).unwrap();
                    if stream.is_freed() {
                        break;
                    }
                    std::thread::yield_now();
                }
                let seen = seen.take();
                assert!(stream.is_freed() && seen.iter().any(|word| word == "writing error"), "{seen:?}");
            }
        }
    }
    println!("alive");
}

#[test]
#[cfg_attr(miri, ignore = "processes of their own")]
fn a_broken_pipe_kills_no_process_that_does_not_ignore_the_signal() {
    let output = child("the_child_that_does_not_ignore_sigpipe", "").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("alive"), "{:?}\n{text}", output.status);
}

#[test]
#[cfg_attr(miri, ignore = "real sockets")]
fn a_peer_that_sends_slowly_and_one_that_reads_slowly_meet() {
    // A real thread at the other end of a real socket: nothing is in step.
    for method in EventBase::supported_methods() {
        let mut base = real_base(method);
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let stream = BufferEvent::new(&base, OwnedFd::from(ours)).unwrap();
        stream.set_read_cb(|bev| {
            let data = bev.read_buffer();
            bev.write(data).unwrap();
        });
        stream.set_watermark(Direction::READ, 0, Some(10_000));
        stream.set_event_cb(|bev, _| bev.close_after_flush());
        stream.enable(Direction::READ).unwrap();
        let thread = std::thread::spawn(move || {
            let mut got = Vec::new();
            let mut block = [0; 700];
            for n in 0..300_usize {
                theirs.write_all(&vec![n as u8; n * 7 % 1000]).unwrap();
                if n % 3 == 2 {
                    let read = theirs.read(&mut block[..1 + n]).unwrap();
                    got.extend_from_slice(&block[..read]);
                }
            }
            theirs.shutdown(std::net::Shutdown::Write).unwrap();
            theirs.read_to_end(&mut got).unwrap();
            got
        });
        assert_eq!(base.dispatch().unwrap(), LoopEnd::Empty);
        let expected: Vec<u8> = (0..300_usize).flat_map(|n| vec![n as u8; n * 7 % 1000]).collect();
        assert!(thread.join().unwrap() == expected);
    }
}

#[test]
fn socket_paths_are_told_apart() {
    assert_ne!(socket_path(), socket_path());
}
