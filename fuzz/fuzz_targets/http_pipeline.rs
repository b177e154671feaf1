//! Whatever comes on a connection, cut anywhere, is answered as the plain decoder says. The first byte says where it is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&cuts, messages)) = bytes.split_first() else { return };
    fuzz::compare(messages, cuts.into());
});
