//! A UDP echo server: a socket of the standard library, watched by the loop. Sends each datagram back to its sender.
//!
//! Try: cargo run --example udp                    (or: cargo run --example udp 127.0.0.1:0)
//! and in another terminal: echo hello | nc -u -w1 127.0.0.1 7778

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use event_core::{Error, Event, EventBase, What};
use examples::{address_argument, cannot_listen};

/// The largest datagram that UDP over IPv4 carries is a little smaller.
const LARGEST: usize = 64 * 1024;

fn main() -> Result<(), Error> {
    let address = address_argument("127.0.0.1:7778");
    let mut base = EventBase::new()?;

    let socket = UdpSocket::bind(address).unwrap_or_else(|error| cannot_listen(address, error));
    socket.set_nonblocking(true)?;
    println!("listening on {} with {}", socket.local_addr()?, base.method());

    let mut datagram = vec![0; LARGEST];
    let event = Event::new(&base, socket.as_raw_fd(), What::READ | What::PERSIST, move |_, _| {
        // One datagram a call: if more wait, the loop calls again, and others get their turn in between.
        match socket.recv_from(&mut datagram) {
            Ok((n, sender)) => {
                if let Err(error) = socket.send_to(&datagram[..n], sender) {
                    eprintln!("cannot answer {sender}: {error}");
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {} // its checksum was wrong
            Err(error) => eprintln!("cannot receive: {error}"),
        }
    })?;
    event.add(None)?;
    base.dispatch()?;
    Ok(())
}
