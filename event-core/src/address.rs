//! `Address`: where a listener listens and a stream connects to, as a value and as text.

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::Error;

/// What the text of a unix address begins with.
const UNIX: &str = "unix:";

/// Where a listener listens or a stream connects to.
///
/// As text it is `127.0.0.1:80`, `[::1]:80` or `unix:/run/app.sock`, and what is written is read back as the same:
///
/// - `unix:@name` is a name in Linux's abstract namespace, and `unix:` the unnamed end of a unix socket.
/// - In a path, `%` and two hex digits stand for a byte. So are written: control characters, what is not UTF-8, `%`
///   itself, and an `@` that begins the path of a file. An address is one line, whatever a peer has named its socket.
/// - The flow label of an IPv6 address is not written.
///
/// ```
/// use event_core::Address;
///
/// let address: Address = "unix:/run/app.sock".parse()?;
/// assert_eq!(address, Address::unix("/run/app.sock"));
/// assert_eq!(address.to_string(), "unix:/run/app.sock");
/// # Ok::<(), event_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// An IPv4 or IPv6 address and port.
    Ip(SocketAddr),
    /// A unix-domain socket; `None` for the unnamed end of one. A path that begins with a NUL is a name in Linux's
    /// abstract namespace.
    Unix(Option<PathBuf>),
}

impl Address {
    /// The unix-domain socket at a path.
    pub fn unix(path: impl Into<PathBuf>) -> Address {
        Address::Unix(Some(path.into()))
    }

    /// The IP address and port, if it is one.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self {
            Address::Ip(ip) => Some(*ip),
            Address::Unix(_) => None,
        }
    }

    /// The port, if it has one.
    pub fn port(&self) -> Option<u16> {
        self.socket_addr().map(|ip| ip.port())
    }

    /// The path of a unix-domain socket, if it is one and has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Address::Ip(_) => None,
            Address::Unix(path) => path.as_deref(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(ip) => ip.fmt(f),
            Address::Unix(path) => {
                let bytes = path.as_ref().map_or(&[][..], |path| path.as_os_str().as_bytes());
                f.pad(&format!("{UNIX}{}", escaped(bytes)))
            }
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    /// Reads a number, never a name: nothing is looked up.
    ///
    /// # Errors
    /// - `Error::Invalid` if it is none.
    fn from_str(text: &str) -> Result<Address, Error> {
        let Some(path) = text.strip_prefix(UNIX) else {
            let ip = text.parse().map(Address::Ip);
            return ip.map_err(|_| Error::Invalid("an address is IP:PORT, [IPv6]:PORT or unix:PATH"));
        };
        let (is_abstract, rest) = match path.strip_prefix('@') {
            Some(name) => (true, name),
            None => (false, path),
        };
        let bytes = unescaped(rest)?;
        let path = match (is_abstract, bytes.is_empty()) {
            (false, true) => None,
            (false, false) => Some(bytes),
            (true, _) => Some([&[0], &bytes[..]].concat()),
        };
        Ok(Address::Unix(path.map(|bytes| PathBuf::from(OsString::from_vec(bytes)))))
    }
}

/// A path as text of one line.
fn escaped(bytes: &[u8]) -> String {
    let (mut text, rest) = match bytes {
        [0, name @ ..] => ("@".to_owned(), name),
        [b'@', rest @ ..] => ("%40".to_owned(), rest),
        rest => (String::new(), rest),
    };
    let escape = |text: &mut String, bytes: &[u8]| {
        text.extend(bytes.iter().map(|byte| format!("%{byte:02X}")));
    };
    for chunk in rest.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c.is_control() || c == '%' {
                true => escape(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes()),
                false => text.push(c),
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

fn unescaped(text: &str) -> Result<Vec<u8>, Error> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or(Error::Invalid("after % in a path come two hex digits: %25 is a % itself"))?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    Ok(bytes)
}

impl From<SocketAddr> for Address {
    fn from(ip: SocketAddr) -> Address {
        Address::Ip(ip)
    }
}

/// What can be listened on: an [`Address`], its text, a name with a port, a path.
///
/// | of | such as |
/// |---|---|
/// | text | `"127.0.0.1:80"`, `"[::]:80"`, `"localhost:80"`, `"unix:/run/app.sock"` |
/// | a name or number, and a port | `("127.0.0.1", 80)`, `(Ipv6Addr::UNSPECIFIED, 80)` |
/// | an address | `SocketAddr`, `Address` |
/// | a path | `Path`, `PathBuf` |
pub trait ToAddress {
    /// The addresses that it stands for, in the order in which they are tried. A name is looked up before this returns.
    ///
    /// # Errors
    /// - `Error::Invalid` if it is no address; `Error::Io` if a name is not known.
    fn to_addresses(&self) -> Result<Vec<Address>, Error>;
}

impl<T: ToAddress + ?Sized> ToAddress for &T {
    fn to_addresses(&self) -> Result<Vec<Address>, Error> {
        T::to_addresses(self)
    }
}

impl ToAddress for Address {
    fn to_addresses(&self) -> Result<Vec<Address>, Error> {
        Ok(vec![self.clone()])
    }
}

impl ToAddress for str {
    fn to_addresses(&self) -> Result<Vec<Address>, Error> {
        if self.starts_with(UNIX) {
            return Ok(vec![self.parse()?]);
        }
        if let Ok(ip) = self.parse() {
            return Ok(vec![Address::Ip(ip)]);
        }
        let parts = self.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        let (host, port) =
            parts.ok_or(Error::Invalid("an address is IP:PORT, [IPv6]:PORT, NAME:PORT or unix:PATH"))?;
        // An IPv6 address with the name of its interface stands in brackets, and is for the resolver.
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        (host, port).to_addresses()
    }
}

impl ToAddress for String {
    fn to_addresses(&self) -> Result<Vec<Address>, Error> {
        self.as_str().to_addresses()
    }
}

impl ToAddress for (&str, u16) {
    fn to_addresses(&self) -> Result<Vec<Address>, Error> {
        if self.0.is_empty() {
            return Err(Error::Invalid("there is no host: 0.0.0.0 or [::] is every address of this machine"));
        }
        Ok(self.to_socket_addrs()?.map(Address::Ip).collect())
    }
}

impl ToAddress for (String, u16) {
    fn to_addresses(&self) -> Result<Vec<Address>, Error> {
        (self.0.as_str(), self.1).to_addresses()
    }
}

impl ToAddress for Path {
    fn to_addresses(&self) -> Result<Vec<Address>, Error> {
        Ok(vec![Address::unix(self)])
    }
}

impl ToAddress for PathBuf {
    fn to_addresses(&self) -> Result<Vec<Address>, Error> {
        self.as_path().to_addresses()
    }
}

macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl ToAddress for $type {
            fn to_addresses(&self) -> Result<Vec<Address>, Error> {
                Ok(vec![Address::Ip((*self).into())])
            }
        }
    )+};
}

