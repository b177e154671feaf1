//! libevent's `le-proxy` sample: passes what comes on one address on to another, and back.
//!
//! Try: cargo run --example echo                                     (the server behind)
//! and in another terminal: cargo run --example le_proxy 7778 127.0.0.1:7777
//! and in a third: nc (or: cargo run --example becat --) 127.0.0.1 7778
//!
//! As there, a port alone is one of 127.0.0.1, a side that is slow costs 512 KiB, and when one side ends the other gets
//! what is on its way and is closed, too: `proxy` passes a half-close on instead. Without TLS, `-s` and `-W` are not known.

use std::net::{Ipv4Addr, SocketAddr};

use event_core::{Address, BufferEvent, Callbacks, Direction, Error, EventBase, Listener, StreamEvent};
use examples::{cannot_listen, reason};

/// More than this does not wait for a side that reads slowly; the other one is read again when half of it has left.
const MAX_OUTPUT: usize = 512 << 10;

/// One of the two streams, which knows the other.
struct Side {
    partner: BufferEvent,
}

impl Callbacks for Side {
    fn on_read(&mut self, bev: &BufferEvent) {
        // Stale if the partner has gone: then the bytes go nowhere.
        let _ = self.partner.write(bev.read_buffer());
        if !self.partner.has_room() {
            bev.disable(Direction::READ);
        }
    }

    fn on_room(&mut self, _: &BufferEvent) {
        let _ = self.partner.enable(Direction::READ);
    }

    fn on_event(&mut self, bev: &BufferEvent, event: StreamEvent) {
        if event.contains(StreamEvent::CONNECTED) {
            return;
        }
        if let Some(error) = bev.error().filter(|_| event.contains(StreamEvent::ERROR)) {
            eprintln!("connection error: {}", reason(&error));
        }
        self.on_read(bev);
        // Reads no more, and goes when all is sent.
        self.partner.close_after_flush();
        bev.free();
    }
}

fn join(one: &BufferEvent, other: &BufferEvent) -> Result<(), Error> {
    for (bev, partner) in [(one, other), (other, one)] {
        bev.set_watermark(Direction::WRITE, 0, Some(MAX_OUTPUT));
        bev.set_callbacks(Side { partner: partner.clone() });
        bev.enable(Direction::READ | Direction::WRITE)?;
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [listen_on, connect_to] = &args[..] else { syntax() };
    let port = || listen_on.parse().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let listen_on: SocketAddr = listen_on.parse().ok().or_else(port).unwrap_or_else(|| syntax());
    let connect_to = Address::Ip(connect_to.parse().unwrap_or_else(|_| syntax()));

    let mut base = EventBase::new()?;
    let listener = Listener::bind(&base, listen_on, move |_, accepted| {
        let client = accepted.into_stream();
        let joined = BufferEvent::connect(client.handle(), &connect_to).and_then(|server| {
            let joined = join(&client, &server);
            joined.inspect_err(|_| server.free())
        });
        if let Err(error) = joined {
            eprintln!("cannot connect: {}", reason(&error));
            client.free();
        }
    })
    .unwrap_or_else(|error| cannot_listen(listen_on, error));
    println!("listening on {} with {}", listener.local_address()?, base.method());
    base.dispatch()?;
    Ok(())
}

fn syntax() -> ! {
    println!("Syntax:\n   le_proxy <listen-on-addr> <connect-to-addr>");
    println!("Example:\n   le_proxy 127.0.0.1:8888 1.2.3.4:80");
    std::process::exit(1)
}
