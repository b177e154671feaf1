//! Which handler serves which path and method, and how a handler is called.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Display;
use std::rc::Rc;

use crate::error::{Caller, Error};
use crate::head::{Method, MethodSet};
use crate::server::pattern::{Params, Pattern, decoded};
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
    /// It wants the request before its body.
    early: bool,
}

impl Handler {
    pub(crate) fn new<R: HandlerReturn>(handler: impl FnMut(Request) -> R + 'static) -> Rc<Handler> {
        Handler::made(handler, false)
    }

    /// A handler that is called as soon as the head is read.
    pub(crate) fn early<R: HandlerReturn>(handler: impl FnMut(Request) -> R + 'static) -> Rc<Handler> {
        Handler::made(handler, true)
    }

    fn made<R: HandlerReturn>(mut handler: impl FnMut(Request) -> R + 'static, early: bool) -> Rc<Handler> {
        let callback: Boxed = Box::new(move |request| {
            if let Some(failure) = handler(request).failure() {
                log::warn!("a handler failed: {failure}");
            }
        });
        Rc::new(Handler { callback: Cell::new(Some(callback)), early })
    }

    pub(crate) fn is_early(&self) -> bool {
        self.early
    }

    /// Calls the handler; a panic in it is logged, and the request that it drops answers 500.
    #[inline]
    pub(crate) fn call(self: Rc<Self>, request: Request) {
        let Some(mut callback) = self.callback.take() else { return };
        guarded("a handler", || callback(request));
        self.callback.set(Some(callback));
        if Rc::strong_count(&self) == 1 {
            // It has taken itself away.
            guarded("a drop", || drop(self));
        }
    }
}

/// What there is for a path and a method.
pub(crate) enum Found {
    Handler(Rc<Handler>, Option<Params>),
    /// The path has handlers, of these methods only.
    NotAllowed(MethodSet),
    /// A value in the path is no text.
    NoText,
    Nothing,
}

/// The handlers of one path.
#[derive(Default)]
pub(crate) struct Slot {
    any: Option<Rc<Handler>>,
    by_method: Vec<(MethodSet, Rc<Handler>)>,
}

impl Slot {
    fn find(&self, method: &Method) -> Option<&Rc<Handler>> {
        let of = |method: &Method| self.by_method.iter().find(|(methods, _)| methods.contains(method));
        // Who serves GET serves HEAD, unless somebody else does (RFC 9110 section 9.3.2).
        let found = of(method).or_else(|| if *method == Method::HEAD { of(&Method::GET) } else { None });
        found.map(|(_, handler)| handler).or(self.any.as_ref())
    }

    /// Hands the handler back if it would never, or not for all of its methods, be called.
    fn insert(&mut self, methods: Option<MethodSet>, handler: Rc<Handler>) -> Result<(), Rc<Handler>> {
        match methods {
            None if self.any.is_some() => return Err(handler),
            None => self.any = Some(handler),
            Some(methods) => {
                let taken = |method| self.by_method.iter().any(|(taken, _)| taken.contains(method));
                if methods.iter().any(taken) {
                    return Err(handler);
                }
                self.by_method.push((methods, handler));
            }
        }
        Ok(())
    }

    fn allow(&self, allow: &mut MethodSet) {
        self.by_method.iter().flat_map(|(methods, _)| methods.iter()).for_each(|method| {
            if *method == Method::GET {
                allow.insert(Method::HEAD);
            }
            allow.insert(method.clone());
        });
    }
}

/// Handlers by path: exact ones, decoded, and behind them patterns, the most telling first.
#[derive(Default)]
pub(crate) struct Routes {
    exact: HashMap<Box<[u8]>, Slot>,
    patterns: Vec<(Rc<Pattern>, Slot)>,
}

