//! The table of raw-byte cases against this server: on every backend, whole, and cut at every place.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use event_core::LoopFlags;
use event_http::Request;
use tests::cases::{Case, Outcome, Then, cases};
use tests::http::{Client, Web, Wire, answers};
use tests::{Bed, each_backend, each_seed};

/// Rows that are longer are cut byte by byte, but not at every place.
const SHORT: usize = 400;

/// How each piece of a row is sent.
#[derive(Clone, Copy, Debug)]
enum Cut {
    At(usize),
    Bytes,
    Whole,
}

impl Cut {
    fn of(self, piece: &[u8]) -> Vec<&[u8]> {
        match self {
            Cut::At(at) => <[_; 2]>::from(piece.split_at(at.min(piece.len()))).to_vec(),
            Cut::Bytes => piece.chunks(1).collect(),
            Cut::Whole => vec![piece],
        }
    }
}

type Runs = Rc<RefCell<Vec<Vec<u8>>>>;

/// Every request is noted down and answered with what was noted; `/204` is answered 204, and so on.
fn serve(web: &Web<'_>) -> Runs {
    let runs = Runs::default();
    let sink = runs.clone();
    web.server.set_gencb(move |req: Request| {
        let mut line = format!("{} {}=", req.method(), req.target()).into_bytes();
        line.extend(req.body().to_vec());
        sink.borrow_mut().push(line.clone());
        let status = req.path().strip_prefix('/').and_then(|status| status.parse().ok());
        req.send_reply(status.filter(|status| (200..600).contains(status)).unwrap_or(200), None, line)
    });
    runs
}

fn turns(web: &mut Web<'_>, client: &Client, count: usize) {
    for _ in 0..count {
        web.base.run(LoopFlags::NONBLOCK | LoopFlags::NO_EXIT_ON_EMPTY).unwrap();
        client.read();
    }
}

/// Sends the row, every piece in parts as `cut` says, and compares; gives the text of the answers.
#[track_caller]
fn check(web: &mut Web<'_>, runs: &Runs, case: &Case, cut: Cut) -> String {
    runs.borrow_mut().clear();
    let client = web.client();
    for (at, piece) in case.pieces.iter().enumerate() {
        if at > 0 {
            web.settle(&client);
        }
        for part in cut.of(piece) {
            client.write(part);
            turns(web, &client, 3);
        }
    }
    match case.then {
        Then::Finish => client.finish(),
        Then::Seconds(seconds) => drop(web.pass(&client, Duration::from_secs(seconds))),
        Then::Wait | Then::Whole => {}
    }
    let expected = &case.outcome;
    let heads = expected.heads();
    // On a real kernel a byte may take a moment; what comes too much comes in the turns behind.
    let wanted = (expected.statuses.len(), expected.closes, case.runs.len());
    let start = std::time::Instant::now();
    loop {
        turns(web, &client, 4);
        let count = answers(&client.bytes(), &heads).map_or(0, |(all, _)| all.len());
        let got = (count, client.is_ended() && expected.closes, runs.borrow().len());
        if got == wanted || start.elapsed() > Duration::from_secs(5) {
            break;
        }
    }
    turns(web, &client, 4);
    let what = format!("{} ({}), {cut:?}: {}", case.id, case.rule, client.text());
    let (all, left) = answers(&client.bytes(), &heads).unwrap_or_else(|| panic!("no answers: {what}"));
    let statuses: Vec<u16> = all.iter().map(|answer| answer.0).collect();
    let wanted: Vec<u16> = expected.statuses.iter().map(|status| status.0).collect();
    assert_eq!((statuses, left, client.is_ended()), (wanted, 0, expected.closes), "{what}");
    let run = runs.take();
    let text = |runs: &[Vec<u8>]| runs.iter().map(|run| run.escape_ascii().to_string()).collect::<Vec<_>>();
    assert_eq!(text(&run), text(&case.runs), "{what}");
    check_answers(&all, &run, expected.closes, &what);
    client.text()
}

