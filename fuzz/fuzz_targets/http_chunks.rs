//! A chunked body is what the plain decoder says, and so is where the next request begins.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    fuzz::compare(&[head, body, b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"].concat(), 0);
});