numbers!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::few::few_under_miri;

    fn unix(bytes: &[u8]) -> Address {
        Address::unix(OsString::from_vec(bytes.to_vec()))
    }

    #[test]
    fn addresses_are_written_as_people_write_them() {
        for text in [
            "127.0.0.1:80",
            "[::1]:0",
            "[fe80::1%3]:80",
            "unix:/run/app.sock",
            "unix:a b/ü",
            "unix:@name",
            "unix:@",
            "unix:",
            "unix:%40file",
            "unix:/tmp/100%25",
            "unix:/a%0Ab",
            "unix:/%FF",
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        assert_eq!("unix:".parse::<Address>().unwrap(), Address::Unix(None));
        assert_eq!("unix:@a%00b".parse::<Address>().unwrap(), unix(b"\0a\0b"));
        assert_eq!("unix:/a%2fb".parse::<Address>().unwrap(), unix(b"/a/b"));
        assert_eq!(format!("{:>8}|{:<8}|", Address::Unix(None), unix(b"/a")), "   unix:|unix:/a |");
    }

    #[test]
    fn every_unix_address_is_read_back_and_is_one_line() {
        let mut seed = 1_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize
        };
        let pieces: [&[u8]; 12] =
            [b"/", b"a", b"@", b"%", b"%4", b"%41", b"\0", b"\n", b"\x7f", b"\xc3\xbc", b"\xc2\x85", b"\xff"];
        for _ in 0..few_under_miri(2000, 50) {
            let mut bytes = b"x".to_vec();
            if next() % 2 == 0 {
                bytes.clear();
                bytes.extend_from_slice(pieces[next() % pieces.len()]);
            }
            for _ in 0..next() % 8 {
                bytes.extend_from_slice(pieces[next() % pieces.len()]);
            }
            let address = unix(&bytes);
            let text = address.to_string();
            assert!(!text.contains(char::is_control), "{text:?}");
            assert_eq!(text.parse::<Address>().unwrap(), address, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_and_names_are_not_looked_up() {
        for text in [
            "",
            "80",
            ":80",
            "127.0.0.1",
            "127.0.0.1:",
            "127.0.0.1:65536",
            "::1:80",
            "localhost:80",
            "Unix:/a",
            "/run/app.sock",
            "unix:/%",
            "unix:/%4",
            "unix:/%4g",
            "unix:/%+1",
            "unix:/%é",
        ] {
            assert!(matches!(text.parse::<Address>(), Err(Error::Invalid(_))), "{text}");
        }
    }

    #[test]
    fn every_way_to_say_it_is_the_same_address() {
        let one = |address: &dyn ToAddress| address.to_addresses().unwrap();
        let ip: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let SocketAddr::V4(four) = ip else { panic!() };
        let ways: [&dyn ToAddress; 8] = [
            &"127.0.0.1:80",
            &"127.0.0.1:80".to_owned(),
            &("127.0.0.1", 80),
            &("127.0.0.1".to_owned(), 80),
            &ip,
            &four,
            &(ip.ip(), 80),
            &Address::from(ip),
        ];
        for way in ways {
            assert_eq!(one(way), [Address::Ip(ip)]);
        }
        for six in ["[::1]:80", "[::1%0]:80"] {
            assert_eq!(one(&six), one(&(Ipv6Addr::LOCALHOST, 80)), "{six}");
        }
        let paths: [&dyn ToAddress; 4] = [&"unix:/a", &Path::new("/a"), &PathBuf::from("/a"), &unix(b"/a")];
        for way in paths {
            assert_eq!(one(way), [Address::unix("/a")]);
        }
        assert!(one(&"localhost:80").iter().all(|address| address.port() == Some(80)));
    }

    #[test]
    fn a_host_is_needed_and_a_port() {
        for text in ["", "80", ":80", "localhost", "localhost:", "localhost:http", "127.0.0.1:-1"] {
            assert!(matches!(text.to_addresses(), Err(Error::Invalid(_))), "{text}");
        }
        assert!(matches!(("", 80).to_addresses(), Err(Error::Invalid(_))));
    }

    #[test]
    fn an_address_tells_its_parts() {
        let ip: Address = "[::1]:80".parse().unwrap();
        assert_eq!((ip.port(), ip.path()), (Some(80), None));
        assert_eq!(ip.socket_addr(), Some("[::1]:80".parse().unwrap()));
        let file = Address::unix("/a");
        assert_eq!((file.port(), file.socket_addr(), file.path()), (None, None, Some(Path::new("/a"))));
        assert_eq!(Address::Unix(None).path(), None);
    }
}
