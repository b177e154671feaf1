//! The shortest server: every request gets the same answer, SIGINT and SIGTERM stop it gracefully.
//!
//! Try: cargo run --release --example generic_handler, then curl -i http://127.0.0.1:8081/

use std::time::Duration;

use event_core::{EventBase, Signal};
use event_http::{Error, Server};
use examples::host_and_port_argument;

fn serve(host: &str, port: u16) -> Result<(), Error> {
    let mut base = EventBase::new()?;
    let http = Server::new(&base)?;
    let bound = http.bind(host, port)?;
    http.set_gencb(|req| req.send_reply(200, "Client", "Thanks for the request!"));
    for signal in [Signal::INT, Signal::TERM] {
        let http = http.clone();
        let stop = Signal::new(&base, signal, move |_| http.shutdown(Duration::from_secs(10)))?;
        stop.add()?;
        stop.set_background(true)?;
        stop.detach();
    }
    eprintln!("Server started on port {}", bound.port());
    base.dispatch()?;
    Ok(())
}

fn main() {
    env_logger::init();
    let (host, port) = host_and_port_argument("127.0.0.1:8081");
    if let Err(error) = serve(&host, port) {
        eprintln!("{host}:{port}: {error:#}");
        std::process::exit(1);
    }
}
