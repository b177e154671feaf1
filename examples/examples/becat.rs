//! libevent's `becat` sample: a netcat over buffered streams. What comes on standard input goes to the peer, what the
//! peer sends goes to standard output, and neither runs ahead of the other. Its TLS (`-S`) is not here.
//!
//! Try: cargo run --example becat -- -l 10024, and in another terminal: cargo run --example becat -- localhost 10024

use std::cell::{Cell, RefCell};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::exit;
use std::rc::Rc;
use std::time::Duration;

use event_core::{BufferEvent, Callbacks, Config, Connect, Direction, Features, StreamEvent};
use event_core::{Error, EventBase, Listener, ListenerOptions, LoopHandle};
use examples::reason;
use socket2::{SockRef, TcpKeepalive};

const USAGE: &str =
    "usage: becat [-p PORT] [-s ADDRESS] [-K SECONDS] [-t SECONDS] [-T SECONDS] [-b BYTES] [-v] [HOST] [PORT]
       becat -l [-k] [-s ADDRESS] [-K SECONDS] [-t SECONDS] [-T SECONDS] [-b BYTES] [-v] [[HOST] PORT]
  -l  listen for one connection    -k  and for the next when that has ended
  -s  the local address            -p  the local port (listening: that to listen on)
  -t  the longest time without anything to read, -T without getting anything sent
  -K  how long a connection is idle before the peer is probed
  -b  the most that is read at a time
  -v  say what happens, on standard error";

#[derive(Default)]
struct Options {
    listens: bool,
    keeps_listening: bool,
    verbose: bool,
    source: Option<String>,
    local_port: Option<u16>,
    keep_alive: Option<Duration>,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    max_read: Option<usize>,
    /// Host and port, as far as they are given.
    rest: Vec<String>,
}

fn usage() -> ! {
    eprintln!("{USAGE}");
    exit(1)
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| usage())
}

fn options() -> Options {
    let seconds = |text: String| Some(Duration::from_secs(number(&text)));
    let (mut options, mut args) = (Options::default(), std::env::args().skip(1));
    while let Some(arg) = args.next() {
        let Some(letters) = arg.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            options.rest.push(arg);
            continue;
        };
        for (at, letter) in letters.char_indices() {
            let rest = &letters[at + letter.len_utf8()..];
            let mut value =
                || if rest.is_empty() { args.next().unwrap_or_else(|| usage()) } else { rest.to_owned() };
            match letter {
                'l' => options.listens = true,
                'k' => options.keeps_listening = true,
                'v' => options.verbose = true,
                's' => options.source = Some(value()),
                'p' => options.local_port = Some(number(&value())),
                'K' => options.keep_alive = seconds(value()),
                't' => options.read_timeout = seconds(value()),
                'T' => options.write_timeout = seconds(value()),
                'b' => options.max_read = Some(number(&value())),
                _ => usage(),
            }
            if "spKtTb".contains(letter) {
                break; // what was left of the word was its value
            }
        }
    }
    options
}

/// What all callbacks know.
struct Cat {
    options: Options,
    input: BufferEvent,
    output: BufferEvent,
    listener: RefCell<Option<Listener>>,
    peer: RefCell<Option<BufferEvent>>,
    input_ended: Cell<bool>,
    failed: Cell<bool>,
}

impl Cat {
    fn say(&self, what: impl FnOnce() -> String) {
        if self.options.verbose {
            eprintln!("becat: {}", what());
        }
    }

    fn fail(&self, why: &str) {
        eprintln!("becat: {why}");
        self.failed.set(true);
    }

    /// There is a connection: from here on bytes move.
    fn begin(&self, bev: &BufferEvent) {
        if self.input_ended.get() {
            bev.shutdown_write();
        }
        let enabled = bev.enable(Direction::READ).and_then(|()| match self.input_ended.get() {
            true => Ok(()),
            false => self.input.enable(Direction::READ),
        });
        if let Err(error) = enabled {
            self.fail(&reason(&error));
            self.finish();
        }
    }

    /// The connection is over: the next, or the end. If it has ended well, what is left for the peer still goes out.
    fn end(&self, bev: &BufferEvent, well: bool) {
        self.input.disable(Direction::READ);
        if well {
            bev.close_after_flush()
        } else {
            bev.free()
        }
        self.peer.take();
        let listener = self.listener.borrow().clone();
        match listener {
            Some(listener) => listener.enable(),
            None => self.finish(),
        }
    }

    /// Nothing else keeps the loop running: it ends when standard output has it all.
    fn finish(&self) {
        let listener = self.listener.take();
        listener.iter().for_each(Listener::free);
        let peer = self.peer.take();
        peer.iter().for_each(BufferEvent::free);
        self.input.free();
        self.output.close_after_flush();
    }

    /// A stream of ours with a connection that is there or to come.
    fn adopt(self: &Rc<Self>, bev: &BufferEvent) -> Result<(), Error> {
        bev.set_timeouts(self.options.read_timeout, self.options.write_timeout);
        bev.set_max_single_read(self.options.max_read)?;
        bev.set_callbacks(Peer(self.clone()));
        self.peer.replace(Some(bev.clone()));
        Ok(())
    }
}

/// The connection.
struct Peer(Rc<Cat>);

impl Callbacks for Peer {
    fn on_read(&mut self, bev: &BufferEvent) {
        let _ = self.0.output.write(bev.read_buffer());
        if !self.0.output.has_room() {
            bev.disable(Direction::READ);
        }
    }

