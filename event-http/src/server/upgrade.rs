//! Answers before the answer, and connections that go on as another protocol.

use event_core::BufferEvent;

use crate::encode::ReplyHead;
use crate::error::{Caller, Error};
use crate::head::{Headers, Method};
use crate::server::Request;

impl Request {
    /// Sends an interim answer (RFC 9110 section 15.2): 103 with links to load early, 102 for one that takes long, 100
    /// for a client that waits with its body. Any number of them may precede the answer. It has its turn like the answer
    /// itself; an HTTP/1.0 client, which does not know of them, is sent nothing. Content-Length and Transfer-Encoding are
    /// left out.
    ///
    /// # Errors
    /// - `is_invalid_argument` if the status is not 100 to 199, or 101, which is [`upgrade`](Self::upgrade)'s.
    /// - `is_client_gone`, `is_server_gone`.
    pub fn send_interim(&self, status: u16, headers: &Headers) -> Result<(), Error> {
        check_interim(status)?;
        self.connection().interim(self.seq(), status, headers)
    }

    /// Accepts the other protocol that the request offers, and hands the connection over: 101 with `Connection: Upgrade`
    /// to a request with an Upgrade field, 200 to CONNECT. Fields that were added to the answer are in it; an Upgrade
    /// field that was not added names the first protocol that the client does.
    ///
    /// `cb` gets the stream from the loop, when the answers before this one and the 101 are written to it. What the
    /// client has sent behind its request lies in its input; if there is something, the read callback that `cb` sets
    /// comes by itself. Reading is enabled. The stream is the program's: the server does not count, stop or free it. If
    /// the client leaves before, `cb` is dropped.
    ///
    /// # Errors
    /// - `is_caller` if the request offers nothing, its body is still to come, or the connection is to end; the client
    ///   then gets 500.
    /// - `is_client_gone`, `is_server_gone`.
    ///
    /// ```
    /// # use event_core::EventBase;
    /// # use event_http::{Method, Server};
    /// # let base = EventBase::new()?;
    /// # let http = Server::new(&base)?;
    /// http.route(Method::GET, "/echo", |req| {
    ///     req.upgrade(|stream| {
    ///         stream.set_read_cb(|stream| {
    ///             let echo = stream.read_buffer();
    ///             let _ = stream.write(echo);
    ///         });
    ///     })
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "evhttp_connection_get_bufferevent")]
    pub fn upgrade(mut self, cb: impl FnOnce(BufferEvent) + 'static) -> Result<(), Error> {
        let is_tunnel = *self.method() == Method::CONNECT;
        if !is_tunnel {
            let offered = self.header("Upgrade").map(|value| value.as_bytes().to_vec()).unwrap_or_default();
            let first = offered.split(|&byte| byte == b',').next().unwrap_or_default().trim_ascii();
            if self.reply_headers().get("Upgrade").is_none() {
                self.reply_headers().add("Upgrade", first)?;
            }
            self.reply_headers().set("Connection", "Upgrade")?;
        }
        let headers = std::mem::take(self.reply_headers());
        let status = if is_tunnel { 200 } else { 101 };
        let head = ReplyHead { status, reason: None, headers: &headers };
        let upgraded = self.connection().upgrade(self.seq(), &head, Box::new(cb));
        if upgraded.is_ok() {
            self.set_answered();
        }
        upgraded
    }
}

/// Whether a status can be that of an interim answer.
pub(crate) fn check_interim(status: u16) -> Result<(), Error> {
    if (100..200).contains(&status) && status != 101 { Ok(()) } else { Err(Caller::Status.into()) }
}
