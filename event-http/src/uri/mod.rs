//! URIs taken apart and put together, as evhttp_uri has them (RFC 3986).

mod encode;
mod grammar;
mod query;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use bitflags::bitflags;

use crate::error::{Error, UriPart};

pub use encode::{Plus, decode_uri, encode_uri, htmlescape, uridecode, uridecode_str, uriencode};
pub use query::{QueryFlags, QueryPair, parse_query_str, query_pairs};

bitflags! {
    /// What [`Uri::parse_with_flags`] and the setters of a [`Uri`] let pass beside RFC 3986. The bits are libevent's.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct UriFlags: u32 {
        /// Path, query and fragment may have any characters but control characters and those that end them.
        #[doc(alias = "EVHTTP_URI_NONCONFORMANT")]
        const NONCONFORMANT = 1;
        /// [`Uri::host`] gives an IP literal without its brackets; the text of the URI has them all the same.
        #[doc(alias = "EVHTTP_URI_HOST_STRIP_BRACKETS")]
        const HOST_STRIP_BRACKETS = 4;
        /// `http://unix:/path/of/socket:/path` names a unix-domain socket in place of a host.
        #[doc(alias = "EVHTTP_URI_UNIX_SOCKET")]
        const UNIX_SOCKET = 8;
    }
}

/// A URI or a relative reference, in parts. The parts are as they stand in the text: nothing is decoded.
///
/// The setters check a part by itself, in any order. The text of a `Uri` (its `Display`) parses again with the same
/// flags: where parts do not go together it has what RFC 3986 has for the case, which is `/` between a host and a
/// path without one, `/.` before a path that would be taken for a host, and `./` before one that would be taken for a
/// scheme. Sizes are not bounded here; a `Uri` holds one copy of each part.
///
/// # Examples
///
/// ```
/// use event_http::{Plus, Uri, query_pairs, uriencode};
///
/// let mut uri = Uri::parse("http://user@example.com:8080/a%20b?tag=x&tag=&n=1+1#top")?;
/// assert_eq!((uri.host(), uri.port(), uri.path()), (Some("example.com"), Some(8080), "/a%20b"));
/// let pairs: Vec<_> = query_pairs(uri.query().unwrap_or("")).collect();
/// assert_eq!(pairs, [("tag".into(), "x".into()), ("tag".into(), "".into()), ("n".into(), "1 1".into())]);
///
/// uri.set_userinfo(None)?;
/// uri.set_query(&*format!("q={}", uriencode("a&b c", Plus::Blank)))?;
/// uri.set_fragment(None)?;
/// assert_eq!(uri.to_string(), "http://example.com:8080/a%20b?q=a%26b+c");
/// assert!(uri.set_path("/a?b").is_err());
/// # Ok::<(), event_http::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "evhttp_uri")]
pub struct Uri {
    flags: UriFlags,
    scheme: Option<String>,
    userinfo: Option<String>,
    /// With the brackets of an IP literal.
    host: Option<String>,
    unix_socket: Option<String>,
    port: Option<u16>,
    path: String,
    query: Option<String>,
    fragment: Option<String>,
}

impl Uri {
    /// A reference without any part; its text is empty.
    #[doc(alias = "evhttp_uri_new")]
    pub fn new() -> Uri {
        Uri::default()
    }

    /// Takes a URI or a relative reference apart.
    ///
    /// # Errors
    /// - `is_invalid_argument` if it is neither by RFC 3986; the text of the error says which part is wrong.
    #[doc(alias = "evhttp_uri_parse")]
    pub fn parse(text: &str) -> Result<Uri, Error> {
        Uri::parse_with_flags(text, UriFlags::empty())
    }

    /// As [`parse`](Uri::parse), with exceptions.
    ///
    /// # Errors
    /// As for [`parse`](Uri::parse).
    #[doc(alias = "evhttp_uri_parse_with_flags")]
    pub fn parse_with_flags(text: &str, flags: UriFlags) -> Result<Uri, Error> {
        let mut uri = Uri { flags, ..Uri::default() };
        let mut rest = text;
        if let Some((scheme, after)) = rest.split_once(':')
            && grammar::is_scheme(scheme)
        {
            uri.scheme = Some(scheme.to_owned());
            rest = after;
        }
        let authority = rest.strip_prefix("//");
        if let Some(after) = authority {
            rest = uri.take_authority(after)?;
        }
        if let Some((before, fragment)) = rest.split_once('#') {
            uri.set_fragment(fragment)?;
            rest = before;
        }
        if let Some((before, query)) = rest.split_once('?') {
            uri.set_query(query)?;
            rest = before;
        }
        let rootless = !rest.is_empty() && !rest.starts_with('/');
        // RFC 3986 section 3.3: a host is followed by a path from the root, and the first segment of a relative path
        // has no colon, as that would make a scheme of it.
        if rootless && (authority.is_some() || (uri.scheme.is_none() && grammar::has_colon_first(rest))) {
            return Err(UriPart::Path.into());
        }
        uri.set_path(rest)?;
        Ok(uri)
    }

