//! Which handler a server calls for a request.

use crate::error::Error;
use crate::head::{Method, MethodSet};
use crate::server::routes::{Found, Handler, HandlerReturn};
use crate::server::{Inner, Request, Server, VirtualHost};

impl Server {
    /// Sets the handler of every path that has none of its own; without it such requests get 404. Replaces the one
    /// that was there. It gets `OPTIONS *` as well, which is answered 204 with the allowed methods without it.
    ///
    /// A handler that panics is logged and the client gets 500; the handler stays. One that replaces or removes itself is
    /// dropped when it returns; all of them are dropped with the server.
    #[doc(alias = "evhttp_set_gencb")]
    pub fn set_gencb<R: HandlerReturn>(&self, handler: impl FnMut(Request) -> R + 'static) {
        self.inner.site.set_gencb(Handler::new(handler));
    }

    /// Sets the handler of one path for every method, compared byte by byte after percent-decoding and without the
    /// query. Braces and stars mean nothing here: see [`route`](Self::route).
    ///
    /// # Errors
    /// - `is_caller` if the path has a handler already.
    /// - `is_server_gone`.
    #[doc(alias = "evhttp_set_cb")]
    pub fn set_cb<R: HandlerReturn>(
        &self,
        path: &str,
        handler: impl FnMut(Request) -> R + 'static,
    ) -> Result<(), Error> {
        self.inner.site.set_cb(path, Handler::new(handler))
    }

    /// Sets the handler of some methods of every path that a pattern matches.
    ///
    /// | segment | matches | [`Request::param`] |
    /// |---|---|---|
    /// | `text` | that text, after percent-decoding | |
    /// | `{name}` | any text but an empty one | `name` |
    /// | `*name` or `*`, the last one | everything up to the end, slashes too, or nothing | `name` or `*` |
    ///
    /// A path is cut at its slashes before it is decoded, so `%2F` ends no segment. `/static/*rest` matches `/static/`
    /// and not `/static`.
    ///
    /// A plain path is asked first. Of several patterns that match, the one that says more wins: from the left, text
    /// before `{name}` before `*rest`. One that has not the method is passed over; if none of those that match has it,
    /// the client gets 405 with all of their methods in Allow. A handler of GET gets HEAD, too, unless HEAD has another.
    /// OPTIONS that no handler there takes is answered 204 with the same list, and with fields that a
    /// [header hook](Server::set_header_cb) has added. A method must also be among the
    /// [allowed ones](Server::set_allowed_methods) to be served or listed. Exact paths cost O(1), patterns O(n) in their
    /// number.
    ///
    /// A value that is no UTF-8 after decoding is answered 400. Dots are left as they are: a handler that looks for
    /// files must refuse `..` itself.
    ///
    /// # Errors
    /// - `is_caller` if it is no pattern; if there are no methods, or one of them has a handler there already; or if the
    ///   same pattern was set with other names.
    /// - `is_server_gone`.
    ///
    /// ```
    /// # use event_core::EventBase;
    /// # use event_http::{Method, Server};
    /// # let base = EventBase::new()?;
    /// # let http = Server::new(&base)?;
    /// http.route(Method::GET, "/users/{id}", |req| {
    ///     let id = req.param("id").unwrap_or_default().to_owned();
    ///     req.send_reply(200, "OK", id)
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn route<R: HandlerReturn>(
        &self,
        methods: impl Into<MethodSet>,
        pattern: &str,
        handler: impl FnMut(Request) -> R + 'static,
    ) -> Result<(), Error> {
        self.inner.site.route(methods.into(), pattern, Handler::new(handler))
    }

    /// As [`route`](Self::route), but the handler is called as soon as the head is read: it may answer before the body,
    /// [stream](Request::stream_body) it, or keep the request, and then nothing more is read until it has decided.
    ///
    /// # Errors
    /// As [`route`](Self::route).
    pub fn route_early<R: HandlerReturn>(
        &self,
        methods: impl Into<MethodSet>,
        pattern: &str,
        handler: impl FnMut(Request) -> R + 'static,
    ) -> Result<(), Error> {
        self.inner.site.route(methods.into(), pattern, Handler::early(handler))
    }

