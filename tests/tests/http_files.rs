//! Files as the bodies of answers.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use event_core::{Buffer, FileSegment};
use event_http::Request;
use tests::http::{answers, each_web};
use tests::streams::nameless_file;

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 3 % 253) as u8).collect()
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const HEAD: &[u8] = b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_file_of_any_size_is_a_body() {
    each_web(|web| {
        for len in [0, 1, 4_000, 100_000, 3_000_000] {
            let body = text(len);
            let segment = FileSegment::new(nameless_file(&body), 0, None).unwrap();
            web.server.set_gencb(move |req: Request| req.send_reply(200, "OK", segment.clone()));
            let client = web.client();
            client.write(&[GET, HEAD, GET].concat());
            web.until(&client, |got, ended| {
                ended || answers(got, &[1]).is_some_and(|(all, _)| all.len() == 3)
            });
            let (all, left) = answers(&client.bytes(), &[1]).unwrap();
            assert_eq!((all.len(), left), (3, 0));
            for (n, (status, head, got)) in all.into_iter().enumerate() {
                assert!(len == 0 || head.contains(&format!("Content-Length: {len}")), "{head}");
                assert!(
                    status == 200 && got == if n == 1 { &[][..] } else { &body[..] },
                    "{len} bytes, answer {n}"
                );
            }
        }
    });
}

#[test]
fn pieces_of_an_answer_may_be_files() {
    each_web(|web| {
        let (small, large) = (text(100), text(200_000));
        let parts = [&small, &large].map(|part| FileSegment::new(nameless_file(part), 0, None).unwrap());
        web.server.set_gencb(move |req: Request| {
            let reply = req.send_reply_start(200, None)?;
            for part in &parts {
                reply.chunk("<")?;
                reply.chunk(part.clone())?;
            }
            reply.end()
        });
        let client = web.client();
        client.write(GET);
        web.until(&client, |got, ended| ended || answers(got, &[]).is_some_and(|(all, _)| all.len() == 1));
        let (all, _) = answers(&client.bytes(), &[]).unwrap();
        assert!(all[0].2 == [b"<", &small[..], b"<", &large[..]].concat());
    });
}

#[test]
fn an_answer_whose_file_was_cut_ends_with_the_connection() {
    each_web(|web| {
        for (len, kept) in [(1_000, 400), (200_000, 150_000), (200_000, 0)] {
            let body = text(len);
            web.server.set_gencb(move |req: Request| {
                let file = nameless_file(&text(len));
                let knife = file.try_clone().unwrap();
                let body = Buffer::from(FileSegment::new(file, 0, None).unwrap());
                knife.set_len(kept as u64).unwrap();
                req.send_reply(200, "OK", body)
            });
            let client = web.client();
            client.write(GET);
            web.until(&client, |_, ended| ended);
            let got = client.bytes();
            let head = got.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            assert!(got[head..] == body[..kept], "{len} cut to {kept}: {}", got.len() - head);
            web.until_connections(0);
        }
    });
}