    /// What is let pass.
    pub fn flags(&self) -> UriFlags {
        self.flags
    }

    /// Changes what the setters let pass from now on, and how [`host`](Uri::host) gives an IP literal.
    #[doc(alias = "evhttp_uri_set_flags")]
    pub fn set_flags(&mut self, flags: UriFlags) {
        self.flags = flags;
    }

    /// The scheme, as it is written: `http` and `HTTP` are the same scheme.
    #[doc(alias = "evhttp_uri_get_scheme")]
    pub fn scheme(&self) -> Option<&str> {
        self.scheme.as_deref()
    }

    /// What is before the `@`.
    #[doc(alias = "evhttp_uri_get_userinfo")]
    pub fn userinfo(&self) -> Option<&str> {
        self.userinfo.as_deref()
    }

    /// The host, which may be empty (`file:///x`). An IP literal has its brackets, unless the flags say otherwise.
    #[doc(alias = "evhttp_uri_get_host")]
    pub fn host(&self) -> Option<&str> {
        let host = self.host.as_deref()?;
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        match inner {
            Some(inner) if self.flags.contains(UriFlags::HOST_STRIP_BRACKETS) => Some(inner),
            _ => Some(host),
        }
    }

    /// The path of a unix-domain socket, if there is one in place of a host.
    #[doc(alias = "evhttp_uri_get_unixsocket")]
    pub fn unix_socket(&self) -> Option<&str> {
        self.unix_socket.as_deref()
    }

    /// The port; `None` as well if it is written and empty (`http://a:/`).
    #[doc(alias = "evhttp_uri_get_port")]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The path, which may be empty.
    #[doc(alias = "evhttp_uri_get_path")]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What is behind the first `?`, up to a `#`.
    #[doc(alias = "evhttp_uri_get_query")]
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// What is behind the `#`.
    #[doc(alias = "evhttp_uri_get_fragment")]
    pub fn fragment(&self) -> Option<&str> {
        self.fragment.as_deref()
    }

