#![doc = include_str!("traps.md")]
// What is missing, and has its entry here: a search for it leads to this page.
#![doc(alias("evhttp_connection_base_new", "evhttp_make_request", "bufferevent_openssl_socket_new"))]
#![doc(alias("evdns_getaddrinfo", "EVDNS_BASE_DISABLE_WHEN_INACTIVE", "evdns_add_server_port"))]
#![doc(alias = "evws_new_session")]

#[cfg(doc)]
use crate::{
    Buffer, BufferEvent, Callbacks, Config, ConnectError, Direction, Event, EventBase, FileSegment, Filter,
    Filtered, Listener, ListenerOptions, LoopEnd, LoopFlags, LoopHandle, RateLimit, RateLimitGroup, Remote,
    Resolver, Signal, StreamEvent, Watcher, What,
};
