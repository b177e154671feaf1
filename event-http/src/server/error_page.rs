//! Error pages of the program's own.

use std::rc::Rc;

use event_core::Buffer;

use crate::conn::{Seq, State};
use crate::driver::Connection;
use crate::encode::{ErrorReply, ReplyHead};
use crate::head::{Headers, MethodSet, token};
use crate::server::Server;

pub(crate) type ErrorCallback = Box<dyn FnMut(&mut ErrorPage) -> bool>;

/// An error answer that the program may write the page of; see [`Server::set_errorcb`].
#[derive(Debug)]
pub struct ErrorPage {
    status: u16,
    reason: Option<Box<str>>,
    headers: Headers,
    body: Buffer,
}

impl ErrorPage {
    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The reason, if another than the standard phrase was given. It is no HTML.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// The fields of the answer: at first `Content-Type: text/html`, and Allow for 405.
    pub fn headers(&mut self) -> &mut Headers {
        &mut self.headers
    }

    /// The page, empty at first.
    pub fn body(&mut self) -> &mut Buffer {
        &mut self.body
    }
}

impl Server {
    /// Sets what writes the pages of error answers: those of the server itself (a request that cannot be read, 404, 405,
    /// 500 for a handler that gave no answer, 503 for a connection too many) and those of
    /// [`send_error`](crate::Request::send_error). If it returns false, or panics, the standard page is sent; if true,
    /// what it wrote, also when that is nothing, unless its fields allow no answer. The connection closes behind it in any case. Replaces the one before.
    ///
    /// It runs in the loop's next turn; until then the answer can still be given in its place by whoever has the
    /// request.
    ///
    /// ```
    /// # use event_core::EventBase;
    /// # use event_http::Server;
    /// # let base = EventBase::new()?;
    /// # let http = Server::new(&base)?;
    /// http.set_errorcb(|page| {
    ///     let text = format!("sorry: {}", page.status());
    ///     page.body().add(text.as_bytes());
    ///     true
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "evhttp_set_errorcb")]
    pub fn set_errorcb(&self, cb: impl FnMut(&mut ErrorPage) -> bool + 'static) {
        self.inner.error_page.set(Some(Box::new(cb)));
    }
}

/// An error answer whose page is still to be written. It keeps the loop running, as its request did.
pub(crate) struct ErrorDue {
    connection: Rc<Connection>,
    seq: Seq,
    status: u16,
    reason: Option<Box<str>>,
    allow: Option<MethodSet>,
}

impl ErrorDue {
    pub(crate) fn new(connection: &Rc<Connection>, seq: Seq, error: &ErrorReply<'_>) -> ErrorDue {
        connection.lend();
        ErrorDue {
            connection: connection.clone(),
            seq,
            status: error.status,
            reason: error.reason.map(Into::into),
            allow: error.allow.cloned(),
        }
    }

    /// Has the page written and sends it, if the answer was not given in the meantime.
    pub(crate) fn run(self) {
        let ErrorDue { connection, seq, status, .. } = &self;
        if !connection.awaits(*seq, State::Waiting) {
            return;
        }
        let mut headers = Headers::new();
        let _ = headers.add("Content-Type", "text/html");
        if let Some(allow) = &self.allow {
            let _ = headers.add("Allow", allow.to_string());
        }
        let mut page =
            ErrorPage { status: *status, reason: self.reason.clone(), headers, body: Buffer::new() };
        let written =
            connection.server().error_page.call("an error callback", |callback| callback(&mut page));
        let reason = self.reason.as_deref();
        if written == Some(true) {
            // Last, and whatever the program has said.
            let _ = page.headers.set("Connection", "close");
            let phrase = reason.filter(|reason| token::is_field_text(reason.as_bytes()));
            let head = ReplyHead { status: *status, reason: phrase, headers: &page.headers };
            if let Err(error) = connection.reply(*seq, &head, page.body)
                && connection.awaits(*seq, State::Waiting)
            {
                log::warn!("an error page cannot be sent: {error}");
            }
        }
        // Also if the page could not be sent: nobody else would answer.
        if connection.awaits(*seq, State::Waiting) {
            let error = ErrorReply { status: *status, reason, allow: self.allow.as_ref() };
            let _ = connection.reply_error_now(*seq, &error);
        }
    }
}

impl Drop for ErrorDue {
    fn drop(&mut self) {
        self.connection.take_back();
    }
}
