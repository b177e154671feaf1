#![doc = include_str!("traps.md")]

#[cfg(doc)]
use crate::{
    Buffer, BufferEvent, Callbacks, Config, ConnectError, Direction, Event, EventBase, FileSegment, Filter,
    Filtered, Listener, ListenerOptions, LoopEnd, LoopFlags, LoopHandle, RateLimit, RateLimitGroup, Remote,
    Resolver, Signal, StreamEvent, Watcher, What,
};
