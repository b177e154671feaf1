//! The same service written for may_minihttp, on one worker thread.
//!
//!     may-peer ADDR:PORT [file PATH]
//!
//! `/` thanks, after the request's body if there is one; `/big` is 1 MiB from memory, `/file` the file.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::Arc;

use may_minihttp::{HttpServer, HttpService, Request, Response};

const MIB: usize = 1 << 20;

#[derive(Clone)]
struct Service {
    file: Option<Arc<File>>,
    big: &'static str,
}

impl HttpService for Service {
    fn call(&mut self, request: Request, response: &mut Response) -> io::Result<()> {
        response.header("Content-Type: text/html; charset=ISO-8859-1");
        match (request.path(), &self.file) {
            ("/big", _) => response.body(self.big),
            ("/file", Some(file)) => {
                // It takes whole bodies only.
                let mut whole = vec![0; MIB];
                file.read_exact_at(&mut whole, 0)?;
                response.body_vec(whole);
            }
            _ => response.body("Thanks for the request!"),
        }
        if request.method() == "POST" {
            // Held in memory until it is whole, as evhttp and event-http do.
            request.body().read_to_end(&mut Vec::new())?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let run = || -> io::Result<()> {
        let usage = || io::Error::other("usage: may-peer ADDR:PORT [file PATH]");
        let address = args.first().ok_or_else(usage)?;
        let port = address.rsplit(':').next().ok_or_else(usage)?;
        let file = match &args[1..] {
            [what, path] if what == "file" => Some(Arc::new(File::open(path)?)),
            _ => None,
        };
        // Not pinned by itself: it is told from outside where it may run.
        may::config().set_workers(1).set_worker_pin(false);
        let big = Box::leak("x".repeat(MIB).into_boxed_str());
        let server = HttpServer(Service { file, big }).start(address)?;
        eprintln!("Server started on port {port}");
        server.join().map_err(|_| io::Error::other("the server has panicked"))
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("may-peer: {error}");
            ExitCode::FAILURE
        }
    }
}
