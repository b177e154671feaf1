#![doc = include_str!("on_purpose.md")]

#[cfg(doc)]
use crate::{Buffer, BufferEvent, Event, Listener, LoopHandle, Transport};
