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
    /// A unix-domain socket; `None` for the unnamed end of one, which an empty path is as well: neither can be listened
    /// on or connected to. A path that begins with a NUL is a name in Linux's abstract namespace.
    Unix(Option<PathBuf>),
}

impl Address {
    /// The unix-domain socket at a path, which may be a relative one. An empty path is none: `Address::Unix(None)`.
    pub fn unix(path: impl Into<PathBuf>) -> Address {
        Address::Unix(Some(path.into()).filter(|path| !path.as_os_str().is_empty()))
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
            Address::Unix(path) => path.as_deref().filter(|path| !path.as_os_str().is_empty()),
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

/// Addresses that are known, or a name that has to be looked up: what [`ToAddress::to_target`] makes of its text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// The addresses, in the order in which they are tried.
    Addresses(Vec<Address>),
    /// The name of a host, never empty and no number, and a port.
    Name(String, u16),
}

impl Target {
    /// The target of a host, which may be a number and, if that is an IPv6 address, stand in brackets.
    fn of_host(host: &str, port: u16) -> Result<Target, Error> {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(Error::Invalid("there is no host: 0.0.0.0 or [::] is every address of this machine"));
        }
        // With a scope it is read as a whole address only.
        let number = host.parse().map(|ip| SocketAddr::new(ip, port));
        match number.or_else(|_| format!("[{host}]:{port}").parse()) {
            Ok(ip) => Ok(Target::Addresses(vec![Address::Ip(ip)])),
            Err(_) => Ok(Target::Name(host.to_owned(), port)),
        }
    }

    /// Looks the name up, if it is one, before this returns.
    fn look_up(self) -> Result<Vec<Address>, Error> {
        match self {
            Target::Addresses(addresses) => Ok(addresses),
            // For the resolver an IPv6 address with the name of its interface is a name, too.
            Target::Name(host, port) => {
                Ok((host.as_str(), port).to_socket_addrs()?.map(Address::Ip).collect())
            }
        }
    }
}

/// What can be listened on or connected to: an [`Address`], its text, a name with a port, a path.
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

    /// The same with nothing looked up: a name stays a name. Where this is not written it is what
    /// [`to_addresses`](Self::to_addresses) gives.
    ///
    /// # Errors
    /// - `Error::Invalid` if it is no address.
    fn to_target(&self) -> Result<Target, Error> {
        self.to_addresses().map(Target::Addresses)
    }
}

impl<T: ToAddress + ?Sized> ToAddress for &T {
    fn to_addresses(&self) -> Result<Vec<Address>, Error> {
        T::to_addresses(self)
    }

    fn to_target(&self) -> Result<Target, Error> {
        T::to_target(self)
    }
}

impl ToAddress for Address {
    fn to_addresses(&self) -> Result<Vec<Address>, Error> {
        Ok(vec![self.clone()])
    }
}

/// Of what may be a name: looked up at once, or not at all.
macro_rules! names {
    ($(($type:ty, $target:expr)),+) => {$(
        impl ToAddress for $type {
            fn to_addresses(&self) -> Result<Vec<Address>, Error> {
                self.to_target()?.look_up()
            }

            fn to_target(&self) -> Result<Target, Error> {
                let target: fn(&$type) -> Result<Target, Error> = $target;
                target(self)
            }
        }
    )+};
}

names!(
    (str, of_text),
    (String, |text| of_text(text)),
    ((&str, u16), |pair| Target::of_host(pair.0, pair.1)),
    ((String, u16), |pair| Target::of_host(&pair.0, pair.1))
);

fn of_text(text: &str) -> Result<Target, Error> {
    if text.starts_with(UNIX) {
        return Ok(Target::Addresses(vec![text.parse()?]));
    }
    if let Ok(ip) = text.parse() {
        return Ok(Target::Addresses(vec![Address::Ip(ip)]));
    }
    let (host, port) = host_and_port(text)
        .ok_or(Error::Invalid("an address is IP:PORT, [IPv6]:PORT, NAME:PORT or unix:PATH"))?;
    Target::of_host(host, port)
}

fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    // No sign and no space.
    let port = Some(port).filter(|port| port.bytes().all(|digit| digit.is_ascii_digit()))?.parse().ok()?;
    // An IPv6 address with the name of its interface is for the resolver. Without brackets nobody could say where it ends.
    let six = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match six {
        Some(six) => six.contains(':').then_some((six, port)),
        None => (!host.contains([':', '[', ']'])).then_some((host, port)),
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

    /// What it stands for, both as the text of an `Address` and as something to listen on.
    fn read(text: &str) -> [Result<Address, String>; 2] {
        let said = |error: Error| match error {
            Error::Invalid(_) => "invalid".to_owned(),
            other => format!("{other:?}"),
        };
        [text.parse().map_err(said), text.to_addresses().map(|mut all| all.pop().unwrap()).map_err(said)]
    }

    #[test]
    fn odd_texts_are_the_same_to_whoever_reads_an_address() {
        for text in [
            "",
            " ",
            ":",
            "::",
            ":::",
            "[]:80",
            "[::1]",
            "[::1]80",
            "[::1]:",
            "[::1]: 80",
            "[::1]:+80",
            "127.0.0.1:+80",
            "127.0.0.1:-80",
            "127.0.0.1: 80",
            "127.0.0.1:80 ",
            "127.0.0.1:8 0",
            "127.0.0.1:0x50",
            "127.0.0.1:٨٠",
            "127.0.0.1:65536",
            "127.0.0.1:99999999999999999999",
            "127.0.0.1:-0",
            "127.0.0.1:8\0",
            "127.0.0.1",
            "::1:80",
            "fe80::1%lo:80",
            "[localhost]:80",
            "[::1:80",
            "::1]:80",
            "unix",
            "unix :/a",
            " unix:/a",
            "UNIX:/a",
            "/run/app.sock",
            "./app.sock",
        ] {
            assert_eq!(read(text), [Err("invalid".to_owned()), Err("invalid".to_owned())], "{text:?}");
        }
        let ip = |text: &str| Address::Ip(text.parse().unwrap());
        let odd = [
            ("127.0.0.1:0", ip("127.0.0.1:0")),
            ("127.0.0.1:65535", ip("127.0.0.1:65535")),
            ("127.0.0.1:0080", ip("127.0.0.1:80")),
            ("[::]:0", ip("[::]:0")),
            ("[::ffff:127.0.0.1]:80", ip("[::ffff:127.0.0.1]:80")),
            ("unix:", Address::Unix(None)),
            ("unix: ", unix(b" ")),
            ("unix::80", unix(b":80")),
            ("unix:app.sock", unix(b"app.sock")),
            ("unix:../app.sock", unix(b"../app.sock")),
            ("unix:/a\0b", unix(b"/a\0b")),
            ("unix:/a%00b", unix(b"/a\0b")),
            ("unix:%00name", unix(b"\0name")),
        ];
        for (text, address) in odd {
            assert_eq!(read(text), [Ok(address.clone()), Ok(address)], "{text:?}");
        }
        // The name of an interface is for the resolver, which knows numbers of machines and not those of a text.
        if !cfg!(miri) {
            let [as_text, looked_up] = read("[fe80::1%lo]:80");
            assert_eq!(as_text, Err("invalid".to_owned()));
            assert!(looked_up.is_err() || looked_up.unwrap().port() == Some(80));
        }
    }

    #[test]
    fn an_empty_path_is_no_path() {
        assert_eq!(unix(b""), Address::Unix(None));
        assert_eq!(Path::new("").to_addresses().unwrap(), [Address::Unix(None)]);
        let by_hand = Address::Unix(Some(PathBuf::new()));
        assert_eq!((by_hand.to_string(), by_hand.path()), ("unix:".to_owned(), None));
    }

    #[test]
    fn a_target_is_a_number_or_a_name_and_nothing_is_looked_up() {
        let number = |text: &str| Target::Addresses(vec![text.parse().unwrap()]);
        assert_eq!("10.0.0.1:80".to_target().unwrap(), number("10.0.0.1:80"));
        assert_eq!(("[::1]", 80).to_target().unwrap(), number("[::1]:80"));
        assert_eq!(("::1", 80).to_target().unwrap(), number("[::1]:80"));
        assert_eq!(("fe80::1%3", 80).to_target().unwrap(), number("[fe80::1%3]:80"));
        assert_eq!("unix:/a".to_target().unwrap(), number("unix:/a"));
        assert_eq!((Ipv4Addr::LOCALHOST, 80).to_target().unwrap(), number("127.0.0.1:80"));
        let name = |host: &str| Target::Name(host.to_owned(), 80);
        assert_eq!("no.such.host.invalid:80".to_target().unwrap(), name("no.such.host.invalid"));
        assert_eq!(("fe80::1%eth0".to_owned(), 80).to_target().unwrap(), name("fe80::1%eth0"));
        assert!(matches!(("[]", 80).to_target(), Err(Error::Invalid(_))));
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
