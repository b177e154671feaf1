//! The examples: whole programs, each one file in `examples/examples`, shown below as a module. `cargo run --example NAME`
//! runs one.
//!
//! The functions are what they share: how they read an address and how they say what went wrong.

use std::fmt::Display;
use std::net::SocketAddr;

use event_core::Error;

/// The shortest web server, with a graceful stop. `cargo run --example generic_handler`
///
/// ```ignore
#[doc = include_str!("../examples/generic_handler.rs")]
/// ```
pub mod generic_handler {}

/// A web server whose answers come from another thread. `cargo run --example worker_thread`
///
/// ```ignore
#[doc = include_str!("../examples/worker_thread.rs")]
/// ```
pub mod worker_thread {}

/// An fd of your own: a pipe to a child process. `cargo run --example raw_fd`
///
/// ```ignore
#[doc = include_str!("../examples/raw_fd.rs")]
/// ```
pub mod raw_fd {}

/// Timers, once and again and again. `cargo run --example timer`
///
/// ```ignore
#[doc = include_str!("../examples/timer.rs")]
/// ```
pub mod timer {}

/// Signals as callbacks. `cargo run --example signals`
///
/// ```ignore
#[doc = include_str!("../examples/signals.rs")]
/// ```
pub mod signals {}

/// Messages from a thread to the loop. `cargo run --example mailbox`
///
/// ```ignore
#[doc = include_str!("../examples/mailbox.rs")]
/// ```
pub mod mailbox {}

/// A UDP echo server on a socket of the standard library. `cargo run --example udp`
///
/// ```ignore
#[doc = include_str!("../examples/udp.rs")]
/// ```
pub mod udp {}

/// libevent's `hello-world` sample: greets every client and hangs up. `cargo run --example hello_world`
///
/// ```ignore
#[doc = include_str!("../examples/hello_world.rs")]
/// ```
pub mod hello_world {}

/// A chat room in which nobody waits for a slow reader. `cargo run --example chat`
///
/// ```ignore
#[doc = include_str!("../examples/chat.rs")]
/// ```
pub mod chat {}

/// A TCP echo server with buffered streams and back-pressure. `cargo run --example echo`
///
/// ```ignore
#[doc = include_str!("../examples/echo.rs")]
/// ```
pub mod echo {}

/// A TCP client that connects again when it is refused. `cargo run --example client`
///
/// ```ignore
#[doc = include_str!("../examples/client.rs")]
/// ```
pub mod client {}

/// A TCP proxy: pairs of joined streams. `cargo run --example proxy`
///
/// ```ignore
#[doc = include_str!("../examples/proxy.rs")]
/// ```
pub mod proxy {}

/// libevent's `le-proxy` sample: a TCP proxy that closes both sides when one ends. `cargo run --example le_proxy`
///
/// ```ignore
#[doc = include_str!("../examples/le_proxy.rs")]
/// ```
pub mod le_proxy {}

/// A filter that compresses. `cargo run --example compress`
///
/// ```ignore
#[doc = include_str!("../examples/compress.rs")]
/// ```
pub mod compress {}

#[doc = include_str!("../../DESIGN.md")]
pub mod design {}

/// The first argument, or `default` without one.
pub fn argument(default: &str) -> String {
    std::env::args().nth(1).unwrap_or_else(|| default.to_owned())
}

/// The first argument as an IP address, or `default` without one. Ends the program if it is none.
pub fn address_argument(default: &str) -> SocketAddr {
    nth_address_argument(1, default)
}

/// The `nth` argument as an address, or `default` without one. Ends the program if it is none.
pub fn nth_address_argument(nth: usize, default: &str) -> SocketAddr {
    let text = std::env::args().nth(nth).unwrap_or_else(|| default.to_owned());
    text.parse().unwrap_or_else(|_| {
        eprintln!("{text} is not an address: give an IP and a port, such as {default}");
        std::process::exit(1)
    })
}

/// The system's own words where there are any.
pub fn reason(error: &Error) -> String {
    match error {
        Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Says that listening failed, why, and what to do about it; then ends the program with status 1.
pub fn cannot_listen(address: impl Display, error: impl Into<Error>) -> ! {
    let error = error.into();
    eprintln!("cannot listen on {address}: {}", reason(&error));
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            eprintln!("another program has it: stop it, or give another address, such as 127.0.0.1:0");
        }
        Some(libc::EACCES) => eprintln!("ports below 1024 are for root: give an address with a higher port"),
        Some(libc::EADDRNOTAVAIL) => eprintln!("this machine has no such address: try 127.0.0.1"),
        _ => eprintln!("give another address as the first argument"),
    }
    std::process::exit(1)
}
