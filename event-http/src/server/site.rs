//! The handlers of one host: a server's own, and those of its virtual hosts.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use crate::error::{Caller, Error, Ours};
use crate::head::{Method, MethodSet};
use crate::server::Request;
use crate::server::routes::{Found, Handler, HandlerReturn, Routes};

/// Handlers by path, and the hosts below.
#[derive(Default)]
pub(crate) struct Site {
    gencb: RefCell<Option<Rc<Handler>>>,
    routes: RefCell<Routes>,
    hosts: RefCell<Vec<(Box<str>, Rc<Site>)>>,
    aliases: RefCell<Vec<Box<str>>>,
    /// Shared by the sites of a server.
    flags: Rc<Flags>,
    gone: Cell<bool>,
}

/// What the sites of a server have had, ever: what most servers never have costs a request one look.
#[derive(Default)]
struct Flags {
    /// Routes or hosts; without them only the handler for everything is there.
    any: Cell<bool>,
    /// Handlers that want requests before their bodies.
    early: Cell<bool>,
}

/// What a site holds of the program's, for the caller to drop.
#[derive(Default)]
pub(crate) struct Contents(Vec<(Option<Rc<Handler>>, Routes)>);

impl Site {
    pub(crate) fn set_gencb(&self, handler: Rc<Handler>) {
        let old = if self.gone.get() { Some(handler) } else { self.gencb.replace(Some(handler)) };
        drop(old);
    }

    pub(crate) fn set_cb(&self, path: &str, handler: Rc<Handler>) -> Result<(), Error> {
        if self.gone.get() {
            drop(handler);
            return Err(Ours::ServerGone.into());
        }
        self.flags.any.set(true);
        let inserted = self.routes.borrow_mut().insert(path, handler);
        inserted.map_err(|refused| {
            drop(refused);
            Caller::PathTaken.into()
        })
    }

    pub(crate) fn route(&self, methods: MethodSet, pattern: &str, handler: Rc<Handler>) -> Result<(), Error> {
        if self.gone.get() {
            drop(handler);
            return Err(Ours::ServerGone.into());
        }
        self.flags.any.set(true);
        self.flags.early.set(self.flags.early.get() || handler.is_early());
        let inserted = self.routes.borrow_mut().insert_pattern(methods, pattern, handler);
        match inserted {
            Ok(()) => Ok(()),
            Err((error, refused)) => {
                drop(refused);
                Err(error)
            }
        }
    }

    pub(crate) fn del_cb(&self, path: &str) -> bool {
        let old = self.routes.borrow_mut().remove_any(path);
        old.is_some()
    }

    pub(crate) fn del_route(&self, pattern: &str) -> bool {
        let old = self.routes.borrow_mut().remove(pattern);
        old.is_some()
    }

    pub(crate) fn add_virtual_host(&self, pattern: &str) -> Result<VirtualHost, Error> {
        if self.gone.get() {
            return Err(Ours::ServerGone.into());
        }
        let mut hosts = self.hosts.borrow_mut();
        if hosts.iter().any(|(own, _)| own.eq_ignore_ascii_case(pattern)) {
            return Err(Caller::HostTaken.into());
        }
        self.flags.any.set(true);
        let site = Rc::new(Site { flags: self.flags.clone(), ..Site::default() });
        hosts.push((pattern.into(), site.clone()));
        Ok(VirtualHost { site })
    }

    pub(crate) fn remove_virtual_host(&self, host: &VirtualHost) -> bool {
        let removed = {
            let mut hosts = self.hosts.borrow_mut();
            let at = hosts.iter().position(|(_, site)| Rc::ptr_eq(site, &host.site));
            at.map(|at| hosts.remove(at))
        };
        let Some((_, site)) = removed else { return false };
        let contents = site.close();
        drop(contents);
        true
    }

    pub(crate) fn add_alias(&self, name: &str) -> Result<(), Error> {
        if self.gone.get() {
            return Err(Ours::ServerGone.into());
        }
        if !self.has_alias(name) {
            self.aliases.borrow_mut().push(name.into());
        }
        Ok(())
    }

