//! A message gives the same result however it is cut. The first byte says where.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, message)) = bytes.split_first() else { return };
    let (one, other) = message.split_at(usize::from(cut).min(message.len()));
    assert_eq!(fuzz::serve(1, &[message]), fuzz::serve(1, &[one, other]));
});
