//! A server of bodies that are longer than memory should be: they are counted as they come, or made as they are read.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use event_core::{EventBase, LoopHandle, Signal, What};
use event_http::{BodyEvent, BodyReader, Error, Method, Reply, Request, Server};

use crate::Outcome;

/// What a slow callback takes before it rests.
const GULP: u64 = 1 << 20;

/// How long it rests.
const REST: Duration = Duration::from_millis(5);

/// What is made at a time.
const PIECE: u64 = 64 << 10;

pub(crate) fn run(args: &[&str]) -> Outcome<()> {
    let &[address] = args else { return Err("bulk ADDRESS".into()) };
    let mut base = EventBase::new()?;
    let http = Server::new(&base)?;
    let bound = http.bind(address)?.local_address()?;
    http.route_early(Method::PUT, "/up", |req| count(req, None))?;
    let handle = base.handle();
    http.route_early(Method::PUT, "/slow", move |req| count(req, Some(handle.clone())))?;
    http.route(Method::GET, "/down/{bytes}", make)?;
    for signal in [Signal::INT, Signal::TERM] {
        let http = http.clone();
        let stop = Signal::new(&base, signal, move |_| http.shutdown(Duration::from_secs(1)))?;
        stop.add()?;
        stop.set_background(true)?;
        stop.detach();
    }
    eprintln!("Server started on port {}", bound.port().unwrap_or(0));
    base.dispatch()?;
    Ok(())
}

/// Counts a body; `slowly` rests after each gulp.
fn count(req: Request, slowly: Option<LoopHandle>) {
    let mut rested = 0;
    req.stream_body(None, move |body, event| match event {
        BodyEvent::Data(_) => {
            if let Some(handle) = &slowly
                && body.received() - rested >= GULP
            {
                rested = body.received();
                body.pause();
                if let Err(error) = resume_later(handle, body) {
                    eprintln!("ours: {error}");
                }
            }
        }
        BodyEvent::End(_) => {
            if let Some(req) = body.take_request() {
                let _client_left = req.send_reply(200, "Client", body.received().to_string());
            }
        }
        BodyEvent::Failed(error) => eprintln!("ours: {error}"),
        _ => {}
    });
}

fn resume_later(handle: &LoopHandle, body: &BodyReader) -> Result<(), event_core::Error> {
    let body = body.clone();
    handle.once(-1, What::empty(), Some(REST), move |_| body.resume())
}

/// Makes as many bytes as the path says, as fast as they are read.
fn make(mut req: Request) -> Result<(), Error> {
    let bytes = req.param("bytes").and_then(|bytes| bytes.parse().ok()).unwrap_or(0_u64);
    req.add_header("Content-Length", bytes.to_string())?;
    let reply = Rc::new(RefCell::new(Some(req.send_reply_start(200, "Client")?)));
    let (place, left) = (reply.clone(), Cell::new(bytes));
    let fill = move || {
        let Some(reply) = place.take() else { return };
        while left.get() > 0 && reply.has_room() {
            let piece = left.get().min(PIECE);
            if reply.chunk(vec![b'x'; piece as usize]).is_err() {
                return;
            }
            left.set(left.get() - piece);
        }
        if left.get() == 0 {
            let _client_left = reply.end();
        } else {
            place.replace(Some(reply));
        }
    };
    // Told in the next turn that there is room, and then each time that some has left.
    if let Some(reply) = reply.borrow().as_ref() {
        Reply::on_room(reply, fill);
    }
    Ok(())
}
