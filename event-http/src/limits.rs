//! Every bound and deadline that the server holds a peer to, with its default and its answer.

use std::time::Duration;

/// Bounds on what one connection may send and on how long it may take.
///
/// A limit that is `None` is no limit; a limit of zero means zero. Sizes are in bytes. All of them are checked while
/// bytes come in, so that a peer which exceeds one is answered at once and never fills memory.
///
/// # Examples
///
/// ```
/// use event_http::Limits;
///
/// let limits = Limits { max_body_bytes: Some(1 << 20), ..Limits::default() };
/// assert_eq!(limits.max_fields, Some(100));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The request line with its CRLF. Above it: 414, or 501 if the method alone fills it; close. Default 8 KiB, which
    /// RFC 9112 section 3 asks for as a minimum.
    pub max_request_line_bytes: Option<usize>,
    /// Request line and fields together, with the empty line. Above it: 431, close. Default 32 KiB. `None` still
    /// stops at 1 GiB, because positions in a head are kept in 32 bits.
    #[doc(alias = "evhttp_set_max_headers_size")]
    pub max_head_bytes: Option<usize>,
    /// The trailer section of a chunked body with its empty line. Above it: 431, close. Default 32 KiB; `None` as for
    /// [`max_head_bytes`](Limits::max_head_bytes).
    pub max_trailer_bytes: Option<usize>,
    /// Field lines in a head, and again in a trailer section. Above it: 431, close. Default 100.
    pub max_fields: Option<usize>,
    /// One chunk-size line with its extensions and CRLF. Above it: 400, close. Default 256.
    pub max_chunk_line_bytes: Option<usize>,
    /// A request body that is held in memory. Above it: 413, close; from Content-Length before a byte of the body is
    /// read, else at the chunk that would cross it. Default 8 MiB. A handler that streams the body sets its own bound.
    #[doc(alias = "evhttp_set_max_body_size")]
    pub max_body_bytes: Option<u64>,
    /// Requests that are read ahead of the one whose answer is due. Above it: reading waits. Default 16; zero reads
    /// one request at a time. It waits as well while their bodies are together larger than
    /// [`max_body_bytes`](Limits::max_body_bytes).
    pub max_parsed_ahead: Option<usize>,
    /// Requests on one connection; the last one is answered with `Connection: close`. Default none.
    pub max_requests: Option<u64>,
    /// Unsent bytes of a connection above which an answer has no room and no further request is read; room is told
    /// again below half of it. Default 1 MiB.
    pub room: usize,
    /// Unsent bytes of a connection, those that wait for their turn included, above which whoever adds more loses it.
    /// What is given in one piece may be larger: it is in memory already. Default 16 MiB.
    pub max_output_bytes: Option<usize>,
    /// From the first byte of a head to its end. Then: 408, close. Default 20 s.
    pub head_timeout: Option<Duration>,
    /// Between two pieces of a request body. Then: 408, close. Default 30 s.
    #[doc(alias = "evhttp_set_read_timeout_tv")]
    pub body_timeout: Option<Duration>,
    /// Least mean rate of a request body in bytes a second, held to after
    /// [`body_rate_grace`](Limits::body_rate_grace). Below it: 408, close. Default 500.
    pub min_body_rate: Option<u64>,
    /// How long a request body may take at any rate. Default 30 s.
    pub body_rate_grace: Duration,
    /// How long unsent output may make no progress because the peer does not read. Then: close. Default 60 s.
    #[doc(alias = "evhttp_set_write_timeout_tv")]
    pub answer_timeout: Option<Duration>,
    /// From the hand-over of a request to the head of its answer. Then: 503, close; what the program answers later goes
    /// nowhere, and is harmless. Default none, since answers may take as long as the program likes.
    pub handler_timeout: Option<Duration>,
    /// How long a connection may wait for the first byte of its next request. Then: close, without an answer.
    /// Default 75 s.
    #[doc(alias = "evhttp_set_timeout")]
    pub idle_timeout: Option<Duration>,
    /// How long input is still read and thrown away after the last answer, so that the peer can read that answer
    /// before a reset reaches it (RFC 9112 section 9.6). Then: close. Default 2 s.
    #[doc(alias = "EVHTTP_SERVER_LINGERING_CLOSE")]
    pub linger_timeout: Option<Duration>,
    /// How much input is thrown away during that time. Above it: close. As much is thrown away before, while that answer
    /// is not all sent; above it, nothing is read until it is. Default 1 MiB.
    pub max_linger_bytes: Option<u64>,
}

impl Limits {
    /// Whether what is sent has to be read before an idle connection closes: then there is no other deadline to set once it
    /// is.
    #[inline]
    pub(crate) fn answer_is_first(&self) -> bool {
        match (self.answer_timeout, self.idle_timeout) {
            (Some(answer), Some(idle)) => answer <= idle,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_request_line_bytes: Some(8 << 10),
            max_head_bytes: Some(32 << 10),
            max_trailer_bytes: Some(32 << 10),
            max_fields: Some(100),
            max_chunk_line_bytes: Some(256),
            max_body_bytes: Some(8 << 20),
            max_parsed_ahead: Some(16),
            max_requests: None,
            room: 1 << 20,
            max_output_bytes: Some(16 << 20),
            head_timeout: Some(Duration::from_secs(20)),
            body_timeout: Some(Duration::from_secs(30)),
            min_body_rate: Some(500),
            body_rate_grace: Duration::from_secs(30),
            handler_timeout: None,
            answer_timeout: Some(Duration::from_secs(60)),
            idle_timeout: Some(Duration::from_secs(75)),
            linger_timeout: Some(Duration::from_secs(2)),
            max_linger_bytes: Some(1 << 20),
        }
    }
}
