//! An ordered list of header fields over one buffer of bytes.

use std::fmt;

use crate::error::{Caller, Error};
use crate::head::token;

/// A piece of a head: `start + len` never exceeds the length of the buffer it points into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl Span {
    /// The piece of that place and length, `None` if it does not fit 32 bits.
    pub(crate) fn new(start: usize, len: usize) -> Option<Span> {
        Some(Span { start: u32::try_from(start).ok()?, len: u32::try_from(len).ok()? })
    }

    /// The place of `piece` in `whole`, which holds less than 4 GiB. If `piece` does not lie in it, the span is one
    /// that [`slice`](Span::slice) makes nothing of, or some other piece of `whole`.
    pub(crate) fn of(piece: &[u8], whole: &[u8]) -> Span {
        let start = (piece.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        debug_assert!(start <= whole.len() && piece.len() <= whole.len() - start);
        Span { start: start as u32, len: piece.len() as u32 }
    }

    /// The same piece in a buffer that has `by` more bytes in front.
    pub(crate) fn shifted(self, by: u32) -> Span {
        Span { start: self.start + by, len: self.len }
    }

    #[inline]
    pub(crate) fn slice(self, whole: &[u8]) -> &[u8] {
        whole.get(self.start as usize..self.start as usize + self.len as usize).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: Span,
    pub(crate) value: Span,
}

/// Header fields in the order in which they were sent or added; duplicates are kept, names compare without case.
///
/// All names and values lie in one buffer, so a list costs two allocations whatever its length, and [`clear`]
/// keeps both for the next use. A field that is removed leaves its bytes there until the list is cleared. Nothing that
/// holds CR, LF, NUL or another control character gets in, so what is in the list may go on the wire.
///
/// # Examples
///
/// ```
/// use event_http::Headers;
///
/// let mut headers = Headers::new();
/// headers.add("Content-Type", "text/plain")?;
/// headers.add("X-Trace", "a")?;
/// assert_eq!(headers.get_str("content-type"), Some("text/plain"));
/// assert!(headers.add("X-Trace", "a\r\nX-Injected: yes").is_err());
/// # Ok::<(), event_http::Error>(())
/// ```
///
/// [`clear`]: Headers::clear
#[derive(Clone, Default)]
#[doc(alias = "evkeyvalq")]
pub struct Headers {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fields: Vec<Field>,
}

impl Headers {
    /// An empty list; allocates nothing.
    pub const fn new() -> Headers {
        Headers { bytes: Vec::new(), fields: Vec::new() }
    }

    /// Adds a field behind the others; SP and HTAB at the ends of `value` are left out.
    ///
    /// # Errors
    /// Nothing is added, and the error's `is_invalid_argument` is true, if
    /// - `name` is not a token (RFC 9110 section 5.1): empty, or with a blank, a colon, CR, LF or NUL;
    /// - `value` has a control character other than HTAB.
    #[doc(alias = "evhttp_add_header")]
    pub fn add(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let (name, value) = (name.as_ref(), token::trim(value.as_ref()));
        if !token::is_token(name) {
            return Err(Caller::Name.into());
        }
        if !token::is_field_text(value) {
            return Err(Caller::Value.into());
        }
        let start = self.bytes.len();
        let (Some(name_span), Some(value_span)) =
            (Span::new(start, name.len()), Span::new(start + name.len() + 2, value.len()))
        else {
            return Err(Caller::HeadersTooLarge.into());
        };
        self.bytes.reserve(name.len() + value.len() + 4);
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
        self.fields.push(Field { name: name_span, value: value_span });
        Ok(())
    }

    /// Removes every field of that name and adds this one behind the others.
    ///
    /// # Errors
    /// As for [`add`](Headers::add); the list is then unchanged.
    pub fn set(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let name = name.as_ref();
        let before = self.fields.len();
        self.add(name, value)?;
        let mut index = 0;
        let bytes = &self.bytes;
        self.fields.retain(|field| {
            index += 1;
            index > before || !field.name.slice(bytes).eq_ignore_ascii_case(name)
        });
        Ok(())
    }

    /// Removes the first field of that name; false if there is none.
    #[doc(alias = "evhttp_remove_header")]
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(at) = self.position(name) else { return false };
        self.fields.remove(at);
        true
    }

    /// Removes every field; memory is kept for the next ones.
    #[doc(alias = "evhttp_clear_headers")]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.fields.clear();
    }

    /// The value of the first field of that name.
    #[doc(alias = "evhttp_find_header")]
    pub fn get(&self, name: &str) -> Option<HeaderValue<'_>> {
        self.position(name).map(|at| HeaderValue(self.fields[at].value.slice(&self.bytes)))
    }

    /// The value of the first field of that name, if it is valid UTF-8; another value counts as absent.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(HeaderValue::to_str)
    }

    /// The values of all fields of that name, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = HeaderValue<'a>> {
        self.raw().filter(move |(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, v)| HeaderValue(v))
    }

    /// True if there is a field of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    /// Names and values in order. Names are as they were sent or added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, HeaderValue<'_>)> {
        // Names are tokens, which are ASCII.
        self.raw().map(|(name, value)| (std::str::from_utf8(name).unwrap_or_default(), HeaderValue(value)))
    }

    /// The number of fields, each duplicate counted.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// True if there is no field.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Appends the field as a line with CRLF.
    pub(crate) fn push_line(&self, field: Field, out: &mut Vec<u8>) {
        let (name, value) = (field.name, field.value);
        // A field that was added lies there as the line it becomes; one that was received may have other blanks.
        if value.start == name.start + name.len + 2
            && let line = (Span { start: name.start, len: name.len + value.len + 4 }).slice(&self.bytes)
            && line.ends_with(b"\r\n")
        {
            out.extend_from_slice(line);
        } else {
            out.extend_from_slice(name.slice(&self.bytes));
            out.extend_from_slice(b": ");
            out.extend_from_slice(value.slice(&self.bytes));
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Names and values as bytes.
    pub(crate) fn raw(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (field.name.slice(&self.bytes), field.value.slice(&self.bytes)))
    }

    /// Memory held, in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.fields.capacity() * size_of::<Field>()
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.fields
            .iter()
            .position(|field| field.name.slice(&self.bytes).eq_ignore_ascii_case(name.as_bytes()))
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The value of a header field: bytes, nearly always text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeaderValue<'a>(&'a [u8]);

