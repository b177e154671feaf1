//! A TCP server that greets every client and hangs up: libevent's `hello-world` sample. Ctrl-C ends it two seconds later.
//!
//! Try: cargo run --example hello_world            (or: cargo run --example hello_world 127.0.0.1:0)
//! and in another terminal: nc (or: cargo run --example becat --) 127.0.0.1 9995

use std::time::Duration;

use event_core::{BufferEvent, Callbacks, Error, EventBase, Listener, Signal, StreamEvent};
use examples::{argument, cannot_listen, reason};

const GREETING: &str = "Hello, World!\n";

/// What becomes of one client: its output runs empty, or it is gone before.
struct Greeted;

impl Callbacks for Greeted {
    /// Never called: reading is not enabled.
    fn on_read(&mut self, _: &BufferEvent) {}

    fn on_write(&mut self, bev: &BufferEvent) {
        println!("the greeting has left");
        bev.free();
    }

    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        match bev.error() {
            Some(error) => println!("the client is lost: {}", reason(&error)),
            None => println!("the client has gone: {event:?}"),
        }
        bev.free();
    }
}

fn main() -> Result<(), Error> {
    let address = argument("0.0.0.0:9995");
    let mut base = EventBase::new()?;

    let listener = Listener::bind(&base, &address, |_, accepted| {
        let bev = accepted.into_stream();
        bev.set_callbacks(Greeted);
        if let Err(error) = bev.write(GREETING) {
            println!("cannot greet a client: {}", reason(&error));
            bev.free();
        }
    })
    .unwrap_or_else(|error| cannot_listen(&address, error));

    let handle = base.handle();
    let interrupt = Signal::new(&base, Signal::INT, move |_| {
        println!("interrupted: the end is in two seconds");
        let _ = handle.loopexit(Some(Duration::from_secs(2)));
    })?;
    interrupt.add()?;

    println!("listening on {} with {}", listener.local_address()?, base.method());
    base.dispatch()?;
    println!("done");
    Ok(())
}
