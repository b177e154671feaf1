//! The table of raw-byte cases in `tests/data/http-cases.tsv`, read.

/// What a client does when all is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It shuts its sending side down.
    Finish,
    /// So many seconds pass.
    Seconds(u64),
    /// It sends no more.
    Wait,
    /// As `Wait`; what it has sent must come in one piece.
    Whole,
}

/// What comes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of the answers in order; true for one that has no content because HEAD asked.
    pub statuses: Vec<(u16, bool)>,
    /// Whether the server closes.
    pub closes: bool,
}

impl Outcome {
    /// The places of the answers to HEAD.
    pub fn heads(&self) -> Vec<usize> {
        let heads = self.statuses.iter().enumerate().filter(|(_, status)| status.1);
        heads.map(|(at, _)| at).collect()
    }

    /// As in the table, the end left out if it is to be in a column of its own.
    fn read(statuses: &str, end: &str) -> Outcome {
        let statuses = statuses.split(' ').filter(|status| *status != "-");
        let status = |text: &str| (text.trim_end_matches('h').parse().unwrap(), text.ends_with('h'));
        let closes = match end {
            "close" => true,
            "open" => false,
            other => panic!("no such end: {other}"),
        };
        Outcome { statuses: statuses.map(status).collect(), closes }
    }
}

/// One row.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, once in the table.
    pub id: String,
    /// The sentence that decides it.
    pub rule: String,
    /// What is sent, in pieces between which the client waits.
    pub pieces: Vec<Vec<u8>>,
    /// What the client does next.
    pub then: Then,
    /// What this server does.
    pub outcome: Outcome,
    /// The requests that reach the handler, as `METHOD target=body`.
    pub runs: Vec<Vec<u8>>,
    /// What the rule allows as well.
    pub also: Vec<Outcome>,
}

/// All rows.
///
/// # Panics
/// If the table is not as its head says.
pub fn cases() -> Vec<Case> {
    let lines = include_str!("../data/http-cases.tsv").lines();
    let rows = lines.filter(|line| !line.starts_with('#'));
    rows.map(|line| {
        let columns: Vec<_> = line.split('\t').collect();
        let [id, rule, bytes, then, statuses, end, run, also] = columns[..] else {
            panic!("columns: {line}")
        };
        let then = match then {
            "finish" => Then::Finish,
            "wait" => Then::Wait,
            "whole" => Then::Whole,
            seconds => Then::Seconds(seconds.strip_suffix('s').unwrap().parse().unwrap()),
        };
        let also = also.split("; ").filter(|outcome| *outcome != "-").map(|outcome| {
            let (statuses, end) = outcome.rsplit_once(' ').unwrap();
            Outcome::read(statuses, end)
        });
        Case {
            id: id.to_owned(),
            rule: rule.to_owned(),
            pieces: unescape(bytes),
            then,
            outcome: Outcome::read(statuses, end),
            runs: run.split(" ; ").filter(|run| *run != "-").map(|run| unescape(run).concat()).collect(),
            also: also.collect(),
        }
    })
    .collect()
}

/// The bytes that a text stands for, in pieces as `\|` separates them.
fn unescape(text: &str) -> Vec<Vec<u8>> {
    let mut pieces = vec![Vec::new()];
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let piece = pieces.last_mut().unwrap();
        piece.extend_from_slice(&rest.as_bytes()[..at]);
        let (kind, after) = rest[at + 1..].split_at(1);
        rest = after;
        match kind {
            "r" => piece.push(b'\r'),
            "n" => piece.push(b'\n'),
            "t" => piece.push(b'\t'),
            "0" => piece.push(0),
            "\\" => piece.push(b'\\'),
            "x" => {
                piece.push(u8::from_str_radix(&rest[..2], 16).unwrap());
                rest = &rest[2..];
            }
            "{" => {
                let (inside, after) = rest.split_once('}').unwrap();
                let (count, repeated) = inside.split_once('*').unwrap();
                piece.extend(unescape(repeated).concat().repeat(count.parse().unwrap()));
                rest = after;
            }
            "|" => pieces.push(Vec::new()),
            other => panic!("no such escape: \\{other}"),
        }
    }
    pieces.last_mut().unwrap().extend_from_slice(rest.as_bytes());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read() {
        assert_eq!(unescape(r"a\r\n\t\0\\\x80\{3*b\n}\|c"), [&b"a\r\n\t\0\\\x80b\nb\nb\n"[..], b"c"]);
    }

    #[test]
    fn every_row_has_a_name_of_its_own_and_a_rule() {
        let cases = cases();
        assert!(cases.len() >= 300, "{}", cases.len());
        let mut ids: Vec<_> = cases.iter().map(|case| &case.id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), cases.len());
        for case in &cases {
            // `9112 3.2: ...`
            let place = case.rule.split_once(": ").unwrap().0;
            assert!(place.len() > 5 && place.as_bytes()[..4].iter().all(u8::is_ascii_digit), "{}", case.rule);
            assert!(!case.also.contains(&case.outcome), "{}: also what it does anyway", case.id);
        }
    }
}
