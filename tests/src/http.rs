//! A server on a backend, and clients of every kind of stream: what the HTTP tests stand on.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use event_core::{Address, Buffer, BufferEvent, Bytes, Callbacks, Direction, EventBase, Scoped, StreamEvent};
use event_http::{Request, Server};

pub use crate::answers::{Answer, answers};
use crate::{Bed, Peer, each_backend};

/// The shortest request there is.
pub const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A page as long as the example's, so that exact bytes can be written down.
pub const PAGE: &str = "Thanks for the request!";

/// How a client reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Through a listener.
    Listener,
    /// Over a pair in memory, handed to `Server::serve`.
    Pair,
}

/// A loop with a server on it.
pub struct Web<'a> {
    /// The backend.
    pub bed: &'a Bed,
    /// The loop.
    pub base: EventBase,
    /// The server, without a handler at first.
    pub server: Server,
    address: Address,
    wire: Wire,
}

/// Runs a test on every backend, over sockets and over a pair.
pub fn each_web(test: impl Fn(&mut Web<'_>)) {
    each_backend(|bed| {
        for wire in [Wire::Listener, Wire::Pair] {
            test(&mut Web::new(bed, wire));
        }
    });
}

/// Runs a test on every backend, over sockets only.
pub fn each_socket_web(test: impl Fn(&mut Web<'_>)) {
    each_backend(|bed| test(&mut Web::new(bed, Wire::Listener)));
}

/// Runs a test on the simulation, over sockets only.
pub fn each_simulated_web(test: impl Fn(&mut Web<'_>)) {
    crate::each_seed(|bed| test(&mut Web::new(bed, Wire::Listener)));
}

impl<'a> Web<'a> {
    /// Makes a loop and a server that listens.
    pub fn new(bed: &'a Bed, wire: Wire) -> Web<'a> {
        let base = bed.base();
        let server = Server::new(&base).unwrap();
        let address = server.bind("127.0.0.1:0").unwrap().local_address().unwrap();
        Web { bed, base, server, address, wire }
    }

    /// As `new`, with a handler that answers every request with [`PAGE`].
    pub fn with_page(self) -> Web<'a> {
        self.page();
        self
    }

    /// Has every request answered with [`PAGE`].
    pub fn page(&self) {
        self.server.set_gencb(|req: Request| req.send_reply(200, "Client", PAGE));
    }

    /// Has every request kept in the list that is returned.
    pub fn keep(&self) -> Rc<RefCell<Vec<Request>>> {
        let kept = Rc::new(RefCell::new(Vec::new()));
        let sink = kept.clone();
        self.server.set_gencb(move |req: Request| sink.borrow_mut().push(req));
        kept
    }

    /// A client that has sent `N` requests at once, and the requests, which nobody has answered.
    pub fn pipelined<const N: usize>(&mut self) -> (Client, [Request; N]) {
        let kept = self.keep();
        let client = self.client();
        client.write(&GET.repeat(N));
        self.bed.run_until(&mut self.base, || kept.borrow().len() == N);
        let requests = kept.take().try_into();
        (client, requests.unwrap_or_else(|_| panic!("there are {N}")))
    }

    /// How its clients reach it.
    pub fn wire(&self) -> Wire {
        self.wire
    }

    /// Where the server listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// A new client.
    pub fn client(&mut self) -> Client {
        let server = self.server.clone();
        self.client_of(&server)
    }

    /// A new client of another address that the server listens on.
    pub fn client_at(&mut self, address: &Address) -> Client {
        let peer = self.bed.connect(address);
        self.bed.settle(&mut self.base);
        Client { end: End::Peer(peer), got: Rc::default(), ended: Rc::default() }
    }

    /// A new client of another server on the same loop, if the wire is a pair; else of the one that listens.
    pub fn client_of(&mut self, server: &Server) -> Client {
        let (got, ended) = (Rc::new(RefCell::default()), Rc::new(Cell::new(false)));
        let end = match self.wire {
            Wire::Listener => {
                let peer = self.bed.connect(&self.address);
                // Until it is accepted or refused.
                self.bed.settle(&mut self.base);
                End::Peer(peer)
            }
            Wire::Pair => {
                let (ours, theirs) = BufferEvent::pair(&self.base).unwrap();
                server.serve(ours);
                theirs.set_callbacks(Far { got: got.clone(), ended: ended.clone() });
                theirs.enable(Direction::READ).unwrap();
                End::Pair(theirs.scoped())
            }
        };
        Client { end, got, ended }
    }

    /// Runs the loop until the client has got as much as `done` wants.
    #[track_caller]
    pub fn until(&mut self, client: &Client, mut done: impl FnMut(&[u8], bool) -> bool) {
        self.bed.run_until(&mut self.base, || {
            client.read();
            done(&client.got.borrow(), client.ended.get())
        });
    }

    /// Sends a request and runs the loop until `count` whole answers are there; returns them without their Date.
    #[track_caller]
    pub fn ask(&mut self, client: &Client, bytes: &[u8], count: usize) -> String {
        client.write(bytes);
        self.until(client, |got, ended| {
            ended || answers(got, &[]).is_some_and(|(all, _)| all.len() >= count)
        });
        client.text()
    }

    /// Sends a request and runs the loop until the server has closed; returns what came without its Date.
    #[track_caller]
    pub fn ask_to_end(&mut self, client: &Client, bytes: &[u8]) -> String {
        client.write(bytes);
        self.until(client, |_, ended| ended);
        client.text()
    }

    /// Runs the loop while anything happens, and reads what came.
    pub fn settle(&mut self, client: &Client) -> String {
        for _ in 0..3 {
            self.bed.settle(&mut self.base);
            client.read();
        }
        client.text()
    }

    /// Runs the loop while anything happens.
    pub fn settle_all(&mut self) {
        for _ in 0..3 {
            self.bed.settle(&mut self.base);
        }
    }

    /// Lets time pass on the simulation, and reads what came.
    pub fn pass(&mut self, client: &Client, time: Duration) -> String {
        // What was sent before has arrived before.
        self.bed.settle(&mut self.base);
        self.bed.pass(&mut self.base, time);
        self.settle(client)
    }

    /// Runs the loop until there are as many connections.
    #[track_caller]
    pub fn until_connections(&mut self, count: usize) {
        let server = self.server.clone();
        self.bed.run_until(&mut self.base, || server.connection_count() == count);
    }
}

enum End {
    Pair(Scoped),
    Peer(Peer),
}

/// The client's end of a pair. It takes what comes at once, because a stream that has ended both ways is freed.
struct Far {
    got: Rc<RefCell<Vec<u8>>>,
    ended: Rc<Cell<bool>>,
}

impl Callbacks for Far {
    fn on_read(&mut self, stream: &BufferEvent) {
        self.got.borrow_mut().extend(stream.read_buffer().to_vec());
    }

    fn on_event(&mut self, stream: &BufferEvent, event: StreamEvent) {
        self.on_read(stream);
        if event.intersects(StreamEvent::EOF | StreamEvent::ERROR) {
            self.ended.set(true);
        }
    }
}

/// A client that has sent and got bytes.
pub struct Client {
    end: End,
    got: Rc<RefCell<Vec<u8>>>,
    ended: Rc<Cell<bool>>,
}

impl Client {
    /// Sends bytes, which must be taken.
    pub fn write(&self, bytes: &[u8]) {
        match &self.end {
            End::Pair(stream) => {
                let _ = stream.write(bytes);
            }
            End::Peer(peer) => {
                let _ = peer.write(bytes);
            }
        }
    }

    /// Sends a buffer: over a pair its blocks are handed over as they are.
    pub fn write_buffer(&self, buffer: Buffer) {
        match &self.end {
            End::Pair(stream) => {
                let _ = stream.write(buffer);
            }
            End::Peer(peer) => {
                let _ = peer.write(&buffer.to_vec());
            }
        }
    }

    /// Sends as much as is taken and says how much.
    pub fn write_some(&self, bytes: &[u8]) -> usize {
        match &self.end {
            End::Pair(stream) => stream.write(bytes).map_or(0, |()| bytes.len()),
            End::Peer(peer) => peer.write(bytes),
        }
    }

    /// Takes what is there into `got`.
    pub fn read(&self) {
        if let End::Peer(peer) = &self.end {
            let (bytes, ended) = peer.read();
            self.got.borrow_mut().extend(bytes);
            if ended {
                self.ended.set(true);
            }
        }
    }

    /// Everything that came so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.got.borrow().clone()
    }

    /// Everything that came so far as text, Date fields left out.
    pub fn text(&self) -> String {
        undated(&self.got.borrow())
    }

    /// Forgets what came so far.
    pub fn forget(&self) {
        self.got.borrow_mut().clear();
    }

    /// Whether the server has closed.
    pub fn is_ended(&self) -> bool {
        self.ended.get()
    }

    /// Says that it sends no more.
    pub fn finish(&self) {
        match &self.end {
            End::Pair(stream) => stream.shutdown_write(),
            End::Peer(peer) => peer.shutdown_write(),
        }
    }

    /// Leaves with a reset where the stream has one.
    pub fn reset(self) {
        match self.end {
            End::Pair(stream) => stream.free(),
            End::Peer(peer) => peer.reset(),
        }
    }

    /// Whether it is the end of a pair.
    pub fn is_pair(&self) -> bool {
        matches!(self.end, End::Pair(..))
    }
}

type OnDrop = Box<dyn FnOnce()>;

thread_local! {
    /// What the blocks of `block_that` do when they are dropped; they must be `Send`, and this need not be.
    static ON_DROP: RefCell<HashMap<usize, OnDrop>> = RefCell::default();
}

struct Block {
    bytes: Vec<u8>,
    number: usize,
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let on_drop = ON_DROP.with_borrow_mut(|all| all.remove(&self.number));
        if let Some(on_drop) = on_drop {
            on_drop();
        }
    }
}

/// A buffer of `len` bytes `x` in a block of the program's, with what is to happen when the last reference to it is
/// dropped on this thread.
pub fn block_that(len: usize, on_drop: impl FnOnce() + 'static) -> Buffer {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    ON_DROP.with_borrow_mut(|all| all.insert(number, Box::new(on_drop)));
    let mut buffer = Buffer::new();
    buffer.add_reference(Bytes::from_owner(Block { bytes: vec![b'x'; len], number }));
    buffer
}

/// Leaves out every Date field, after a look at its form.
#[track_caller]
pub fn undated(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    while let Some(at) = text.find("\r\nDate: ") {
        let line = &text[at + 2..];
        assert_eq!(line.find("\r\n"), Some(35), "a Date field has 29 characters: {line}");
        text.replace_range(at..at + 37, "");
    }
    text
}
