//! What went wrong with a request or a reply, sorted by who is to blame.

use std::fmt;

/// The error of every call in this crate, and of every request that could not be served.
///
/// Whose fault it was tell [`is_peer`](Error::is_peer), [`is_ours`](Error::is_ours) and
/// [`is_caller`](Error::is_caller); which answer it deserves tells [`status`](Error::status).
pub struct Error {
    kind: Kind,
}

/// An error by blame. Each variant's own enum is private to the crate, so that kinds can be added.
#[derive(Debug)]
pub(crate) enum Kind {
    Peer(Peer),
    Ours(Ours),
    Caller(Caller),
}

/// What a peer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    BodyTimeout,
    BodyTooLarge,
    /// The data of a chunk was not followed by CRLF.
    ChunkEnd,
    ChunkLine,
    ChunkLineTooLong,
    ChunkSizeOverflow,
    CodingNotImplemented,
    ConnectWithBody,
    ContentLength,
    Expectation,
    FieldLine,
    HeadTimeout,
    HeadTooLarge,
    HostInvalid,
    HostMissing,
    HostRepeated,
    /// Nothing came on an idle connection.
    Idle,
    /// A lone LF or a stray CR.
    LineEnd,
    MethodNotAllowed,
    MethodNotImplemented,
    RequestLine,
    RequestLineTooLong,
    Target,
    TooManyFields,
    TrailersTooLarge,
    TransferEncoding,
    TransferEncodingAndLength,
    TransferEncodingInHttp10,
    Version,
    VersionNotSupported,
}

/// What the server or the machine under it did.
#[derive(Debug)]
pub(crate) enum Ours {
    Core(event_core::Error),
    /// A handler panicked, or dropped its request without an answer.
    HandlerFailed,
    /// The system refused to listen.
    Listen(std::io::Error),
    ServerGone,
    TooManyConnections,
}

/// What the program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// No address to listen on, and why not.
    Address(&'static str),
    BodyTooLong,
    BodyTooShort,
    ContentLength,
    HeadersTooLarge,
    HostTaken,
    /// The answer came after the client had left.
    LateReply,
    Name,
    NoMethods,
    NoUpgrade,
    PathTaken,
    Pattern,
    Reason,
    ReplyEnded,
    Status,
    Uri(UriPart),
    Value,
}

/// The part of a URI that is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UriPart {
    /// Percent-encoding, or what is encoded.
    Escape,
    Fragment,
    Host,
    Path,
    Port,
    Query,
    Scheme,
    UnixSocket,
    UserInfo,
}

impl Error {
    /// True if the client broke the protocol, a limit or a deadline, or left.
    pub fn is_peer(&self) -> bool {
        matches!(self.kind, Kind::Peer(_))
    }

