//! The examples: whole programs, each one file in `examples/examples`, shown below as a module. `cargo run --example NAME`
//! runs one. Where one says `nc`, a netcat, the example `becat` does as well: `cargo run --example becat -- 127.0.0.1 7777`.
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

/// libevent's `http-server` sample: the files of a directory. `cargo run --example http_server -- docroot`
///
/// ```ignore
#[doc = include_str!("../examples/http_server.rs")]
/// ```
pub mod http_server {}

/// A whole server: commands, timeouts, a worker thread, signals and a status page. `cargo run --example line_server`
///
/// ```ignore
#[doc = include_str!("../examples/line_server.rs")]
/// ```
pub mod line_server {}

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

/// Reaping child processes in the loop. `cargo run --example sigchld`
///
/// ```ignore
#[doc = include_str!("../examples/sigchld.rs")]
/// ```
pub mod sigchld {}

/// A loop of this library driven by another one. `cargo run --example inside_another_loop`
///
/// ```ignore
#[doc = include_str!("../examples/inside_another_loop.rs")]
/// ```
pub mod inside_another_loop {}

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

/// libevent's `event-read-fifo` sample: prints what is written to a named pipe. `cargo run --example event_read_fifo`
///
/// ```ignore
#[doc = include_str!("../examples/event_read_fifo.rs")]
/// ```
pub mod event_read_fifo {}

/// libevent's `signal-test` sample: ends by itself at the third SIGINT. `cargo run --example signal_test`
///
/// ```ignore
#[doc = include_str!("../examples/signal_test.rs")]
/// ```
pub mod signal_test {}

/// libevent's `time-test` sample: a tick every two seconds, by either kind of timer. `cargo run --example time_test`
///
/// ```ignore
#[doc = include_str!("../examples/time_test.rs")]
/// ```
pub mod time_test {}

/// libevent's `watch-timing` sample: how long handlers take and how late the loop wakes. `cargo run --example watch_timing`
///
/// ```ignore
#[doc = include_str!("../examples/watch_timing.rs")]
/// ```
pub mod watch_timing {}

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

/// libevent's `becat` sample, a netcat. `cargo run --example becat -- -l 10024`
///
/// ```ignore
#[doc = include_str!("../examples/becat.rs")]
/// ```
pub mod becat {}

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
        Error::Connect(error) => error.cause().to_string(),
        Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Says that listening failed, why, and what to do about it; then ends the program with status 1.
pub fn cannot_listen(address: impl Display, error: impl std::error::Error + 'static) -> ! {
    let why = system_error(&error).map_or_else(|| error.to_string(), ToString::to_string);
    eprintln!("cannot listen on {address}: {why}");
    eprintln!("{}", what_to_do(&error));
    std::process::exit(1)
}

/// What to do if listening fails so.
pub fn what_to_do(error: &(dyn std::error::Error + 'static)) -> &'static str {
    match system_error(error).and_then(std::io::Error::raw_os_error) {
        Some(libc::EADDRINUSE) => {
            "another program has it: stop it, or give another address, such as 127.0.0.1:0"
        }
        Some(libc::EACCES) => "ports below 1024 are for root: give an address with a higher port",
        Some(libc::EADDRNOTAVAIL) => "this machine has no such address: try 127.0.0.1",
        _ => "give another address, such as 127.0.0.1:0 for a port that is free",
    }
}

/// The system's error at the bottom of another, if there is one.
fn system_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e std::io::Error> {
    error.downcast_ref().or_else(|| system_error(error.source()?))
}

/// Options and other arguments, read as getopt does: `letters` has the options, each followed by a colon if it takes a
/// value. Ends the program with the usage if there is another.
pub fn getopt(letters: &str, usage: &str) -> (Vec<(char, String)>, Vec<String>) {
    let mut words = std::env::args().skip(1).peekable();
    let mut options = Vec::new();
    while let Some(word) = words.next_if(|word| word.starts_with('-')) {
        let mut chars = word.chars().skip(1);
        let letter = chars
            .next()
            .filter(|letter| *letter != ':' && letters.contains(*letter) && chars.next().is_none());
        let letter = letter.unwrap_or_else(|| stop_with(usage));
        let value = match letters.contains(&format!("{letter}:")) {
            true => words.next().unwrap_or_else(|| stop_with(usage)),
            false => String::new(),
        };
        options.push((letter, value));
    }
    (options, words.collect())
}

/// A number of the command line; ends the program with the usage if it is none that fits.
pub fn number<T: std::str::FromStr>(text: &str, usage: &str) -> T {
    text.parse().unwrap_or_else(|_| stop_with(usage))
}

/// Says how the program is used, and ends it with status 1.
pub fn stop_with(usage: &str) -> ! {
    eprintln!("{usage}");
    std::process::exit(1)
}
