//! The examples stand in `examples/examples`, one file each. Here is what they share: how they read an address and how
//! they say what went wrong.

use std::net::SocketAddr;

use event_core::{Address, Error};

/// The first argument as an address, or `default` without one. Ends the program if it is none.
pub fn address_argument(default: &str) -> SocketAddr {
    let text = std::env::args().nth(1).unwrap_or_else(|| default.to_owned());
    text.parse().unwrap_or_else(|_| {
        eprintln!("{text} is not an address: give an IP and a port, such as {default}");
        std::process::exit(1)
    })
}

/// An address as people write it.
pub fn text(address: &Address) -> String {
    match address {
        Address::Ip(address) => address.to_string(),
        other => format!("{other:?}"),
    }
}

/// The system's own words where there are any.
pub fn reason(error: &Error) -> String {
    match error {
        Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Says that listening failed, why, and what to do about it; then ends the program with status 1.
pub fn cannot_listen(address: SocketAddr, error: impl Into<Error>) -> ! {
    let error = error.into();
    eprintln!("cannot listen on {address}: {}", reason(&error));
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            eprintln!(
                "another program has that port: stop it, or give another address, such as {}:0",
                address.ip()
            );
        }
        Some(libc::EACCES) => eprintln!("ports below 1024 are for root: give an address with a higher port"),
        Some(libc::EADDRNOTAVAIL) => eprintln!("this machine has no such address: try 127.0.0.1"),
        _ => eprintln!("give another address as the first argument"),
    }
    std::process::exit(1)
}
