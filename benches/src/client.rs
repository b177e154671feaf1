//! A blocking HTTP client that sends one known request and checks every answer byte for byte.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::Outcome;

/// What every server under test must answer.
pub(crate) const BODY: &[u8] = b"Thanks for the request!";

/// Servers run up to a hundred times slower under strace and valgrind; a hang must still end.
const PATIENCE: Duration = Duration::from_secs(20);

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    /// Received and not yet used.
    received: Vec<u8>,
}

impl Client {
    /// Connects; no request is sent yet.
    pub(crate) fn connect(address: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)
            .map_err(|error| format!("cannot connect to {address}: {error}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n").into_bytes();
        // The smallest that holds an answer: 9,000 clients stand at once in the memory measurement.
        Ok(Self { stream, request, received: Vec::new() })
    }

    /// Makes one request and reads its answer; returns the answer's length in bytes.
    pub(crate) fn get(&mut self) -> Outcome<usize> {
        self.stream.write_all(&self.request)?;
        self.answer()
    }

    /// Sends `depth` requests in one write, then reads all the answers.
    pub(crate) fn get_pipelined(&mut self, depth: usize) -> Outcome<()> {
        self.stream.write_all(&self.request.repeat(depth))?;
        for _ in 0..depth {
            self.answer()?;
        }
        Ok(())
    }

    /// Makes the connection's only request, and reads on until the server has closed.
    pub(crate) fn get_and_close(mut self) -> Outcome<usize> {
        let head = self.request.len() - 2;
        self.request.splice(head.., *b"Connection: close\r\n\r\n");
        let len = self.get()?;
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest)?;
        if rest.is_empty() { Ok(len) } else { Err("bytes follow the last answer".into()) }
    }

    fn answer(&mut self) -> Outcome<usize> {
        loop {
            if let Some(len) = answer_len(&self.received)? {
                self.received.drain(..len);
                if self.received.is_empty() {
                    self.received = Vec::new();
                }
                return Ok(len);
            }
            let mut block = [0; 8192];
            let n = match self.stream.read(&mut block) {
                Ok(0) => return Err("the server closed in the middle of an answer".into()),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(format!("no answer within {PATIENCE:?}").into());
                }
                Err(error) => return Err(format!("reading an answer: {error}").into()),
            };
            self.received.extend_from_slice(&block[..n]);
        }
    }
}

/// The length of the first answer in `bytes`, if it is whole.
///
/// # Errors
/// The answer is not the one that every server under test must give.
fn answer_len(bytes: &[u8]) -> Outcome<Option<usize>> {
    let Some(head_len) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..head_len])?;
    if !head.starts_with("HTTP/1.1 200 Client\r\n") {
        return Err(format!("not the status line asked for: {head:?}").into());
    }
    let declared = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().to_owned())
    });
    if declared != Some(BODY.len().to_string()) {
        return Err(format!("not a Content-Length of {}: {head:?}", BODY.len()).into());
    }
    let body = &bytes[head_len + 4..];
    if body.len() < BODY.len() {
        return Ok(None);
    }
    if &body[..BODY.len()] != BODY {
        return Err("not the body asked for".into());
    }
    Ok(Some(head_len + 4 + BODY.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 Client\r\ncontent-length: 23\r\n\r\nThanks for the request!";

    #[test]
    fn an_answer_is_whole_with_its_last_byte_and_not_before() {
        for len in 0..ANSWER.len() {
            assert_eq!(answer_len(&ANSWER[..len]).unwrap(), None, "{len}");
        }
        let two = [ANSWER, ANSWER].concat();
        assert_eq!(answer_len(&two).unwrap(), Some(ANSWER.len()));
    }

    #[test]
    fn a_wrong_status_length_or_body_is_an_error() {
        let text = String::from_utf8(ANSWER.to_vec()).unwrap();
        for (from, to) in [("200", "503"), (": 23", ": 24"), ("Thanks", "thanks")] {
            assert!(answer_len(text.replace(from, to).as_bytes()).is_err(), "{to}");
        }
    }
}