    /// Takes away what `set_cb` has set for a path; false if nothing was.
    #[doc(alias = "evhttp_del_cb")]
    pub fn del_cb(&self, path: &str) -> bool {
        self.inner.site.del_cb(path)
    }

    /// Takes away every handler of a pattern, or of a plain path; false if it had none.
    pub fn del_route(&self, pattern: &str) -> bool {
        self.inner.site.del_route(pattern)
    }

    /// Adds a host with handlers of its own. A star in the pattern stands for any text, also for none, also at the end;
    /// case does not count, nor does the port of a request. The first host that matches serves, in the order in which
    /// they were added; `*.example.com` does not match `example.com`. Requests that name no host, or none of these, are
    /// the server's.
    ///
    /// # Errors
    /// - `is_caller` if there is one of that pattern.
    /// - `is_server_gone`.
    #[doc(alias = "evhttp_add_virtual_host")]
    pub fn add_virtual_host(&self, pattern: &str) -> Result<VirtualHost, Error> {
        self.inner.site.add_virtual_host(pattern)
    }

    /// Removes a host and drops its handlers (one that runs, when it has returned); false if it is none of this
    /// server's own.
    #[doc(alias = "evhttp_remove_virtual_host")]
    pub fn remove_virtual_host(&self, host: &VirtualHost) -> bool {
        self.inner.site.remove_virtual_host(host)
    }

    /// Adds a name under which the server's own handlers serve, whatever the patterns of its virtual hosts say.
    ///
    /// # Errors
    /// - `is_server_gone`.
    #[doc(alias = "evhttp_add_server_alias")]
    pub fn add_server_alias(&self, name: &str) -> Result<(), Error> {
        self.inner.site.add_alias(name)
    }

    /// Removes such a name; false if there was none.
    #[doc(alias = "evhttp_remove_server_alias")]
    pub fn remove_server_alias(&self, name: &str) -> bool {
        self.inner.site.remove_alias(name)
    }
}

impl Inner {
    /// Hands a request to its handler.
    #[inline]
    pub(crate) fn serve(&self, mut request: Request) {
        if !has_nul(request.path_bytes())
            && let Some(handler) = self.site.only()
        {
            return handler.call(request);
        }
        match self.find(&request) {
            Found::Handler(handler, params) => {
                params.into_iter().for_each(|params| request.set_params(params));
                handler.call(request);
            }
            other => self.refuse(request, other),
        }
    }

    /// What serves a request.
    pub(crate) fn find(&self, request: &Request) -> Found {
        let path = request.path();
        if has_nul(path.as_bytes()) {
            return Found::NoText;
        }
        self.site.of_host(request.host()).find(path, request.method())
    }

    /// Answers a request that nobody takes.
    fn refuse(&self, request: Request, found: Found) {
        let is_options = *request.method() == Method::OPTIONS;
        let _ = match found {
            Found::NotAllowed(mut allow) => {
                // This takes OPTIONS wherever a route takes something.
                allow.insert(Method::OPTIONS);
                self.with_rules(|rules| allow.keep_common(&rules.methods));
                if is_options { request.send_options(&allow) } else { request.send_not_allowed(&allow) }
            }
            Found::NoText => request.send_error(400, None),
            // RFC 9110 section 9.3.7: it is about the server as a whole.
            Found::Nothing if is_options && request.path() == "*" => {
                let allow = self.with_rules(|rules| rules.methods.clone());
                request.send_options(&allow)
            }
            Found::Handler(..) | Found::Nothing => request.send_error(404, None),
        };
    }
}

/// Whether a path has an encoded NUL. Whoever takes paths for C strings would see another one.
#[inline]
fn has_nul(path: &[u8]) -> bool {
    // Most paths are short, and few have anything encoded.
    path.len() >= 3 && path.contains(&b'%') && memchr::memmem::find(path, b"%00").is_some()
}