impl<'a> HeaderValue<'a> {
    /// The bytes, without blanks at the ends.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The value as text; `None` if it is not valid UTF-8.
    pub fn to_str(self) -> Option<&'a str> {
        std::str::from_utf8(self.0).ok()
    }
}

impl fmt::Debug for HeaderValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for HeaderValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(self.0))
    }
}

impl PartialEq<&str> for HeaderValue<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Headers {
        let mut headers = Headers::new();
        headers.add("Host", "a").unwrap();
        headers.add("X-A", " one\t").unwrap();
        headers.add("x-a", "two").unwrap();
        headers
    }

    #[test]
    fn order_and_duplicates_are_kept_and_names_compare_without_case() {
        let headers = sample();
        assert_eq!(headers.len(), 3);
        assert_eq!(headers.get_str("HOST"), Some("a"));
        assert_eq!(headers.get_all("X-a").map(HeaderValue::as_bytes).collect::<Vec<_>>(), [b"one", b"two"]);
        let names: Vec<&str> = headers.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["Host", "X-A", "x-a"]);
        assert_eq!(format!("{headers:?}"), r#"{"Host": "a", "X-A": "one", "x-a": "two"}"#);
    }

    #[test]
    fn removing_takes_the_first_and_setting_replaces_all() {
        let mut headers = sample();
        assert!(headers.remove("X-A"));
        assert_eq!(headers.get_str("x-a"), Some("two"));
        headers.add("X-A", "three").unwrap();
        headers.set("x-A", "four").unwrap();
        assert_eq!(headers.get_all("x-a").count(), 1);
        assert_eq!(headers.get_str("x-a"), Some("four"));
        assert!(!headers.remove("absent"));
    }

    #[test]
    fn nothing_that_would_split_a_message_gets_in() {
        let mut headers = sample();
        for name in ["", "a b", "a:", "a\r\nb", "a\0", "\u{e9}"] {
            assert!(headers.add(name, "v").is_err_and(|e| e.is_invalid_argument()), "{name:?}");
        }
        for value in ["a\r\nX-Injected: yes", "a\nb", "a\rb", "a\0b", "a\r\n folded", "\x7f"] {
            assert!(headers.add("X", value).is_err_and(|e| e.is_caller()), "{value:?}");
            assert!(headers.set("Host", value).is_err());
        }
        assert_eq!(headers.len(), 3, "a refused field leaves the list as it was");
        assert_eq!(headers.get_str("host"), Some("a"));
    }

    #[test]
    fn clearing_keeps_the_memory() {
        let mut headers = sample();
        let held = headers.capacity();
        headers.clear();
        assert!(headers.is_empty() && headers.get("host").is_none());
        assert_eq!(headers.capacity(), held);
    }

    #[test]
    fn a_value_that_is_no_text_is_still_there_as_bytes() {
        let mut headers = Headers::new();
        headers.add("X", b"caf\xe9").unwrap();
        assert_eq!(headers.get_str("x"), None);
        assert_eq!(headers.get("x").map(HeaderValue::as_bytes), Some(&b"caf\xe9"[..]));
    }

    #[test]
    fn a_span_outside_its_buffer_is_empty() {
        let whole = b"0123456789";
        assert_eq!(Span::of(&whole[3..5], whole), Span { start: 3, len: 2 });
        assert_eq!(Span { start: 8, len: 9 }.slice(whole), b"");
    }
}
