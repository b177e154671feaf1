//! The head of a request means what the plain decoder says.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|head: &[u8]| {
    fuzz::compare(&[head, b"\r\n\r\n"].concat(), 0);
});