    /// Sets the scheme, or removes it.
    ///
    /// # Errors
    /// - `is_invalid_argument` if it is not a letter followed by letters, digits, `+`, `-` and `.`.
    #[doc(alias = "evhttp_uri_set_scheme")]
    pub fn set_scheme<'a>(&mut self, scheme: impl Into<Option<&'a str>>) -> Result<(), Error> {
        self.scheme = checked(scheme.into(), UriPart::Scheme, grammar::is_scheme)?;
        Ok(())
    }

    /// Sets what is before the `@`, or removes it. It is part of the text if there is a host or a socket.
    ///
    /// # Errors
    /// - `is_invalid_argument` if it has a character that must be encoded, such as `@` or `/`.
    #[doc(alias = "evhttp_uri_set_userinfo")]
    pub fn set_userinfo<'a>(&mut self, userinfo: impl Into<Option<&'a str>>) -> Result<(), Error> {
        self.userinfo = checked(userinfo.into(), UriPart::UserInfo, grammar::is_userinfo)?;
        Ok(())
    }

    /// Sets the host, or removes it. An IPv6 address is in brackets.
    ///
    /// # Errors
    /// - `is_invalid_argument` if it is no host: in brackets, but no address; or with a character that must be encoded.
    #[doc(alias = "evhttp_uri_set_host")]
    pub fn set_host<'a>(&mut self, host: impl Into<Option<&'a str>>) -> Result<(), Error> {
        self.host = checked(host.into(), UriPart::Host, grammar::is_host)?;
        Ok(())
    }

    /// Sets the path of a unix-domain socket, or removes it. It takes the place of host and port in the text, which
    /// parses with [`UriFlags::UNIX_SOCKET`] only.
    ///
    /// # Errors
    /// - `is_invalid_argument` if it is empty or has a colon, `?`, `#` or a control character. Without
    ///   [`UriFlags::NONCONFORMANT`] it must be as a path, too.
    #[doc(alias = "evhttp_uri_set_unixsocket")]
    pub fn set_unix_socket<'a>(&mut self, path: impl Into<Option<&'a str>>) -> Result<(), Error> {
        let flags = self.flags;
        self.unix_socket = checked(path.into(), UriPart::UnixSocket, |path| {
            !path.is_empty() && !path.contains(':') && grammar::is_path(path, flags)
        })?;
        Ok(())
    }

    /// Sets the port, or removes it. It is part of the text if there is a host.
    #[doc(alias = "evhttp_uri_set_port")]
    pub fn set_port(&mut self, port: impl Into<Option<u16>>) {
        self.port = port.into();
    }

    /// Sets the path; empty for none.
    ///
    /// # Errors
    /// - `is_invalid_argument` if it has a character that must be encoded, such as `?` or `#`, or a `%` without two
    ///   hexadecimal digits behind it.
    #[doc(alias = "evhttp_uri_set_path")]
    pub fn set_path(&mut self, path: &str) -> Result<(), Error> {
        let flags = self.flags;
        let path = checked(Some(path), UriPart::Path, |path| grammar::is_path(path, flags))?;
        self.path = path.unwrap_or_default();
        Ok(())
    }

    /// Sets the query, or removes it.
    ///
    /// # Errors
    /// - `is_invalid_argument` if it has a character that must be encoded, such as `#`, or a `%` without two hexadecimal
    ///   digits behind it.
    #[doc(alias = "evhttp_uri_set_query")]
    pub fn set_query<'a>(&mut self, query: impl Into<Option<&'a str>>) -> Result<(), Error> {
        let flags = self.flags;
        self.query = checked(query.into(), UriPart::Query, |query| grammar::is_query(query, flags))?;
        Ok(())
    }

    /// Sets the fragment, or removes it.
    ///
    /// # Errors
    /// - `is_invalid_argument` as for [`set_query`](Uri::set_query).
    #[doc(alias = "evhttp_uri_set_fragment")]
    pub fn set_fragment<'a>(&mut self, fragment: impl Into<Option<&'a str>>) -> Result<(), Error> {
        let flags = self.flags;
        self.fragment =
            checked(fragment.into(), UriPart::Fragment, |fragment| grammar::is_fragment(fragment, flags))?;
        Ok(())
    }

    /// The URI that a request target names; its parts were checked by the parser of the request.
    pub(crate) fn of_target(
        scheme: Option<&str>,
        authority: Option<&str>,
        path: &str,
        query: Option<&str>,
    ) -> Uri {
        let (host, port) = authority.map(grammar::split_port).unzip();
        Uri {
            flags: UriFlags::NONCONFORMANT,
            scheme: scheme.map(str::to_owned),
            host: host.map(str::to_owned),
            port: port.flatten().and_then(|port| port.parse().ok()),
            path: path.to_owned(),
            query: query.map(str::to_owned),
            ..Uri::default()
        }
    }

    /// Takes the authority at the start of `text`, which begins behind the `//`; gives what follows it.
    fn take_authority<'t>(&mut self, text: &'t str) -> Result<&'t str, Error> {
        if let Some(rest) = self.take_unix_socket(text)? {
            return Ok(rest);
        }
        let (authority, rest) = text.split_at(text.find(['/', '?', '#']).unwrap_or(text.len()));
        let host = match authority.split_once('@') {
            Some((userinfo, after)) => {
                self.set_userinfo(userinfo)?;
                if let Some(rest) = self.take_unix_socket(&text[userinfo.len() + 1..])? {
                    return Ok(rest);
                }
                after
            }
            None => authority,
        };
        let (host, port) = grammar::split_port(host);
        self.set_host(host)?;
        self.port = match port {
            None | Some("") => None,
            Some(port) => Some(grammar::port(port).ok_or(UriPart::Port)?),
        };
        Ok(rest)
    }

    /// Takes `unix:PATH:` at the start of `text`, if it is there and looked for; gives what follows it.
    fn take_unix_socket<'t>(&mut self, text: &'t str) -> Result<Option<&'t str>, Error> {
        let wanted = self.flags.contains(UriFlags::UNIX_SOCKET);
        let Some(inside) = text.strip_prefix("unix:").filter(|_| wanted) else { return Ok(None) };
        // Without the second colon it is a host of that name and a port.
        let Some((path, rest)) = inside.split_once(':') else { return Ok(None) };
        self.set_unix_socket(path)?;
        Ok(Some(rest))
    }
}

impl FromStr for Uri {
    type Err = Error;

    fn from_str(text: &str) -> Result<Uri, Error> {
        Uri::parse(text)
    }
}

/// The URI as text; evhttp_uri_join.
impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scheme) = &self.scheme {
            write!(f, "{scheme}:")?;
        }
        let authority = self.unix_socket.is_some() || self.host.is_some();
        if authority {
            f.write_str("//")?;
            if let Some(userinfo) = &self.userinfo {
                write!(f, "{userinfo}@")?;
            }
        }
        if let Some(path) = &self.unix_socket {
            write!(f, "unix:{path}:")?;
        } else if let Some(host) = &self.host {
            f.write_str(host)?;
            if let Some(port) = self.port {
                write!(f, ":{port}")?;
            }
        }
        let rootless = !self.path.is_empty() && !self.path.starts_with('/');
        f.write_str(if authority && rootless {
            "/"
        } else if !authority && self.path.starts_with("//") {
            "/."
        } else if !authority && self.scheme.is_none() && grammar::has_colon_first(&self.path) {
            "./"
        } else {
            ""
        })?;
        f.write_str(&self.path)?;
        if let Some(query) = &self.query {
            write!(f, "?{query}")?;
        }
        if let Some(fragment) = &self.fragment {
            write!(f, "#{fragment}")?;
        }
        Ok(())
    }
}

/// A copy of a part that is as it should be.
fn checked(
    part: Option<&str>,
    kind: UriPart,
    is_good: impl FnOnce(&str) -> bool,
) -> Result<Option<String>, Error> {
    match part {
        Some(part) if !is_good(part) => Err(kind.into()),
        part => Ok(part.map(str::to_owned)),
    }
}
