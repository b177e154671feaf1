//! What the fuzz targets share: a server in the simulation that is fed bytes.

use std::time::Duration;

use event_core::testing::{Peer, Sim};
use event_core::{EventBase, LoopFlags};
use event_http::Server;

/// What one connection got to see, and how many requests the handler did.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    /// Every byte the server sent, without the Date fields' values.
    pub answers: Vec<u8>,
    /// Requests that reached the handler.
    pub served: usize,
}

/// Feeds the pieces to a fresh server, one after the other, and waits until the connection has ended.
pub fn serve(seed: u64, pieces: &[&[u8]]) -> Seen {
    let sim = Sim::new(seed);
    let mut base = sim.event_base().expect("a simulated loop");
    let http = Server::new(&base).expect("a server");
    let served = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = served.clone();
    http.set_gencb(move |mut req| {
        count.set(count.get() + 1);
        let body = req.take_body();
        req.send_reply(200, "OK", body)
    });
    let (stream, peer) = sim.stream(&base);
    http.serve(stream);
    let mut answers = Vec::new();
    for piece in pieces {
        for part in piece.chunks(16 << 10) {
            let _ = peer.write_all(part);
            settle(&mut base, &peer, &mut answers);
        }
    }
    // Whatever was sent, nothing may stay open for ever: the longest default deadline is 75 s.
    for _ in 0..400 {
        if http.connection_count() == 0 {
            break;
        }
        sim.advance(Duration::from_secs(1));
        settle(&mut base, &peer, &mut answers);
    }
    assert_eq!(http.connection_count(), 0, "the connection is still open");
    assert!(peer.is_eof() || peer.is_reset(), "the client was not told");
    Seen { answers: without_dates(&answers), served: served.get() }
}

fn settle(base: &mut EventBase, peer: &Peer, answers: &mut Vec<u8>) {
    for _ in 0..8 {
        base.run(LoopFlags::NONBLOCK | LoopFlags::NO_EXIT_ON_EMPTY).expect("the loop runs");
        answers.extend(peer.read());
    }
}

/// Time passes differently when a message is cut, so the dates are not compared.
fn without_dates(answers: &[u8]) -> Vec<u8> {
    let mut out = answers.to_vec();
    let mut at = 0;
    while let Some(found) = out[at..].windows(8).position(|window| window == b"\r\nDate: ") {
        let start = at + found + 8;
        let end = (start + 29).min(out.len());
        out[start..end].fill(b'-');
        at = end;
    }
    out
}
