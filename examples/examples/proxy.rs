//! A TCP proxy: each client is joined to a connection of its own to the server behind.
//!
//! Try: cargo run --example echo                   (the server behind)
//! and in another terminal: cargo run --example proxy    (or: cargo run --example proxy 127.0.0.1:0 127.0.0.1:7777)
//! and in a third: nc (or: cargo run --example becat --) 127.0.0.1 7778

use event_core::{Address, BufferEvent, Error, EventBase, Listener};
use examples::{address_argument, cannot_listen, nth_address_argument, reason};

fn main() -> Result<(), Error> {
    let address = address_argument("127.0.0.1:7778");
    let upstream = Address::Ip(nth_address_argument(2, "127.0.0.1:7777"));
    let mut base = EventBase::new()?;

    let listener = Listener::bind(&base, address, move |_, accepted| {
        let name = accepted.address().to_string();
        let client = accepted.into_stream();
        // The client's bytes wait until the connection is made. A refusal is told like any other failure.
        let joined = BufferEvent::connect(client.handle(), &upstream).and_then(|server| {
            client.splice(&server, move |end| match end.error {
                Some(error) => eprintln!("{name} failed: {}", reason(&error)),
                None => println!("{name} is done: {} bytes there, {} back", end.there, end.back),
            })
        });
        if let Err(error) = joined {
            eprintln!("cannot connect to the server behind: {}", reason(&error));
            client.free();
        }
    })
    .unwrap_or_else(|error| cannot_listen(address, error));

    println!("listening on {} with {}", listener.local_address()?, base.method());
    base.dispatch()?;
    Ok(())
}
