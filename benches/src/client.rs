//! A blocking HTTP client that sends known requests and checks every answer byte for byte.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::Outcome;
use crate::work::Work;

/// The reason phrase of a server that lets the program choose it.
pub(crate) const REASON: &str = "Client";

/// Servers run up to a hundred times slower under strace and valgrind; a hang must still end.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is sent on a connection, and what must come back. Shared by many connections: a request may be 1 MiB.
pub(crate) struct Script {
    work: Work,
    request: Vec<u8>,
    /// The reason phrase of the answers.
    reason: &'static str,
}

impl Script {
    pub(crate) fn new(address: SocketAddr, work: Work, reason: &'static str) -> Self {
        Self { work, request: work.request(address), reason }
    }
}

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    script: Arc<Script>,
    /// Received and not yet used.
    received: Vec<u8>,
}

impl Client {
    /// Connects, to make requests of `script`; none is sent yet.
    pub(crate) fn connect(address: SocketAddr, script: &Arc<Script>) -> Outcome<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)
            .map_err(|error| format!("cannot connect to {address}: {error}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // The smallest that holds an answer: 9,000 clients stand at once in the memory measurement.
        Ok(Self { stream, script: script.clone(), received: Vec::new() })
    }

    /// Sends one request.
    pub(crate) fn send(&mut self) -> Outcome<()> {
        Ok(self.stream.write_all(&self.script.request)?)
    }

    /// Makes one request and reads its answer; returns the answer's length in bytes.
    pub(crate) fn get(&mut self) -> Outcome<usize> {
        self.send()?;
        self.answer()
    }

    /// Sends `depth` requests in one write, then reads all the answers.
    pub(crate) fn get_pipelined(&mut self, depth: usize) -> Outcome<()> {
        self.send_pipelined(depth)?;
        (0..depth).try_for_each(|_| self.answer().map(drop))
    }

    /// Sends `depth` requests in one write.
    pub(crate) fn send_pipelined(&mut self, depth: usize) -> Outcome<()> {
        Ok(self.stream.write_all(&self.script.request.repeat(depth))?)
    }

    /// Reads the answer of the connection's only request, and on until the server has closed.
    pub(crate) fn last_answer(mut self) -> Outcome<usize> {
        let len = self.answer()?;
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest)?;
        if rest.is_empty() { Ok(len) } else { Err("bytes follow the last answer".into()) }
    }

    /// Reads one answer; returns its length in bytes.
    pub(crate) fn answer(&mut self) -> Outcome<usize> {
        loop {
            if let Some(len) = answer_len(&self.received, self.script.work, self.script.reason)? {
                self.received.drain(..len);
                if self.received.is_empty() {
                    self.received = Vec::new();
                }
                return Ok(len);
            }
            let mut block = [0; 64 * 1024];
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
fn answer_len(bytes: &[u8], work: Work, reason: &str) -> Outcome<Option<usize>> {
    let Some(head_len) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..head_len])?;
    let status = head.lines().next().unwrap_or_default();
    if status.strip_prefix("HTTP/1.1 200 ") != Some(reason) {
        return Err(format!("not the status line asked for: {head:?}").into());
    }
    let declared = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().to_owned())
    });
    let wanted = work.answer_len();
    if declared != Some(wanted.to_string()) {
        return Err(format!("not a Content-Length of {wanted}: {head:?}").into());
    }
    let body = &bytes[head_len + 4..];
    if body.len() < wanted {
        return Ok(None);
    }
    if !work.is_answer(&body[..wanted]) {
        return Err("not the body asked for".into());
    }
    Ok(Some(head_len + 4 + wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 Client\r\ncontent-length: 23\r\n\r\nThanks for the request!";

    #[test]
    fn an_answer_is_whole_with_its_last_byte_and_not_before() {
        let len_of = |bytes: &[u8]| answer_len(bytes, Work::Get, REASON).unwrap();
        for len in 0..ANSWER.len() {
            assert_eq!(len_of(&ANSWER[..len]), None, "{len}");
        }
        let two = [ANSWER, ANSWER].concat();
        assert_eq!(len_of(&two), Some(ANSWER.len()));
    }

    #[test]
    fn a_wrong_status_reason_length_or_body_is_an_error() {
        let text = String::from_utf8(ANSWER.to_vec()).unwrap();
        for (from, to) in [("200", "503"), ("Client", "OK"), (": 23", ": 24"), ("Thanks", "thanks")] {
            assert!(answer_len(text.replace(from, to).as_bytes(), Work::Get, REASON).is_err(), "{to}");
        }
        assert!(answer_len(ANSWER, Work::Big, REASON).is_err());
    }
}
