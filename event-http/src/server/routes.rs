//! Which handler serves which path, and how a handler is called.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Display;
use std::rc::Rc;

use crate::server::{Request, guarded};

type Boxed = Box<dyn FnMut(Request)>;

/// What a handler may return: nothing, or a `Result` of which an error is logged.
pub trait HandlerReturn {
    /// The text to log, if the handler failed.
    fn failure(self) -> Option<String>;
}

impl HandlerReturn for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: Display> HandlerReturn for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

/// A handler's place. The handler is on loan while it runs.
pub(crate) struct Handler {
    callback: Cell<Option<Boxed>>,
}

impl Handler {
    pub(crate) fn new<R: HandlerReturn>(mut handler: impl FnMut(Request) -> R + 'static) -> Rc<Handler> {
        let callback: Boxed = Box::new(move |request| {
            if let Some(failure) = handler(request).failure() {
                log::warn!("a handler failed: {failure}");
            }
        });
        Rc::new(Handler { callback: Cell::new(Some(callback)) })
    }

    /// Calls the handler; a panic in it is logged, and the request that it drops answers 500.
    pub(crate) fn call(&self, request: Request) {
        let Some(mut callback) = self.callback.take() else { return };
        guarded("a handler", || callback(request));
        self.callback.set(Some(callback));
    }
}

/// Handlers by exact path, decoded.
#[derive(Default)]
pub(crate) struct Routes {
    by_path: HashMap<Box<[u8]>, Rc<Handler>>,
}

impl Routes {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }

    /// Hands the new handler back if the path has one.
    pub(crate) fn insert(&mut self, path: &str, handler: Rc<Handler>) -> Result<(), Rc<Handler>> {
        if self.by_path.contains_key(path.as_bytes()) {
            return Err(handler);
        }
        self.by_path.insert(path.as_bytes().into(), handler);
        Ok(())
    }

    pub(crate) fn remove(&mut self, path: &str) -> Option<Rc<Handler>> {
        self.by_path.remove(path.as_bytes())
    }

    pub(crate) fn find(&self, path: &[u8]) -> Option<Rc<Handler>> {
        self.by_path.get(path).cloned()
    }
}
