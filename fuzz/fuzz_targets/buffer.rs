//! A buffer is a string of bytes, whatever is done to it.
#![no_main]

use std::io::Read;

use event_core::{Buffer, Bytes, Eol};
use fuzz::{FILE, file_segment, line};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|ops: Vec<(u8, u16)>| {
    let (mut buffer, mut other, mut model, mut model2) = (Buffer::new(), Buffer::new(), vec![], vec![]);
    for (step, (op, n)) in ops.into_iter().enumerate() {
        let (n, data) = (usize::from(n), vec![step as u8; usize::from(n)]);
        match op % 25 {
            0 => (buffer.add(&data), model.extend_from_slice(&data)).1,
            1 => (buffer.prepend(&data), drop(model.splice(0..0, data))).1,
            2 => (buffer.drain(n), drop(model.drain(..n.min(model.len())))).1,
            3 => (buffer.remove_buffer(&mut other, n), model2.extend(model.drain(..n.min(model.len())))).1,
            4 => (buffer.add_buffer(&mut other), model.append(&mut model2)).1,
            5 => (other.add_buffer_reference(&mut buffer), model2.extend_from_slice(&model)).1,
            6 => assert_eq!(buffer.pullup(n).map(<[u8]>::to_vec), model.get(..n).map(<[u8]>::to_vec)),
            7 => (buffer.truncate(n), model.truncate(n)).1,
            8 => assert_eq!(buffer.search_byte(step as u8, 0), model.iter().position(|&b| b == step as u8)),
            9 => buffer.reserve(n).expect("65 kB are no absurd length"),
            10 => (buffer.prepend_buffer(&mut other), drop(model.splice(0..0, model2.drain(..)))).1,
            11 => (buffer.add_reference(Bytes::from(data.clone())), model.extend_from_slice(&data)).1,
            12 => {
                let (start, len) = (n % FILE.len(), n % (FILE.len() - n % FILE.len()));
                file_segment(|part| buffer.add_file_segment(part, start as u64, Some(len as u64)))
                    .expect("in range");
                model.extend_from_slice(&FILE[start..start + len]);
            }
            13 => buffer.load(n).expect("the file is whole"),
            14 => {
                let read = buffer.read_from(&data[..], n / 2).expect("a slice gives all");
                model.extend_from_slice(&data[..read]);
            }
            15 => {
                let mut to = Vec::new();
                let written = buffer.write_to(&mut to, n).expect("a vector takes all");
                assert!(to == model[..written] && (written > 0 || n.min(model.len()) == 0));
                model.drain(..written);
            }
            16 => {
                let half =
                    buffer.add_with(n, |room| (room.fill(step as u8), n / 2).1).expect("no absurd length");
                model.extend_from_slice(&data[..half]);
            }
            17 => {
                let mut out = vec![0; n];
                let read = buffer.read(&mut out).expect("the file is whole");
                assert!(out[..read] == model[..read] && read == n.min(model.len()));
                model.drain(..read);
            }
            18 => {
                let mut out = vec![0; 100];
                let got = buffer.copyout_from(n, &mut out);
                assert!(out[..got] == *model.get(n..).map_or(&[][..], |rest| &rest[..rest.len().min(100)]));
            }
            19 => {
                let eol = [Eol::Any, Eol::Crlf, Eol::CrlfStrict, Eol::Lf, Eol::Nul][n % 5];
                assert_eq!(buffer.readln(eol), line(&mut model, eol));
            }
            20 => (std::mem::swap(&mut buffer, &mut other), std::mem::swap(&mut model, &mut model2)).1,
            21 => buffer = if n % 2 == 0 { buffer.share() } else { buffer.clone() },
            22 => {
                let needle: Vec<u8> = model.iter().skip(n).take(n % 9).copied().collect();
                let end = model.len().min(2 * n);
                let naive = (n / 2..=end).find(|&at| model[at..end].starts_with(&needle));
                assert_eq!(buffer.search_range(&needle, n / 2, 2 * n), naive);
            }
            23 => buffer = Buffer::from(buffer.into_vec()),
            _ => (write!(buffer, "{n}\r\n"), model.extend_from_slice(format!("{n}\r\n").as_bytes())).1,
        }
        assert_eq!(buffer.len(), model.len());
        // A block at either end, and what was reserved; more only of a block of which much is left.
        let most = 4 * model.len() + 3 * 65_536 + 512;
        assert!(buffer.held() <= most || model.len() > 65_536, "{} for {}", buffer.held(), model.len());
        if model.len() > 1 << 20 {
            break;
        }
    }
    assert!(buffer == model && other == model2);
    assert_eq!((buffer.to_vec(), other.to_vec()), (model, model2));
});
