//! Our server with large answers, for the benches; with small ones it is the example `generic_handler`.
//!
//!     server ADDR:PORT FILE
//!
//! `/big` is 1 MiB from memory, `/file` the file; everything else is answered as the example does.

use std::error::Error;
use std::fs::File;
use std::process::ExitCode;

use event_core::{Bytes, EventBase, FileSegment};
use event_http::Server;

const MIB: usize = 1 << 20;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn serve(address: &str, path: &str) -> Outcome<()> {
    let big = Bytes::from(vec![b'x'; MIB]);
    let file = FileSegment::new(File::open(path)?, 0, Some(MIB as u64))?;
    let mut base = EventBase::new()?;
    let http = Server::new(&base)?;
    let bound = http.bind(address)?.local_address()?;
    http.set_cb("/big", move |req| req.send_reply(200, "Client", big.clone()))?;
    http.set_cb("/file", move |req| req.send_reply(200, "Client", file.clone()))?;
    http.set_gencb(|req| req.send_reply(200, "Client", "Thanks for the request!"));
    eprintln!("Server started on port {}", bound.port().ok_or("no port")?);
    base.dispatch()?;
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &args[..] {
        [address, path] => serve(address, path),
        _ => Err("usage: server ADDR:PORT FILE".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("server: {error}");
            ExitCode::FAILURE
        }
    }
}
