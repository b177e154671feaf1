//! What the head of a message is made of: method, version, target, header fields.

use event_core::Buffer;

mod headers;
mod method;
mod status;
pub(crate) mod token;

pub(crate) use headers::{Field, Span};
pub use headers::{HeaderValue, Headers};
pub use method::{Method, MethodSet};
pub(crate) use status::reason_phrase;

/// A version of HTTP that this crate speaks.
///
/// A request that names a later 1.x is served as HTTP/1.1 (RFC 9110 section 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// The head of a request, over one copy of its bytes.
///
/// Every span points into `headers.bytes`, which holds the request line and all fields as they came.
#[derive(Clone, Debug)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) target: Span,
    pub(crate) path: Span,
    pub(crate) query: Option<Span>,
    /// The host to serve: the authority of the target if it has one (RFC 9112 section 3.2.2), else the Host field.
    pub(crate) host: Option<Span>,
    pub(crate) headers: Headers,
    /// The fields that the answer will have. They lie here so that their memory is used again, too.
    pub(crate) reply_headers: Headers,
    /// A host that was found valid, in this request or one before that had the same memory.
    pub(crate) known_host: Vec<u8>,
    /// What was found out about it, for when the same bytes come again.
    pub(crate) known: Known,
    /// The body, once the request is whole. Empty while the head is with its pool: what drops may be the program's.
    pub(crate) body: Buffer,
}

impl RequestHead {
    /// A longer host is checked each time.
    pub(crate) const MAX_KNOWN_HOST: usize = 255;

    /// A head to be filled by the parser; allocates nothing.
    pub(crate) const fn empty() -> RequestHead {
        RequestHead {
            method: Method::GET,
            version: Version::Http11,
            target: Span { start: 0, len: 0 },
            path: Span { start: 0, len: 0 },
            query: None,
            host: None,
            headers: Headers::new(),
            reply_headers: Headers::new(),
            known_host: Vec::new(),
            known: Known::NOTHING,
            body: Buffer::new(),
        }
    }

    pub(crate) fn method(&self) -> &Method {
        &self.method
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// The fields. They cannot be changed: the target lies in the same memory.
    pub(crate) fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The target as it stands on the request line; printable ASCII.
    pub(crate) fn target(&self) -> &str {
        self.text(self.target)
    }

    /// The path, split off before anything is decoded; `/` if an absolute target has none.
    ///
    /// `*` for the asterisk-form, and for its absolute spelling (RFC 9112 section 3.2.4); empty for CONNECT.
    pub(crate) fn path(&self) -> &str {
        match self.text(self.path) {
            "" if self.method == Method::CONNECT => "",
            "" if self.method == Method::OPTIONS && self.query.is_none() => "*",
            "" => "/",
            path => path,
        }
    }

    /// What follows the first `?`, undecoded; `None` without one, empty if nothing follows.
    pub(crate) fn query(&self) -> Option<&str> {
        self.query.map(|span| self.text(span))
    }

    /// Host and port as sent; `None` in an HTTP/1.0 request without either.
    pub(crate) fn host(&self) -> Option<&str> {
        self.host.map(|span| self.text(span))
    }

    fn text(&self, span: Span) -> &str {
        std::str::from_utf8(span.slice(&self.headers.bytes)).unwrap_or_default()
    }
}

/// What a plain head amounts to, apart from its method and target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Length of the request line with its end; 0 if nothing is known.
    pub(crate) line: u32,
    /// The connection ends after the answer.
    pub(crate) close: bool,
    /// Length of the body that follows.
    pub(crate) body: u64,
}

impl Known {
    pub(crate) const NOTHING: Known = Known { line: 0, close: false, body: 0 };
}

/// Heads that were used, kept for their memory and for what is known of them; boxed, because they are handed on several times.
///
/// It belongs to a server, so that an idle connection holds none: `take` hands one out, `give` takes it back.
#[derive(Debug, Default)]
pub(crate) struct HeadPool {
    #[expect(clippy::vec_box, reason = "a head stays in its box from here to the request and back")]
    heads: Vec<Box<RequestHead>>,
    /// So many heads in a row were not those that came before, as a number of the form 2^n - 1.
    missed: u8,
    /// So many of the next heads are not compared.
    skips: u8,
}

impl HeadPool {
    /// Heads kept at most: enough for a pipelined batch, little beside one connection's buffer.
    const MAX_HEADS: usize = 32;
    /// A head that grew beyond this is freed, so that one large request does not hold memory for ever.
    const MAX_CAPACITY: usize = 8 << 10;
    /// Comparisons left out at most.
    const MAX_SKIPS: u8 = 63;

    #[inline]
    pub(crate) fn take(&mut self) -> Box<RequestHead> {
        self.heads.pop().unwrap_or_else(|| Box::new(RequestHead::empty()))
    }

    /// Whether the next head is to be compared with the one before. Where clients never ask the same twice, that is tried
    /// seldom.
    #[inline]
    pub(crate) fn compares(&mut self) -> bool {
        let compares = self.skips == 0;
        self.skips = self.skips.saturating_sub(1);
        compares
    }

    /// Records what came of a comparison.
    #[inline]
    pub(crate) fn compared(&mut self, is_same: bool) {
        self.missed = if is_same { 0 } else { (self.missed * 2 + 1).min(HeadPool::MAX_SKIPS) };
        self.skips = self.missed;
    }

    #[inline]
    pub(crate) fn give(&mut self, mut head: Box<RequestHead>) {
        debug_assert!(head.body.is_empty(), "its bytes may be the program's, whose Drop is not run here");
        let capacity = head.headers.capacity() + head.reply_headers.capacity();
        if self.heads.len() < HeadPool::MAX_HEADS && capacity <= HeadPool::MAX_CAPACITY {
            // Its own fields stay: they may come again.
            head.reply_headers.clear();
            self.heads.push(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_keeps_small_heads_and_frees_large_ones() {
        let mut pool = HeadPool::default();
        let mut head = pool.take();
        head.headers.add("a", "b").unwrap();
        let held = head.headers.capacity();
        pool.give(head);
        assert_eq!(pool.take().headers.capacity(), held);

        let mut head = pool.take();
        head.headers.add("a", "x".repeat(HeadPool::MAX_CAPACITY)).unwrap();
        pool.give(head);
        assert_eq!(pool.take().headers.capacity(), 0);
    }
}