impl Routes {
    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.patterns.is_empty()
    }

    /// Sets the handler of one path for every method that has none of its own.
    pub(crate) fn insert(&mut self, path: &str, handler: Rc<Handler>) -> Result<(), Rc<Handler>> {
        self.exact.entry(path.as_bytes().into()).or_default().insert(None, handler)
    }

    /// Sets the handler of some methods of a pattern. The handler that is not taken is for the caller to drop.
    pub(crate) fn insert_pattern(
        &mut self,
        methods: MethodSet,
        text: &str,
        handler: Rc<Handler>,
    ) -> Result<(), (Error, Rc<Handler>)> {
        let pattern = match Pattern::new(text) {
            Ok(pattern) => pattern,
            Err(error) => return Err((error, handler)),
        };
        if methods.is_empty() {
            // Before its place is made: a path without any method would be known, and answered 405.
            return Err((Caller::NoMethods.into(), handler));
        }
        let slot = if pattern.is_exact() {
            self.exact.entry(text.as_bytes().into()).or_default()
        } else {
            let place = self.patterns.binary_search_by(|(own, _)| own.precedence(&pattern));
            match place {
                // Its names may be other ones, and a handler knows its own.
                Ok(at) if !self.patterns[at].0.has_names_of(&pattern) => {
                    return Err((Caller::PathTaken.into(), handler));
                }
                Ok(at) => &mut self.patterns[at].1,
                Err(at) => {
                    self.patterns.insert(at, (Rc::new(pattern), Slot::default()));
                    &mut self.patterns[at].1
                }
            }
        };
        slot.insert(Some(methods), handler).map_err(|handler| (Caller::PathTaken.into(), handler))
    }

    /// Takes the handlers of a path, or of a pattern, out.
    pub(crate) fn remove(&mut self, text: &str) -> Option<Slot> {
        if let Some(slot) = self.exact.remove(text.as_bytes()) {
            return Some(slot);
        }
        let pattern = Pattern::new(text).ok()?;
        let at = self.patterns.binary_search_by(|(own, _)| own.precedence(&pattern)).ok()?;
        Some(self.patterns.remove(at).1)
    }

    /// Takes the handler for every method of one path out.
    pub(crate) fn remove_any(&mut self, path: &str) -> Option<Rc<Handler>> {
        let slot = self.exact.get_mut(path.as_bytes())?;
        let old = slot.any.take();
        if slot.by_method.is_empty() {
            self.exact.remove(path.as_bytes());
        }
        old
    }

    /// The most telling route of a path, as it was sent, that has the method. O(1) for exact paths, then O(n) in the
    /// patterns.
    pub(crate) fn find(&self, path: &str, method: &Method) -> Found {
        let mut allow = MethodSet::empty();
        let mut known = false;
        if let Some(slot) = self.exact.get(&*decoded(path)) {
            match slot.find(method) {
                Some(handler) => return Found::Handler(handler.clone(), None),
                None => slot.allow(&mut allow),
            }
            known = true;
        }
        for (pattern, slot) in self.patterns.iter().filter(|(pattern, _)| pattern.matches(path)) {
            if let Some(handler) = slot.find(method) {
                return match pattern.params(path) {
                    Some(params) => Found::Handler(handler.clone(), Some(params)),
                    None => Found::NoText,
                };
            }
            slot.allow(&mut allow);
            known = true;
        }
        if known { Found::NotAllowed(allow) } else { Found::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(found: &Found, handlers: &[Rc<Handler>]) -> String {
        match found {
            Found::Handler(found, _) => {
                format!("{:?}", handlers.iter().position(|handler| Rc::ptr_eq(handler, found)).unwrap())
            }
            Found::NotAllowed(allow) => allow.iter().map(Method::as_str).collect::<Vec<_>>().join(","),
            Found::NoText => "no text".into(),
            Found::Nothing => "nothing".into(),
        }
    }

    #[test]
    fn the_most_telling_route_that_has_the_method_is_found() {
        let handlers: Vec<_> = (0..6).map(|_| Handler::new(|request: Request| drop(request))).collect();
        let mut routes = Routes::default();
        assert!(routes.insert("/a", handlers[0].clone()).is_ok());
        assert!(routes.insert("/a", handlers[1].clone()).is_err());
        let mut route = |methods: MethodSet, text: &str, at: usize| {
            routes.insert_pattern(methods, text, handlers[at].clone()).map_err(|(error, _)| error.to_string())
        };
        route(Method::POST.into(), "/a", 1).unwrap();
        route(Method::GET | Method::PUT, "/u/{id}", 2).unwrap();
        assert!(route(Method::PUT.into(), "/u/{id}", 3).is_err(), "PUT is taken");
        assert!(route(Method::DELETE.into(), "/u/{name}", 3).is_err(), "one pattern, one set of names");
        route(Method::POST.into(), "/u/new", 3).unwrap();
        route(Method::GET.into(), "/u/*rest", 4).unwrap();
        assert!(route(Method::GET.into(), "/u/*rest/x", 4).is_err());
        let found = |path: &str, method: &Method| name(&routes.find(path, method), &handlers);
        assert_eq!(found("/a", &Method::GET), "0");
        assert_eq!(found("/a", &Method::POST), "1");
        assert_eq!(found("/u/1", &Method::GET), "2");
        assert_eq!(found("/u/1", &Method::HEAD), "2", "who serves GET serves HEAD");
        assert_eq!(found("/u/new", &Method::POST), "3");
        assert_eq!(found("/u/new", &Method::GET), "2", "the next pattern has the method");
        assert_eq!(found("/u/1/2", &Method::GET), "4");
        assert_eq!(found("/u/1", &Method::DELETE), "GET,HEAD,PUT");
        assert_eq!(found("/u/new", &Method::DELETE), "GET,HEAD,POST,PUT");
        assert_eq!(found("/u/%FF", &Method::GET), "no text");
        assert_eq!(found("/x", &Method::GET), "nothing");
        assert!(routes.remove_any("/a").is_some() && routes.remove("/a").is_some());
        assert!(routes.remove("/u/{x}").is_some() && routes.remove("/u/{x}").is_none());
        assert_eq!(name(&routes.find("/u/1", &Method::GET), &handlers), "4");
    }
}
