//! What a client asks of a server under test, and what it must get.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::Outcome;
use crate::tools::scratch_dir;

/// What every server answers on `/`.
pub(crate) const THANKS: &[u8] = b"Thanks for the request!";

/// Bytes of the large bodies: the answer from memory, the file, and what is posted at most.
pub(crate) const MIB: usize = 1 << 20;

/// One kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Work {
    /// `/big`: 1 MiB from memory.
    Big,
    /// `/`, on a connection that the server closes after the answer.
    Close,
    /// `/file`: a file of 1 MiB.
    File,
    /// `/`.
    #[default]
    Get,
    /// `/`, with a body of this many bytes that the server reads before it answers.
    Post(usize),
}

impl Work {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Big => "/big",
            Self::Close | Self::Get | Self::Post(_) => "/",
            Self::File => "/file",
        }
    }

    /// The bytes of one request.
    pub(crate) fn request(self, address: SocketAddr) -> Vec<u8> {
        let path = self.path();
        match self {
            Self::Big | Self::File | Self::Get => {
                format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").into_bytes()
            }
            Self::Close => {
                format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").into_bytes()
            }
            Self::Post(len) => {
                let head =
                    format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {len}\r\n\r\n");
                [head.as_bytes(), &b"x".repeat(len)].concat()
            }
        }
    }

    pub(crate) fn answer_len(self) -> usize {
        match self {
            Self::Big | Self::File => MIB,
            Self::Close | Self::Get | Self::Post(_) => THANKS.len(),
        }
    }

    /// Whether `body` is what must be answered.
    pub(crate) fn is_answer(self, body: &[u8]) -> bool {
        body.len() == self.answer_len()
            && match self {
                Self::Big => body.iter().all(|&byte| byte == b'x'),
                Self::Close | Self::Get | Self::Post(_) => body == THANKS,
                Self::File => body.iter().copied().eq((0..MIB).map(file_byte)),
            }
    }

    /// What makes wrk send this kind of request, as Lua.
    pub(crate) fn script(self) -> String {
        match self {
            Self::Big | Self::File | Self::Get => String::new(),
            Self::Close => "wrk.headers[\"Connection\"] = \"close\"\n".to_owned(),
            Self::Post(len) => format!("wrk.method = \"POST\"\nwrk.body = string.rep(\"x\", {len})\n"),
        }
    }
}

/// Not a power of two: a piece from the wrong place would show.
fn file_byte(at: usize) -> u8 {
    (at % 251) as u8
}

/// The file that is served, made anew if it is not there or is another.
pub(crate) fn file() -> Outcome<PathBuf> {
    let path = scratch_dir()?.join("file-of-1-MiB");
    if !fs::read(&path).is_ok_and(|bytes| Work::File.is_answer(&bytes)) {
        let fresh = path.with_extension(std::process::id().to_string());
        fs::write(&fresh, (0..MIB).map(file_byte).collect::<Vec<u8>>())?;
        fs::rename(&fresh, &path)?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_an_answer_only_if_every_byte_is_right() {
        for work in [Work::Big, Work::File, Work::Get] {
            let mut body = match work {
                Work::Big => vec![b'x'; MIB],
                Work::File => fs::read(file().unwrap()).unwrap(),
                _ => THANKS.to_vec(),
            };
            assert!(work.is_answer(&body), "{work:?}");
            assert!(!work.is_answer(&body[1..]), "{work:?}");
            *body.last_mut().unwrap() ^= 1;
            assert!(!work.is_answer(&body), "{work:?}");
        }
    }

    #[test]
    fn a_post_ends_with_as_many_bytes_as_it_declares() {
        let text = String::from_utf8(Work::Post(7).request("127.0.0.1:1".parse().unwrap())).unwrap();
        assert!(text.ends_with("\r\nContent-Length: 7\r\n\r\nxxxxxxx"), "{text}");
    }
}
