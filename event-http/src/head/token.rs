//! The small grammar that fields are made of: tokens, optional white space, comma lists (RFC 9110 section 5.6).

/// Byte classes; a byte may be in several.
const TOKEN: u8 = 1;
/// `unreserved` and `sub-delims` of RFC 3986: what a registered name is made of, besides percent escapes.
const REG_NAME: u8 = 2;
/// `pchar` and `/`, besides percent escapes: what path and query are made of, but for the `?`.
const PLAIN_TARGET: u8 = 4;

static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0u8;
    loop {
        let alnum = byte.is_ascii_alphanumeric();
        if alnum || in_set(byte, b"!#$%&'*+-.^_`|~") {
            table[byte as usize] |= TOKEN;
        }
        if alnum || in_set(byte, b"-._~!$&'()*+,;=") {
            table[byte as usize] |= REG_NAME;
        }
        if table[byte as usize] & REG_NAME != 0 || in_set(byte, b":@/") {
            table[byte as usize] |= PLAIN_TARGET;
        }
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

const fn in_set(byte: u8, set: &[u8]) -> bool {
    let mut i = 0;
    while i < set.len() {
        if set[i] == byte {
            return true;
        }
        i += 1;
    }
    false
}

/// True for `tchar` (RFC 9110 section 5.6.2).
#[inline]
pub(crate) fn is_tchar(byte: u8) -> bool {
    CLASS[byte as usize] & TOKEN != 0
}

/// True for `unreserved` and `sub-delims` (RFC 3986 section 2).
#[inline]
pub(crate) fn is_reg_name(byte: u8) -> bool {
    CLASS[byte as usize] & REG_NAME != 0
}

/// True for `pchar` and `/` (RFC 3986 section 3.3), apart from the `%` of an escape.
#[inline]
pub(crate) fn is_plain_target(byte: u8) -> bool {
    CLASS[byte as usize] & PLAIN_TARGET != 0
}

/// True if `bytes` is a token: one or more `tchar`.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().fold(TOKEN, |class, &byte| class & CLASS[byte as usize]) != 0
}

/// True if the token `name` is `lower` without regard to case. `lower` has small letters and `-` only.
pub(crate) fn is_name<const N: usize>(name: &[u8], lower: &[u8; N]) -> bool {
    // Setting this bit makes a small letter of a capital one; what else it would make a letter or `-` of is no tchar.
    <&[u8; N]>::try_from(name).is_ok_and(|name| {
        name.iter().zip(lower).fold(0, |diff, (byte, lower)| diff | ((byte | 0x20) ^ lower)) == 0
    })
}

/// True if `bytes` may stand in a field value: no control character but HTAB (RFC 9110 section 5.5).
pub(crate) fn is_field_text(bytes: &[u8]) -> bool {
    // No early exit, so that the compiler can test many bytes at once.
    bytes.iter().fold(true, |good, &byte| good & ((byte >= b' ' && byte != 0x7f) || byte == b'\t'))
}

/// `bytes` without the SP and HTAB at both ends.
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The elements of a comma list, trimmed; empty ones are skipped (RFC 9110 section 5.6.1.2).
///
/// A comma inside a quoted string also separates. No list that this crate acts on may hold one, so such an element is
/// refused as unknown either way.
pub(crate) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|element| !element.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_what_the_rfc_lists() {
        let tchars = (0..=255u8).filter(|&b| is_tchar(b)).count();
        assert_eq!(tchars, 26 * 2 + 10 + 15);
        assert!(is_token(b"X-Forwarded-For") && !is_token(b"") && !is_token(b"a b") && !is_token(b"a:"));
        assert!(!is_token(b"caf\xe9"));
    }

    #[test]
    fn names_compare_without_case_and_exactly() {
        for byte in (0..=255u8).filter(|&byte| is_tchar(byte)) {
            assert_eq!(is_name(&[byte], b"k"), byte.eq_ignore_ascii_case(&b'k'), "{byte}");
            assert_eq!(is_name(&[byte], b"-"), byte == b'-', "{byte}");
        }
        assert!(is_name(b"Content-LENGTH", b"content-length"));
        assert!(
            !is_name(b"content-lengt", b"content-length") && !is_name(b"content-lengthx", b"content-length")
        );
    }

    #[test]
    fn field_text_has_no_controls_but_tab() {
        assert!(is_field_text(b"a\tb \xff~"));
        for bad in [b"\r", b"\n", b"\0", b"\x7f", b"\x1b"] {
            assert!(!is_field_text(bad), "{bad:?}");
        }
    }

    #[test]
    fn lists_tolerate_blanks_and_empty_elements() {
        let got: Vec<&[u8]> = elements(b" , a\t,,b c , ").collect();
        assert_eq!(got, [&b"a"[..], b"b c"]);
        assert_eq!(elements(b"").count(), 0);
    }
}
