//! Request methods and sets of them.

use std::{fmt, ops};

use crate::head::token;

/// A request method (RFC 9110 section 9).
///
/// The methods that evhttp numbers are constants; any other token is an extension method, which a server accepts only
/// if its [`MethodSet`] names it. Methods are case-sensitive. Comparing two known ones compares a byte.
///
/// # Examples
///
/// ```
/// use event_http::Method;
///
/// let allowed = Method::GET | Method::HEAD;
/// assert!(allowed.contains(&Method::GET) && !allowed.contains(&Method::POST));
/// assert_eq!(Method::GET.as_str(), "GET");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
#[doc(alias = "evhttp_cmd_type")]
pub struct Method(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Known(Known),
    Extension(Box<str>),
}

/// In the order of evhttp's bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
enum Known {
    Get,
    Post,
    Head,
    Put,
    Delete,
    Options,
    Trace,
    Connect,
    Patch,
    Propfind,
    Proppatch,
    Mkcol,
    Lock,
    Unlock,
    Copy,
    Move,
}

/// Every known method in the order in which an Allow field lists it.
const KNOWN: [Method; 16] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::PATCH,
    Method::OPTIONS,
    Method::TRACE,
    Method::CONNECT,
    Method::PROPFIND,
    Method::PROPPATCH,
    Method::MKCOL,
    Method::LOCK,
    Method::UNLOCK,
    Method::COPY,
    Method::MOVE,
];

impl Method {
    /// GET.
    #[doc(alias = "EVHTTP_REQ_GET")]
    pub const GET: Method = Method(Repr::Known(Known::Get));
    /// POST.
    #[doc(alias = "EVHTTP_REQ_POST")]
    pub const POST: Method = Method(Repr::Known(Known::Post));
    /// HEAD.
    #[doc(alias = "EVHTTP_REQ_HEAD")]
    pub const HEAD: Method = Method(Repr::Known(Known::Head));
    /// PUT.
    #[doc(alias = "EVHTTP_REQ_PUT")]
    pub const PUT: Method = Method(Repr::Known(Known::Put));
    /// DELETE.
    #[doc(alias = "EVHTTP_REQ_DELETE")]
    pub const DELETE: Method = Method(Repr::Known(Known::Delete));
    /// OPTIONS.
    #[doc(alias = "EVHTTP_REQ_OPTIONS")]
    pub const OPTIONS: Method = Method(Repr::Known(Known::Options));
    /// TRACE.
    #[doc(alias = "EVHTTP_REQ_TRACE")]
    pub const TRACE: Method = Method(Repr::Known(Known::Trace));
    /// CONNECT.
    #[doc(alias = "EVHTTP_REQ_CONNECT")]
    pub const CONNECT: Method = Method(Repr::Known(Known::Connect));
    /// PATCH.
    #[doc(alias = "EVHTTP_REQ_PATCH")]
    pub const PATCH: Method = Method(Repr::Known(Known::Patch));
    /// PROPFIND (RFC 4918).
    #[doc(alias = "EVHTTP_REQ_PROPFIND")]
    pub const PROPFIND: Method = Method(Repr::Known(Known::Propfind));
    /// PROPPATCH (RFC 4918).
    #[doc(alias = "EVHTTP_REQ_PROPPATCH")]
    pub const PROPPATCH: Method = Method(Repr::Known(Known::Proppatch));
    /// MKCOL (RFC 4918).
    #[doc(alias = "EVHTTP_REQ_MKCOL")]
    pub const MKCOL: Method = Method(Repr::Known(Known::Mkcol));
    /// LOCK (RFC 4918).
    #[doc(alias = "EVHTTP_REQ_LOCK")]
    pub const LOCK: Method = Method(Repr::Known(Known::Lock));
    /// UNLOCK (RFC 4918).
    #[doc(alias = "EVHTTP_REQ_UNLOCK")]
    pub const UNLOCK: Method = Method(Repr::Known(Known::Unlock));
    /// COPY (RFC 4918).
    #[doc(alias = "EVHTTP_REQ_COPY")]
    pub const COPY: Method = Method(Repr::Known(Known::Copy));
    /// MOVE (RFC 4918).
    #[doc(alias = "EVHTTP_REQ_MOVE")]
    pub const MOVE: Method = Method(Repr::Known(Known::Move));

    /// The method of that name: a known one, or else an extension method. `None` if `name` is no token.
    pub fn from_name(name: &str) -> Option<Method> {
        if !token::is_token(name.as_bytes()) {
            return None;
        }
        Some(Method::known(name).unwrap_or_else(|| Method(Repr::Extension(name.into()))))
    }