    pub(crate) fn remove_alias(&self, name: &str) -> bool {
        let mut aliases = self.aliases.borrow_mut();
        let before = aliases.len();
        aliases.retain(|own| !own.eq_ignore_ascii_case(name));
        aliases.len() < before
    }

    fn has_alias(&self, name: &str) -> bool {
        self.aliases.borrow().iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// The site that serves a host: by name in the whole tree first, then by pattern, the innermost one.
    pub(crate) fn of_host(self: &Rc<Site>, host: Option<&str>) -> Rc<Site> {
        let name = host.map(without_port).unwrap_or_default();
        if self.hosts.borrow().is_empty() || name.is_empty() {
            return self.clone();
        }
        if let Some(site) = self.by_alias(name) {
            return site;
        }
        let mut site = self.clone();
        loop {
            let inner = site
                .hosts
                .borrow()
                .iter()
                .find(|(pattern, _)| glob(pattern.as_bytes(), name.as_bytes()))
                .map(|(_, site)| site.clone());
            match inner {
                Some(inner) => site = inner,
                None => return site,
            }
        }
    }

    fn by_alias(self: &Rc<Site>, name: &str) -> Option<Rc<Site>> {
        if self.has_alias(name) {
            return Some(self.clone());
        }
        self.hosts.borrow().iter().find_map(|(_, site)| site.by_alias(name))
    }

    /// The handler of everything, if there is nothing to choose from.
    pub(crate) fn only(&self) -> Option<Rc<Handler>> {
        if self.flags.any.get() { None } else { self.gencb.borrow().clone() }
    }

    /// Whether a request may have to be handed out before its body.
    pub(crate) fn is_early(&self) -> bool {
        self.flags.early.get()
    }

    /// What serves a path, as it was sent.
    pub(crate) fn find(&self, path: &str, method: &Method) -> Found {
        let routes = self.routes.borrow();
        if !routes.is_empty() {
            match routes.find(path, method) {
                Found::Nothing => {}
                found => return found,
            }
        }
        match &*self.gencb.borrow() {
            Some(handler) => Found::Handler(handler.clone(), None),
            None => Found::Nothing,
        }
    }

    /// Takes everything out, of the hosts below too; nothing is put in again.
    pub(crate) fn close(&self) -> Contents {
        self.gone.set(true);
        let mut contents = vec![(self.gencb.take(), self.routes.take())];
        for (_, site) in self.hosts.take() {
            contents.extend(site.close().0);
        }
        Contents(contents)
    }
}

/// A host that shares its server's sockets and has handlers of its own: libevent's `evhttp` without sockets.
///
/// A clonable handle, made by [`Server::add_virtual_host`](crate::Server::add_virtual_host); dropping handles does
/// nothing. Once it is removed, or its server freed, its handlers are gone and setting one is an error. Limits, allowed
/// methods and callbacks of other kinds are the server's.
///
/// A request for one of its hosts that none of its handlers serves is answered 404: it does not fall back to the
/// server's.
#[derive(Clone)]
pub struct VirtualHost {
    site: Rc<Site>,
}

impl VirtualHost {
    /// As [`Server::set_gencb`](crate::Server::set_gencb), for this host.
    #[doc(alias = "evhttp_set_gencb")]
    pub fn set_gencb<R: HandlerReturn>(&self, handler: impl FnMut(Request) -> R + 'static) {
        self.site.set_gencb(Handler::new(handler));
    }

    /// As [`Server::set_cb`](crate::Server::set_cb), for this host.
    ///
    /// # Errors
    /// - `is_caller` if the path has a handler already; `is_server_gone`.
    #[doc(alias = "evhttp_set_cb")]
    pub fn set_cb<R: HandlerReturn>(
        &self,
        path: &str,
        handler: impl FnMut(Request) -> R + 'static,
    ) -> Result<(), Error> {
        self.site.set_cb(path, Handler::new(handler))
    }

