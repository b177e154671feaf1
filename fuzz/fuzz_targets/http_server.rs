//! Any bytes get an answer or a close: no panic, nothing open past its deadline.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    fuzz::serve(1, &[bytes]);
});
