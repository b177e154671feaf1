//! Answers from another thread: the handler defers its request, a worker thread does the slow part and answers.
//!
//! Try: cargo run --example worker_thread, then curl -d 'count these words' http://127.0.0.1:8082/

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use event_core::EventBase;
use event_http::{Deferred, Error, Server};
use examples::{argument, what_to_do};

/// What the worker gets: the text, and the token that answers the request.
type Job = (Vec<u8>, Deferred);

fn main() {
    let address = argument("127.0.0.1:8082");
    if let Err(error) = serve(&address) {
        eprintln!("{address}: {error:#}\n{}", what_to_do(&error));
        std::process::exit(1);
    }
}

fn serve(address: &str) -> Result<(), Error> {
    let mut base = EventBase::new()?;
    let http = Server::new(&base)?;
    let bound = http.bind(address)?.local_address()?;

    let (jobs, queue) = mpsc::channel::<Job>();
    thread::spawn(move || {
        for (text, deferred) in queue {
            if deferred.is_gone() {
                continue; // Nobody waits for this one any more.
            }
            let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).count();
            thread::sleep(Duration::from_millis(100)); // The slow part: the loop serves others meanwhile.
            if let Err(error) = deferred.send_reply(200, "OK", format!("{words} words\n")) {
                eprintln!("not answered: {error}");
            }
        }
    });

    http.set_gencb(move |mut req| {
        let text = req.take_body().to_vec();
        // If the worker has ended, the request comes back in the error, is dropped, and answers 500.
        let _ = jobs.send((text, req.defer()));
    });
    eprintln!("listening on {bound}");
    base.dispatch()?;
    Ok(())
}
