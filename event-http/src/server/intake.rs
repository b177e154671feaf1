//! What a program may say of a request before it is read, and before its body is.

use event_core::Address;

use crate::server::routes::Found;
use crate::server::{Inner, Request, Server};

pub(crate) type NewRequestCallback = Box<dyn FnMut(&Address) -> bool>;
pub(crate) type HeaderCallback = Box<dyn FnMut(Request) -> Option<Request>>;

impl Server {
    /// Sets what is asked before a byte of a request is read, on a kept connection before each: false closes the
    /// connection without an answer, behind those that are out. It gets the client's address. Replaces the one before.
    /// A panic in it counts as false.
    #[doc(alias = "evhttp_set_newreqcb")]
    pub fn set_newreqcb(&self, cb: impl FnMut(&Address) -> bool + 'static) {
        self.inner.new_request.set(Some(Box::new(cb)));
    }

    /// Sets what is called with each request as soon as its head is read. It may answer, keep the request,
    /// [stream](Request::stream_body) its body or give it back: then the request takes its way to its handler, with
    /// fields that were added to the answer. While it is kept, nothing more is read. An answer given before the body is
    /// read ends the connection; the client is still heard out for a while, so that it can read the answer. Replaces the
    /// one before, which, inside itself, is dropped when it returns.
    ///
    /// ```
    /// # use event_core::EventBase;
    /// # use event_http::Server;
    /// # let base = EventBase::new()?;
    /// # let http = Server::new(&base)?;
    /// http.set_header_cb(|req| match req.header("Authorization") {
    ///     Some(_) => Some(req),
    ///     None => {
    ///         let _ = req.send_error(401, None);
    ///         None
    ///     }
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "evhttp_request_set_header_cb")]
    pub fn set_header_cb(&self, cb: impl FnMut(Request) -> Option<Request> + 'static) {
        self.inner.header.set(Some(Box::new(cb)));
    }
}

impl Inner {
    pub(crate) fn asks_first(&self) -> bool {
        self.new_request.is_set()
    }

    /// Whether the program wants a request of that client.
    pub(crate) fn may_begin(&self, peer: &Address) -> bool {
        self.new_request.call("a new-request callback", |callback| callback(peer)).unwrap_or(false)
    }

    /// Whether somebody wants requests before their bodies.
    pub(crate) fn is_early(&self) -> bool {
        self.header.is_set() || self.site.is_early()
    }

    /// Hands a request out whose body is still to come; gives it back if its handler is to get it with the body.
    pub(crate) fn serve_early(&self, request: Request) -> Option<Request> {
        let mut request = if self.header.is_set() {
            let mut given = Some(request);
            let kept = self.header.call("a header callback", |callback| callback(given.take()?)).flatten();
            // It was not called: it runs already.
            kept.or(given)?
        } else {
            request
        };
        match self.find(&request) {
            Found::Handler(handler, params) if handler.is_early() => {
                params.into_iter().for_each(|params| request.set_params(params));
                handler.call(request);
                None
            }
            _ => Some(request),
        }
    }
}