    /// True if the fault is on the server's side: the loop, the system or a handler that gave no answer.
    pub fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Ours(_))
    }

    /// True if a call was made with arguments or at a time that it does not allow.
    pub fn is_caller(&self) -> bool {
        matches!(self.kind, Kind::Caller(_))
    }

    /// True if a deadline passed: the head's, the body's or the idle connection's.
    pub fn is_timeout(&self) -> bool {
        matches!(self.kind, Kind::Peer(Peer::HeadTimeout | Peer::BodyTimeout | Peer::Idle))
    }

    /// True if a size limit was exceeded, whichever of [`Limits`](crate::Limits) it was.
    pub fn is_too_large(&self) -> bool {
        matches!(
            self.kind,
            Kind::Peer(
                Peer::BodyTooLarge
                    | Peer::ChunkLineTooLong
                    | Peer::HeadTooLarge
                    | Peer::RequestLineTooLong
                    | Peer::TooManyFields
                    | Peer::TrailersTooLarge
            )
        )
    }

    /// True if the client had left before the answer was given.
    pub fn is_client_gone(&self) -> bool {
        matches!(self.kind, Kind::Caller(Caller::LateReply))
    }

    /// True if the server was freed while the request was out.
    pub fn is_server_gone(&self) -> bool {
        matches!(self.kind, Kind::Ours(Ours::ServerGone))
    }

    /// True if a header name, a value, a reason phrase, a status code, an address or a part of a URI was refused.
    pub fn is_invalid_argument(&self) -> bool {
        matches!(
            self.kind,
            Kind::Caller(
                Caller::Address(_)
                    | Caller::ContentLength
                    | Caller::Name
                    | Caller::Pattern
                    | Caller::Reason
                    | Caller::Status
                    | Caller::Uri(_)
                    | Caller::Value
            )
        )
    }

    /// The status code that tells the client of this error; `None` where no answer is due and the connection is
    /// just closed.
    ///
    /// Errors become answers here and nowhere else.
    pub fn status(&self) -> Option<u16> {
        match &self.kind {
            Kind::Peer(peer) => peer.status(),
            Kind::Ours(Ours::TooManyConnections) => Some(503),
            Kind::Ours(_) => Some(500),
            Kind::Caller(Caller::LateReply | Caller::ReplyEnded) => None,
            Kind::Caller(_) => Some(500),
        }
    }

    fn text(&self) -> &'static str {
        match &self.kind {
            Kind::Peer(peer) => match peer {
                Peer::BodyTimeout => "the request body came too slowly",
                Peer::BodyTooLarge => "the request body is too large",
                Peer::ChunkEnd => "chunk data is not followed by CRLF",
                Peer::ChunkLine => "malformed chunk-size line",
                Peer::ChunkLineTooLong => "the chunk-size line is too long",
                Peer::ChunkSizeOverflow => "the chunk size does not fit 64 bits",
                Peer::CodingNotImplemented => "transfer coding not implemented",
                Peer::ConnectWithBody => "a CONNECT request has no body",
                Peer::ContentLength => "malformed or repeated content-length",
                Peer::Expectation => "unknown expectation",
                Peer::FieldLine => "malformed field line",
                Peer::HeadTimeout => "the request head came too slowly",
                Peer::HeadTooLarge => "the request head is too large",
                Peer::HostInvalid => "malformed host",
                Peer::HostMissing => "host is missing",
                Peer::HostRepeated => "host is repeated",
                Peer::Idle => "no request came in time",
                Peer::LineEnd => "a line does not end with CRLF",
                Peer::MethodNotAllowed => "method not allowed",
                Peer::MethodNotImplemented => "method not implemented",
                Peer::RequestLine => "malformed request line",
                Peer::RequestLineTooLong => "the request line is too long",
                Peer::Target => "malformed request target",
                Peer::TooManyFields => "too many fields",
                Peer::TrailersTooLarge => "the trailer section is too large",
                Peer::TransferEncoding => "malformed transfer-encoding",
                Peer::TransferEncodingAndLength => "both transfer-encoding and content-length",
                Peer::TransferEncodingInHttp10 => "transfer-encoding in an HTTP/1.0 request",
                Peer::Version => "malformed protocol version",
                Peer::VersionNotSupported => "protocol version not supported",
            },
            Kind::Ours(ours) => match ours {
                Ours::Core(_) => "the event loop refused a call",
                Ours::HandlerFailed => "the handler gave no answer",
                Ours::Listen(_) => "cannot listen",
                Ours::ServerGone => "the server is gone",
                Ours::TooManyConnections => "too many connections",
            },
            Kind::Caller(caller) => match caller {
                Caller::Address(why) => why,
                Caller::BodyTooLong => "more body than the content-length says",
                Caller::BodyTooShort => "less body than the content-length says",
                Caller::ContentLength => "content-length of a reply is not a number",
                Caller::HeadersTooLarge => "headers do not fit 32 bits",
                Caller::HostTaken => "there is a virtual host of that pattern already",
                Caller::LateReply => "the client left before the reply",
                Caller::Name => "header name is not a token",
                Caller::NoMethods => "a route needs a method",
                Caller::NoUpgrade => "the request does not offer another protocol",
                Caller::PathTaken => "the path has a handler already",
                Caller::Pattern => "not a pattern of paths",
                Caller::Reason => "reason phrase has a control character",
                Caller::ReplyEnded => "the reply has ended",
                Caller::Status => "status code is not one of an answer",
                Caller::Uri(part) => match part {
                    UriPart::Escape => "malformed percent-encoding",
                    UriPart::Fragment => "malformed fragment of a uri",
                    UriPart::Host => "malformed host of a uri",
                    UriPart::Path => "malformed path of a uri",
                    UriPart::Port => "malformed port of a uri",
                    UriPart::Query => "malformed query of a uri",
                    UriPart::Scheme => "malformed scheme of a uri",
                    UriPart::UnixSocket => "malformed unix socket of a uri",
                    UriPart::UserInfo => "malformed user information of a uri",
                },
                Caller::Value => "header value has a control character",
            },
        }
    }
}

