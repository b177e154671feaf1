//! The shortest server: every request gets the same answer, SIGINT and SIGTERM stop it gracefully.
//!
//! Try: cargo run --release --example generic_handler, then curl -i http://127.0.0.1:8081/

use std::time::Duration;

use event_core::{EventBase, Signal};
use event_http::{Error, Server};
use examples::{argument, what_to_do};

fn serve(address: &str) -> Result<(), Error> {
    let mut base = EventBase::new()?;
    let http = Server::new(&base)?;
    let bound = http.bind(address)?.local_address()?;
    http.set_gencb(|req| req.send_reply(200, "Client", "Thanks for the request!"));
    for signal in [Signal::INT, Signal::TERM] {
        let http = http.clone();
        let stop = Signal::new(&base, signal, move |_| http.shutdown(Duration::from_secs(10)))?;
        stop.add()?;
        stop.set_background(true)?;
        stop.detach();
    }
    match bound.port() {
        Some(port) => eprintln!("Server started on port {port}"),
        None => eprintln!("Server started on {bound}"),
    }
    base.dispatch()?;
    Ok(())
}

fn main() {
    env_logger::init();
    let address = argument("127.0.0.1:8081");
    if let Err(error) = serve(&address) {
        eprintln!("{address}: {error:#}\n{}", what_to_do(&error));
        std::process::exit(1);
    }
}