    /// As [`Server::route`](crate::Server::route), for this host.
    ///
    /// # Errors
    /// - `is_caller` if it is no pattern or a method of it has a handler already; `is_server_gone`.
    pub fn route<R: HandlerReturn>(
        &self,
        methods: impl Into<MethodSet>,
        pattern: &str,
        handler: impl FnMut(Request) -> R + 'static,
    ) -> Result<(), Error> {
        self.site.route(methods.into(), pattern, Handler::new(handler))
    }

    /// As [`Server::route_early`](crate::Server::route_early), for this host.
    ///
    /// # Errors
    /// As [`route`](Self::route).
    pub fn route_early<R: HandlerReturn>(
        &self,
        methods: impl Into<MethodSet>,
        pattern: &str,
        handler: impl FnMut(Request) -> R + 'static,
    ) -> Result<(), Error> {
        self.site.route(methods.into(), pattern, Handler::early(handler))
    }

    /// Takes away what `set_cb` has set; false if nothing was.
    #[doc(alias = "evhttp_del_cb")]
    pub fn del_cb(&self, path: &str) -> bool {
        self.site.del_cb(path)
    }

    /// Takes away every handler of a pattern; false if it had none.
    pub fn del_route(&self, pattern: &str) -> bool {
        self.site.del_route(pattern)
    }

    /// Adds a host below this one: asked after this one's pattern has matched.
    ///
    /// # Errors
    /// - `is_caller` if this host has one of that pattern; `is_server_gone`.
    #[doc(alias = "evhttp_add_virtual_host")]
    pub fn add_virtual_host(&self, pattern: &str) -> Result<VirtualHost, Error> {
        self.site.add_virtual_host(pattern)
    }

    /// Removes a host below this one and drops its handlers; false if it is none.
    #[doc(alias = "evhttp_remove_virtual_host")]
    pub fn remove_virtual_host(&self, host: &VirtualHost) -> bool {
        self.site.remove_virtual_host(host)
    }

    /// Adds one more name of this host, compared whole and without case; names win over patterns.
    ///
    /// # Errors
    /// - `is_server_gone`.
    #[doc(alias = "evhttp_add_server_alias")]
    pub fn add_server_alias(&self, name: &str) -> Result<(), Error> {
        self.site.add_alias(name)
    }

    /// Removes such a name; false if there was none.
    #[doc(alias = "evhttp_remove_server_alias")]
    pub fn remove_server_alias(&self, name: &str) -> bool {
        self.site.remove_alias(name)
    }
}

impl fmt::Debug for VirtualHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualHost").finish_non_exhaustive()
    }
}

/// The host of a Host field without its port; a v6 address keeps its brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Whether `name` is what `pattern` says, in which a star stands for any text, also for none. Without case.
///
/// Linear in `name` for each star: only the last one is tried again.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    let mut again = None;
    while seen < name.len() {
        if pattern.get(at) == Some(&b'*') {
            again = Some((at, seen));
            at += 1;
        } else if pattern.get(at).is_some_and(|byte| byte.eq_ignore_ascii_case(&name[seen])) {
            (at, seen) = (at + 1, seen + 1);
        } else if let Some((star, from)) = again {
            again = Some((star, from + 1));
            (at, seen) = (star + 1, from + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text_wherever_it_is() {
        for (pattern, name, matches) in [
            ("*.example.com", "www.example.com", true),
            ("*.example.com", "WWW.Example.COM", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "www.example.org", false),
            ("www.*", "www.example.com", true),
            ("www.*", "www.", true),
            ("www.*", "ww.example.com", false),
            ("*", "anything", true),
            ("*", "", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("**a", "ba", true),
            ("example.com", "example.com", true),
            ("example.com", "example.comx", false),
            ("", "x", false),
        ] {
            assert_eq!(glob(pattern.as_bytes(), name.as_bytes()), matches, "{pattern} {name}");
        }
    }

    #[test]
    fn a_port_is_no_part_of_a_host() {
        for (host, name) in
            [("a", "a"), ("a:80", "a"), ("a:", "a"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]")]
        {
            assert_eq!(without_port(host), name);
        }
    }
}