    fn on_room(&mut self, _: &BufferEvent) {
        let _ = self.0.input.enable(Direction::READ);
    }

    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        if event.contains(StreamEvent::CONNECTED) {
            let to = bev.peer_address().map_or_else(|error| reason(&error), |address| address.to_string());
            self.0.say(|| format!("connected to {to}"));
            return self.0.begin(bev);
        }
        match bev.error() {
            Some(error) => self.0.fail(&reason(&error)),
            None if event.contains(StreamEvent::TIMEOUT) => self.0.fail("timed out"),
            None => self.0.say(|| "the peer has ended".to_owned()),
        }
        self.0.end(bev, event.contains(StreamEvent::EOF));
    }
}

/// Standard input.
struct Input(Rc<Cat>);

impl Callbacks for Input {
    fn on_read(&mut self, bev: &BufferEvent) {
        let peer = self.0.peer.borrow().clone();
        let Some(peer) = peer else { return };
        let _ = peer.write(bev.read_buffer());
        if !peer.has_room() {
            bev.disable(Direction::READ);
        }
    }

    fn on_event(&mut self, bev: &BufferEvent, _: StreamEvent) {
        self.0.input_ended.set(true);
        bev.free();
        let peer = self.0.peer.borrow().clone();
        if let Some(peer) = peer {
            peer.shutdown_write(); // behind what is still to be sent
        }
    }
}

/// Standard output.
struct Output(Rc<Cat>);

impl Callbacks for Output {
    fn on_read(&mut self, _: &BufferEvent) {}

    fn on_room(&mut self, _: &BufferEvent) {
        let peer = self.0.peer.borrow().clone();
        if let Some(peer) = peer {
            let _ = peer.enable(Direction::READ);
        }
    }

    fn on_event(&mut self, bev: &BufferEvent, _: StreamEvent) {
        // Nobody reads any more.
        if let Some(error) = bev.error() {
            self.0.fail(&reason(&error));
        }
        bev.free();
        self.0.finish();
    }
}

fn listen(handle: &LoopHandle, cat: &Rc<Cat>, address: (String, u16)) -> Result<(), Error> {
    let shared = cat.clone();
    let options = ListenerOptions::new().keep_alive(cat.options.keep_alive);
    let listener = options.bind(handle, address, move |listener, accepted| {
        let from = accepted.address().to_string();
        let bev = accepted.into_stream();
        shared.say(|| format!("connection from {from}"));
        if shared.options.keeps_listening {
            listener.disable(); // until this one has ended
        } else {
            shared.listener.take();
            listener.free();
        }
        if let Err(error) = shared.adopt(&bev) {
            return shared.fail(&reason(&error));
        }
        shared.begin(&bev);
    })?;
    let address = listener.local_address()?;
    cat.say(|| format!("listening on {address}"));
    cat.listener.replace(Some(listener));
    Ok(())
}

fn connect(handle: &LoopHandle, cat: &Rc<Cat>, address: (String, u16)) -> Result<(), Error> {
    let mut connect = Connect::new(address);
    if let Some(idle) = cat.options.keep_alive {
        connect = connect.on_socket(move |socket| match socket.fd() {
            Some(fd) => SockRef::from(&fd).set_tcp_keepalive(&TcpKeepalive::new().with_time(idle)),
            None => Ok(()),
        });
    }
    let port = cat.options.local_port.unwrap_or(0);
    if cat.options.source.is_some() || port != 0 {
        let source = cat.options.source.as_deref().unwrap_or("0.0.0.0");
        let Ok(source) = source.parse::<IpAddr>() else {
            return Err(Error::Invalid("the local address is not a number"));
        };
        connect = connect.source((source, port));
    }
    cat.adopt(&connect.start(handle)?)
}

fn standard(handle: &LoopHandle, fd: io::Result<OwnedFd>) -> Result<BufferEvent, Error> {
    BufferEvent::new(handle, fd?)
}

fn run(options: Options) -> Result<bool, Error> {
    let port = match &options.rest[..] {
        [_, port] => number(port),
        [port] if options.listens => number(port),
        _ => options.local_port.filter(|_| options.listens).unwrap_or(10024),
    };
    let host = match &options.rest[..] {
        [host, _] => host.clone(),
        [host] if !options.listens => host.clone(),
        [] | [_] if options.listens => options.source.clone().unwrap_or("0.0.0.0".to_owned()),
        [] => "127.0.0.1".to_owned(),
        _ => usage(),
    };
    // Standard input may be a file, which epoll does not take.
    let any_fd = EventBase::with_config(Config::new().require_features(Features::ANY_FD));
    let mut base = any_fd.or_else(|_| EventBase::new())?;
    let cat = Rc::new(Cat {
        options,
        input: standard(&base, io::stdin().as_fd().try_clone_to_owned())?,
        output: standard(&base, io::stdout().as_fd().try_clone_to_owned())?,
        listener: RefCell::default(),
        peer: RefCell::default(),
        input_ended: Cell::new(false),
        failed: Cell::new(false),
    });
    cat.input.set_max_single_read(cat.options.max_read)?;
    cat.input.set_callbacks(Input(cat.clone()));
    cat.output.set_callbacks(Output(cat.clone()));
    if cat.options.listens {
        listen(&base, &cat, (host, port))?;
    } else {
        connect(&base, &cat, (host, port))?;
    }
    base.dispatch()?;
    Ok(!cat.failed.get())
}

fn main() {
    let ended = run(options());
    // Who started this program may have the same terminal.
    for fd in [io::stdin().as_fd(), io::stdout().as_fd()] {
        let _ = SockRef::from(&fd).set_nonblocking(false);
    }
    match ended {
        Ok(true) => {}
        Ok(false) => exit(1),
        Err(error) => {
            eprintln!("becat: {}", reason(&error));
            exit(1)
        }
    }
}
