//! A URI that parses parses again from its own text, and encoding undoes decoding.
#![no_main]

use event_http::{Plus, QueryFlags, Uri, UriFlags, parse_query_str, uridecode, uriencode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, u32)| {
    let (text, flags) = (input.0, UriFlags::from_bits_truncate(input.1));
    if let Ok(uri) = Uri::parse_with_flags(text, flags) {
        assert_eq!(Uri::parse_with_flags(&uri.to_string(), flags).ok(), Some(uri));
    }
    for plus in [Plus::Blank, Plus::Literal] {
        assert_eq!(*uridecode(&uriencode(text, plus), plus), *text.as_bytes());
    }
    let _ = parse_query_str(text, QueryFlags::from_bits_truncate(input.1));
});