/// What holds for the answers of every row.
#[track_caller]
fn check_answers(all: &[(u16, String, Vec<u8>)], runs: &[Vec<u8>], closes: bool, what: &str) {
    let finals: Vec<_> = all.iter().filter(|answer| answer.0 >= 200).collect();
    let mut lengths = runs.iter();
    for (at, (status, head, body)) in all.iter().enumerate() {
        let last = at + 1 == all.len();
        let has = |name: &str| head.lines().any(|line| line.starts_with(name));
        if *status < 200 || *status == 204 {
            // RFC 9110 section 8.6, RFC 9112 section 6.1.
            assert!(!has("Content-Length:") && !has("Transfer-Encoding:"), "{what}");
        }
        // RFC 9110 sections 6.6.1, 10.2.1 and 15.5.6.
        assert!(*status < 200 || has("Date: "), "{what}");
        assert!(*status != 405 || has("Allow: "), "{what}");
        // RFC 9112 section 9.6: the last answer says it if the connection closes, and no other does.
        let says = has("Connection: close");
        assert!(!says || (last && closes), "{what}");
        assert!(says || !(last && closes && *status >= 400), "{what}");
        if *status == 200 && !body.is_empty() {
            let run = lengths.find(|run| *run == body);
            assert!(run.is_some(), "the answer to another request: {what}");
        }
    }
    assert!(finals.len() >= runs.len(), "{what}");
}

fn is_run(case: &Case, bed: &Bed) -> bool {
    bed.sim().is_some() || !matches!(case.then, Then::Seconds(_))
}

#[test]
fn every_row_has_its_outcome_on_every_backend() {
    each_backend(|bed| {
        for wire in [Wire::Listener, Wire::Pair] {
            let mut web = Web::new(bed, wire);
            let runs = serve(&web);
            for case in cases().iter().filter(|case| is_run(case, bed)) {
                check(&mut web, &runs, case, Cut::Whole);
            }
        }
    });
}

#[test]
fn every_row_has_its_outcome_when_the_kernel_cuts() {
    each_seed(|bed| {
        let mut web = Web::new(bed, Wire::Listener);
        let runs = serve(&web);
        bed.sim().unwrap().set_cuts(true);
        for case in cases().iter().filter(|case| case.then != Then::Whole) {
            check(&mut web, &runs, case, Cut::Whole);
        }
    });
}

/// One of `of` parts of the table, on one seed: in memory chance has little to say.
fn cut(part: usize, of: usize) {
    let first = std::cell::Cell::new(true);
    each_seed(|bed| {
        if !first.replace(false) {
            return;
        }
        let mut web = Web::new(bed, Wire::Pair);
        let runs = serve(&web);
        let all = cases();
        let rows = all.iter().enumerate().filter(|(at, _)| at % of == part).map(|(_, case)| case);
        for case in rows.filter(|case| matches!(case.then, Then::Wait | Then::Finish)) {
            let uncut = check(&mut web, &runs, case, Cut::Whole);
            let longest = case.pieces.iter().map(Vec::len).max().unwrap_or(0);
            let cuts = (1..if longest <= SHORT { longest } else { 0 }).map(Cut::At);
            for cut in cuts.chain([Cut::Bytes]) {
                assert_eq!(check(&mut web, &runs, case, cut), uncut, "{}, {cut:?}", case.id);
            }
        }
    });
}

#[test]
fn a_row_means_the_same_wherever_it_is_cut_1() {
    cut(0, 4);
}

#[test]
fn a_row_means_the_same_wherever_it_is_cut_2() {
    cut(1, 4);
}

#[test]
fn a_row_means_the_same_wherever_it_is_cut_3() {
    cut(2, 4);
}

#[test]
fn a_row_means_the_same_wherever_it_is_cut_4() {
    cut(3, 4);
}

#[test]
fn targets_may_have_what_browsers_send_if_the_program_wants_it() {
    each_backend(|bed| {
        let mut web = Web::new(bed, Wire::Pair);
        let runs = serve(&web);
        web.server.set_lenient_targets(true);
        let mut count = 0;
        for mut case in cases().into_iter().filter(|case| case.id.starts_with("target-")) {
            // In these rows a server has the choice, and this one now chooses the other way.
            let served = Outcome { statuses: vec![(200, false); 2], closes: false };
            if case.rule.contains("(9112 3: an invalid request line SHOULD") && case.also.contains(&served) {
                case.outcome = served;
                let text = String::from_utf8(case.pieces.concat()).unwrap();
                let lines = text.split("\r\n").filter_map(|line| line.strip_suffix(" HTTP/1.1"));
                case.runs = lines.map(|line| format!("{line}=").into_bytes()).collect();
                count += 1;
            }
            check(&mut web, &runs, &case, Cut::Whole);
        }
        assert!(count >= 15, "{count}");
    });
}