    /// Its name as it stands on the request line.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Repr::Extension(name) => name,
            Repr::Known(known) => match known {
                Known::Get => "GET",
                Known::Post => "POST",
                Known::Head => "HEAD",
                Known::Put => "PUT",
                Known::Delete => "DELETE",
                Known::Options => "OPTIONS",
                Known::Trace => "TRACE",
                Known::Connect => "CONNECT",
                Known::Patch => "PATCH",
                Known::Propfind => "PROPFIND",
                Known::Proppatch => "PROPPATCH",
                Known::Mkcol => "MKCOL",
                Known::Lock => "LOCK",
                Known::Unlock => "UNLOCK",
                Known::Copy => "COPY",
                Known::Move => "MOVE",
            },
        }
    }

    /// The known method of that name; allocates nothing.
    pub(crate) fn known(name: &str) -> Option<Method> {
        let known = match name.as_bytes() {
            b"GET" => Known::Get,
            b"POST" => Known::Post,
            b"HEAD" => Known::Head,
            b"PUT" => Known::Put,
            b"DELETE" => Known::Delete,
            b"OPTIONS" => Known::Options,
            b"TRACE" => Known::Trace,
            b"CONNECT" => Known::Connect,
            b"PATCH" => Known::Patch,
            b"PROPFIND" => Known::Propfind,
            b"PROPPATCH" => Known::Proppatch,
            b"MKCOL" => Known::Mkcol,
            b"LOCK" => Known::Lock,
            b"UNLOCK" => Known::Unlock,
            b"COPY" => Known::Copy,
            b"MOVE" => Known::Move,
            _ => return None,
        };
        Some(Method(Repr::Known(known)))
    }

    fn bit(&self) -> u32 {
        match self.0 {
            Repr::Known(known) => 1 << known as u8,
            Repr::Extension(_) => 0,
        }
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl PartialEq<&str> for Method {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl ops::BitOr for Method {
    type Output = MethodSet;

    fn bitor(self, other: Method) -> MethodSet {
        MethodSet::from(self) | other
    }
}

/// The methods that a server accepts.
///
/// A known method outside the set is answered 405 with an Allow field, an unknown one 501; both close the connection.
/// The default is GET, HEAD, POST, PUT, DELETE, PATCH and OPTIONS. TRACE is left out because it echoes what a browser
/// must not read, CONNECT because it makes a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "evhttp_set_allowed_methods")]
pub struct MethodSet {
    known: u32,
    extensions: Vec<Method>,
}

impl MethodSet {
    /// A set without any method.
    pub const fn empty() -> MethodSet {
        MethodSet { known: 0, extensions: Vec::new() }
    }

    /// Adds `method`.
    #[doc(alias = "evhttp_set_ext_method_cmp")]
    pub fn insert(&mut self, method: Method) {
        self.known |= method.bit();
        if matches!(method.0, Repr::Extension(_)) && !self.extensions.contains(&method) {
            self.extensions.push(method);
        }
    }

    /// Keeps those that are in `others`, too.
    pub(crate) fn keep_common(&mut self, others: &MethodSet) {
        self.known &= others.known;
        self.extensions.retain(|method| others.contains(method));
    }

    /// True if no method is in the set.
    pub fn is_empty(&self) -> bool {
        self.known == 0 && self.extensions.is_empty()
    }

    /// True if `method` is in the set.
    pub fn contains(&self, method: &Method) -> bool {
        match method.0 {
            Repr::Known(_) => self.known & method.bit() != 0,
            Repr::Extension(_) => self.extensions.contains(method),
        }
    }

    /// The methods of the set: the known ones first.
    pub fn iter(&self) -> impl Iterator<Item = &Method> {
        KNOWN.iter().filter(|method| self.known & method.bit() != 0).chain(&self.extensions)
    }

    /// The extension method of that name, if it is in the set.
    pub(crate) fn extension(&self, name: &str) -> Option<&Method> {
        self.extensions.iter().find(|method| method.as_str() == name)
    }
}

/// As an Allow field lists them.
impl fmt::Display for MethodSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, method) in self.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { ", " })?;
            f.write_str(method.as_str())?;
        }
        Ok(())
    }
}

impl Default for MethodSet {
    fn default() -> MethodSet {
        Method::GET
            | Method::HEAD
            | Method::POST
            | Method::PUT
            | Method::DELETE
            | Method::PATCH
            | Method::OPTIONS
    }
}

impl From<Method> for MethodSet {
    fn from(method: Method) -> MethodSet {
        MethodSet::from_iter([method])
    }
}

impl FromIterator<Method> for MethodSet {
    fn from_iter<I: IntoIterator<Item = Method>>(methods: I) -> MethodSet {
        let mut set = MethodSet::empty();
        methods.into_iter().for_each(|method| set.insert(method));
        set
    }
}

impl ops::BitOr<Method> for MethodSet {
    type Output = MethodSet;

    fn bitor(mut self, method: Method) -> MethodSet {
        self.insert(method);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_method_is_found_by_its_name_and_only_in_upper_case() {
        for method in &KNOWN {
            assert_eq!(Method::known(method.as_str()).as_ref(), Some(method));
            assert_eq!(Method::known(&method.as_str().to_lowercase()), None);
        }
        assert_eq!(KNOWN.iter().fold(0, |bits, method| bits | method.bit()), 0xffff);
        assert_eq!((Method::GET.bit(), Method::PATCH.bit(), Method::MOVE.bit()), (1, 0x100, 0x8000));
    }

    #[test]
    fn extension_methods_are_tokens_and_must_be_named() {
        assert_eq!(Method::from_name("GET"), Some(Method::GET));
        assert_eq!(Method::from_name("BAD NAME"), None);
        let flop = Method::from_name("FLOP").unwrap();
        let set = Method::GET | flop.clone();
        assert!(set.contains(&flop) && set.extension("FLOP").is_some());
        assert!(!MethodSet::default().contains(&flop));
        assert_eq!((set.to_string().as_str(), MethodSet::empty().to_string().as_str()), ("GET, FLOP", ""));
        let mut common = set.clone() | Method::PUT;
        common.keep_common(&(flop | Method::GET | Method::POST));
        assert_eq!(common, set);
    }

    #[test]
    fn the_default_leaves_trace_and_connect_out() {
        let set = MethodSet::default();
        assert!(set.contains(&Method::OPTIONS));
        assert!(!set.contains(&Method::TRACE) && !set.contains(&Method::CONNECT));
    }
}
