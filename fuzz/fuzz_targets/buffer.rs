//! A buffer is a string of bytes, whatever is done to it.
#![no_main]

use event_core::Buffer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|ops: Vec<(u8, u16)>| {
    let (mut buffer, mut other, mut model, mut model2) = (Buffer::new(), Buffer::new(), vec![], vec![]);
    for (step, (op, n)) in ops.into_iter().enumerate() {
        let (n, data) = (usize::from(n), vec![step as u8; usize::from(n)]);
        match op % 10 {
            0 => (buffer.add(&data), model.extend_from_slice(&data)).1,
            1 => (buffer.prepend(&data), drop(model.splice(0..0, data))).1,
            2 => (buffer.drain(n), drop(model.drain(..n.min(model.len())))).1,
            3 => (buffer.remove_buffer(&mut other, n), model2.extend(model.drain(..n.min(model.len())))).1,
            4 => (buffer.add_buffer(&mut other), model.append(&mut model2)).1,
            5 => (other.add_buffer_reference(&mut buffer), model2.extend_from_slice(&model)).1,
            6 => assert_eq!(buffer.pullup(n).map(<[u8]>::to_vec), model.get(..n).map(<[u8]>::to_vec)),
            7 => (buffer.truncate(n), model.truncate(n)).1,
            8 => assert_eq!(buffer.search_byte(step as u8, 0), model.iter().position(|&b| b == step as u8)),
            _ => buffer.reserve(n).expect("65 kB are no absurd length"),
        }
        assert_eq!(buffer.len(), model.len());
        if model.len() > 1 << 20 {
            break;
        }
    }
    assert_eq!((buffer.to_vec(), other.to_vec()), (model, model2));
});
