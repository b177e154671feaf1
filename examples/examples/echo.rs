//! A TCP echo server with buffered streams: what comes in goes out again.
//!
//! Try: cargo run --example echo                   (or: cargo run --example echo 127.0.0.1:0)
//! and in another terminal: nc (or: cargo run --example becat --) 127.0.0.1 7777, or cargo run --example client

use event_core::{BufferEvent, Callbacks, Direction, Error, EventBase, Listener, StreamEvent};
use examples::{argument, cannot_listen, reason};

/// A client that sends and does not read what comes back is not read from either while so much waits for it.
const MOST_UNSENT: usize = 256 * 1024;

/// One client. The stream owns this object and drops it when it is freed.
struct Session {
    name: String,
    echoed: usize,
}

impl Callbacks for Session {
    fn on_read(&mut self, bev: &BufferEvent) {
        let data = bev.read_buffer();
        self.echoed += data.len();
        // Moves the bytes, and cannot fail but by more output than the stream may hold: on_event tells of that.
        let _ = bev.write(data);
        if bev.pending_output() > MOST_UNSENT {
            bev.disable(Direction::READ);
        }
    }

    fn on_write(&mut self, bev: &BufferEvent) {
        let _ = bev.enable(Direction::READ);
    }

    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        if event.contains(StreamEvent::EOF) {
            println!("{} is done: {} bytes", self.name, self.echoed);
            bev.close_after_flush();
        } else {
            let why = bev.error().map_or_else(|| format!("{event:?}"), |error| reason(&error));
            eprintln!("{} failed: {why}", self.name);
            bev.free();
        }
    }
}

fn main() -> Result<(), Error> {
    let address = argument("127.0.0.1:7777");
    let mut base = EventBase::new()?;

    let listener = Listener::bind(&base, &address, |_, accepted| {
        let name = accepted.address().to_string();
        let stream = accepted.into_stream();
        stream.set_callbacks(Session { name, echoed: 0 });
        if let Err(error) = stream.enable(Direction::READ) {
            eprintln!("cannot read from a client: {}", reason(&error));
            stream.free();
        }
        // The loop owns the stream from here on; our handle may go.
    })
    .unwrap_or_else(|error| cannot_listen(&address, error));

    println!("listening on {} with {}", listener.local_address()?, base.method());
    base.dispatch()?;
    Ok(())
}
