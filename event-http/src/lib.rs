//! HTTP/1.1 on event-core, in the manner of evhttp.
#![forbid(unsafe_code)]
