//! Parses one chunk-size line (RFC 9112 section 7.1).

use crate::error::Peer;
use crate::head::token;

/// Where in a line the parser is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before the first digit.
    Start,
    Size,
    /// Blanks after the size or an extension; a `;` must follow.
    BeforeSemicolon,
    /// After `;`, blanks allowed.
    BeforeName,
    Name,
    /// Blanks after a name: `=` or `;` must follow.
    AfterName,
    /// After `=`, blanks allowed.
    BeforeValue,
    Value,
    Quoted,
    /// After a backslash in a quoted string.
    Escaped,
    /// After the closing quote.
    AfterQuoted,
    /// After CR.
    Cr,
}

/// Parses the chunk-size line at the start of `input`; returns its length with CRLF and the size, or `None` if more
/// bytes are needed.
///
/// The size is one or more hexadecimal digits that fit 64 bits. Extensions are checked against their grammar, then
/// ignored (RFC 9112 section 7.1.1 lets a recipient do so); a line that is read by other rules than the next hop's is
/// how chunk extensions smuggle. The line with CRLF has at most `max` bytes.
pub(crate) fn chunk_line(input: &[u8], max: Option<usize>) -> Result<Option<(usize, u64)>, Peer> {
    let max = max.unwrap_or(usize::MAX);
    let mut size = 0u64;
    let mut at = At::Start;
    for (index, &byte) in input.iter().enumerate() {
        if index >= max {
            return Err(Peer::ChunkLineTooLong);
        }
        at = match (at, byte) {
            (At::Start | At::Size, _) if byte.is_ascii_hexdigit() => {
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                size = size.checked_mul(16).map(|size| size | digit).ok_or(Peer::ChunkSizeOverflow)?;
                At::Size
            }
            (At::Cr, b'\n') => return Ok(Some((index + 1, size))),
            (At::Size | At::Name | At::Value | At::AfterQuoted, b'\r') => At::Cr,
            (
                At::Size | At::BeforeSemicolon | At::Name | At::AfterName | At::Value | At::AfterQuoted,
                b';',
            ) => At::BeforeName,
            (At::Size | At::BeforeSemicolon | At::Value | At::AfterQuoted, b' ' | b'\t') => {
                At::BeforeSemicolon
            }
            (At::BeforeName | At::BeforeValue, b' ' | b'\t') => at,
            (At::BeforeName | At::Name, _) if token::is_tchar(byte) => At::Name,
            (At::Name | At::AfterName, b' ' | b'\t') => At::AfterName,
            (At::Name | At::AfterName, b'=') => At::BeforeValue,
            (At::BeforeValue | At::Value, _) if token::is_tchar(byte) => At::Value,
            (At::BeforeValue, b'"') => At::Quoted,
            (At::Quoted, b'"') => At::AfterQuoted,
            (At::Quoted, b'\\') => At::Escaped,
            (At::Quoted | At::Escaped, _) if token::is_field_text(&[byte]) => At::Quoted,
            _ => return Err(Peer::ChunkLine),
        };
    }
    // The next byte would be one too many whatever it is, so a full line is refused by its last one.
    if input.len() >= max { Err(Peer::ChunkLineTooLong) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::few::few_under_miri;

    fn line(input: &str) -> Result<Option<(usize, u64)>, u16> {
        let status = |error: Peer| error.status().unwrap_or(0);
        let whole = chunk_line(input.as_bytes(), Some(64)).map_err(status);
        let mut last = Ok(None);
        for end in (0..=input.len()).step_by(few_under_miri(1, 3)).chain([input.len()]) {
            last = chunk_line(&input.as_bytes()[..end], Some(64)).map_err(status);
            if last != Ok(None) {
                break;
            }
        }
        assert_eq!(last, whole, "{input:?}");
        whole
    }

    #[test]
    fn sizes_are_hexadecimal_and_extensions_ignored() {
        for (input, size) in [
            ("0\r\n", 0),
            ("000\r\n", 0),
            ("a\r\n", 10),
            ("1F\r\n", 31),
            ("ffffffffffffffff\r\n", u64::MAX),
            ("00000000000000000000000005\r\n", 5),
            ("5;ext\r\n", 5),
            ("5 ;ext\r\n", 5),
            ("5;a=b;c=\"d e\\\"f\"\r\n", 5),
            ("5 \t; a \t= b ; c\r\n", 5),
            ("5;a=\"\";b\r\n", 5),
        ] {
            assert_eq!(line(input), Ok(Some((input.len(), size))), "{input:?}");
        }
        assert_eq!(chunk_line(b"5\r\nhello", None).unwrap(), Some((3, 5)));
    }

    #[test]
    fn everything_else_is_refused() {
        for input in [
            "\r\n",
            ";a\r\n",
            "0x3\r\n",
            "+3\r\n",
            " 3\r\n",
            "-0\r\n",
            "3 \r\n",
            "3\n",
            "3\r3",
            "g\r\n",
            "5;\r\n",
            "5;;\r\n",
            "5;a=\r\n",
            "5;a b\r\n",
            "5;a=\"b\r\n",
            "5;a=\"\n\"\r\n",
            "5;a=b c\r\n",
            "5;a=\"b\"c\r\n",
            "5 a\r\n",
            "5;a\n",
            "5;a=\"\\\r\n",
            "10000000000000000\r\n",
            "5;a \r\n",
            "5;\0\r\n",
            "5,5\r\n",
            "5.\r\n",
            "5_0\r\n",
        ] {
            assert_eq!(line(input), Err(400), "{input:?}");
        }
    }

    #[test]
    fn the_line_is_bounded() {
        let longest = format!("5;{}\r\n", "a".repeat(60));
        assert_eq!(line(&longest), Ok(Some((64, 5))));
        assert_eq!(line(&format!("5;{}\r\n", "a".repeat(61))), Err(400));
        assert_eq!(line(&"0".repeat(64)), Err(400));
        assert_eq!(line(&"0".repeat(63)), Ok(None));
    }
}