impl Peer {
    /// As [`Error::status`], which is this for what a peer did.
    pub(crate) fn status(self) -> Option<u16> {
        let status = match self {
            Peer::Idle => return None,
            Peer::MethodNotAllowed => 405,
            Peer::BodyTimeout | Peer::HeadTimeout => 408,
            Peer::BodyTooLarge => 413,
            Peer::RequestLineTooLong => 414,
            Peer::Expectation => 417,
            Peer::HeadTooLarge | Peer::TooManyFields | Peer::TrailersTooLarge => 431,
            Peer::CodingNotImplemented | Peer::MethodNotImplemented => 501,
            Peer::VersionNotSupported => 505,
            Peer::ChunkEnd
            | Peer::ChunkLine
            | Peer::ChunkLineTooLong
            | Peer::ChunkSizeOverflow
            | Peer::ConnectWithBody
            | Peer::ContentLength
            | Peer::FieldLine
            | Peer::HostInvalid
            | Peer::HostMissing
            | Peer::HostRepeated
            | Peer::LineEnd
            | Peer::RequestLine
            | Peer::Target
            | Peer::TransferEncoding
            | Peer::TransferEncodingAndLength
            | Peer::TransferEncodingInHttp10
            | Peer::Version => 400,
        };
        Some(status)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.kind, f)
    }
}

impl fmt::Display for Error {
    /// One level; the alternate form (`{:#}`) adds the causes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())?;
        let mut cause = std::error::Error::source(self).filter(|_| f.alternate());
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            Kind::Ours(Ours::Core(error)) => Some(error),
            Kind::Ours(Ours::Listen(error)) => Some(error),
            _ => None,
        }
    }
}

impl From<event_core::Error> for Error {
    fn from(error: event_core::Error) -> Error {
        Error { kind: Kind::Ours(Ours::Core(error)) }
    }
}

impl From<Peer> for Error {
    fn from(peer: Peer) -> Error {
        Error { kind: Kind::Peer(peer) }
    }
}

impl From<Ours> for Error {
    fn from(ours: Ours) -> Error {
        Error { kind: Kind::Ours(ours) }
    }
}

impl From<UriPart> for Error {
    fn from(part: UriPart) -> Error {
        Caller::Uri(part).into()
    }
}

impl From<Caller> for Error {
    fn from(caller: Caller) -> Error {
        Error { kind: Kind::Caller(caller) }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn blame_decides_the_predicates_and_the_status() {
        let late = Error::from(Caller::LateReply);
        assert!(late.is_caller() && late.is_client_gone() && late.status().is_none());
        let slow = Error::from(Peer::HeadTimeout);
        assert!(slow.is_peer() && slow.is_timeout() && slow.status() == Some(408));
        let idle = Error::from(Peer::Idle);
        assert!(idle.is_timeout() && idle.status().is_none(), "an idle connection is closed in silence");
        assert!(Error::from(Peer::TooManyFields).is_too_large());
        assert_eq!(Error::from(Ours::TooManyConnections).status(), Some(503));
        assert!(Error::from(Ours::ServerGone).is_server_gone());
        assert!(Error::from(Caller::Value).is_invalid_argument());
    }

    #[test]
    fn an_error_of_the_loop_stays_the_source() {
        let error = Error::from(event_core::Error::LoopGone);
        assert!(error.is_ours());
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("the event loop is gone"));
        assert_eq!(error.status(), Some(500));
    }

    #[test]
    fn values_go_to_other_threads() {
        fn assert_send_and_sync<T: Send + Sync>() {}
        assert_send_and_sync::<Error>();
        assert_send_and_sync::<crate::Headers>();
        assert_send_and_sync::<crate::Limits>();
        assert_send_and_sync::<crate::MethodSet>();
    }

    #[test]
    fn texts_are_lower_case_without_full_stop() {
        for error in [Error::from(Peer::LineEnd), Error::from(Ours::HandlerFailed), Error::from(Caller::Name)]
        {
            let text = error.to_string();
            assert!(text.starts_with(|c: char| c.is_ascii_lowercase()) && !text.ends_with('.'), "{text}");
        }
    }
}
