#![doc = include_str!("from_evhttp.md")]
// The names without an item of their own: a search for one leads here, too.
#![doc(alias("evhttp_bound_socket_foreach_fn", "evhttp_bound_socket_get_fd"))]
#![doc(alias("evhttp_bound_socket_get_listener", "EVHTTP_CON_LINGERING_CLOSE"))]
#![doc(alias("evhttp_connection_get_base", "EVHTTP_METHOD_HAS_BODY", "evhttp_parse_query"))]
#![doc(alias("evhttp_request_error", "evhttp_request_free", "evhttp_request_get_connection"))]
#![doc(alias("evhttp_request_get_output_buffer", "evhttp_request_is_owned", "evhttp_request_kind"))]
#![doc(alias("evhttp_request_own", "evhttp_set_flags", "evhttp_uri_free", "evhttp_uri_join"))]
#![doc(alias("EVREQ_HTTP_BUFFER_ERROR", "EVREQ_HTTP_DATA_TOO_LONG", "EVREQ_HTTP_EOF"))]
#![doc(alias("EVREQ_HTTP_INVALID_HEADER", "EVREQ_HTTP_TIMEOUT", "HTTP_BADMETHOD", "HTTP_BADREQUEST"))]
#![doc(alias("HTTP_ENTITYTOOLARGE", "HTTP_EXPECTATIONFAILED", "HTTP_INTERNAL", "HTTP_MOVEPERM"))]
#![doc(alias("HTTP_MOVETEMP", "HTTP_NOCONTENT", "HTTP_NOTFOUND", "HTTP_NOTIMPLEMENTED"))]
#![doc(alias("HTTP_NOTMODIFIED", "HTTP_OK", "HTTP_SERVUNAVAIL", "EVHTTP_PROXY_REQUEST"))]
#![doc(alias("EVHTTP_REQ_DEFER_FREE", "EVHTTP_REQ_NEEDS_FREE", "EVHTTP_REQ_OWN_CONNECTION"))]
#![doc(alias("EVHTTP_USER_OWNED", "evkeyval"))]

#[cfg(doc)]
use crate::{BodyReader, Deferred, Error, Limits, Reply, Request, Server};
