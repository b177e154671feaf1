//! What a server owes to a stream of bytes, decoded slowly and plainly: to hold the real one against.
//!
//! It knows nothing of pieces, time or memory: it looks at the whole input, one request after the other. Where several
//! things are wrong with a head at once it gives every status that one of them deserves, since RFC 9112 does not say which
//! comes first.
//!
//! The fuzz targets read this file, too, with `answers.rs` beside it.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use event_http::Limits;

use crate::answers::answers;

/// Everything that comes of an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The requests that reach the handler, as `METHOD target=body`.
    pub runs: Vec<Vec<u8>>,
    /// The statuses that each answer may have, and whether it is one to HEAD.
    pub answers: Vec<(BTreeSet<u16>, bool)>,
    /// Whether the server closes.
    pub closes: bool,
    /// If the input ends in a line that may be refused already, or only when its end comes: whether that is in a request
    /// of HEAD.
    pub may_be_refused: Option<bool>,
}

impl Seen {
    /// Whether a server that has sent `got` and handed out `runs` has done this; `ended` if it has closed.
    ///
    /// # Errors
    /// What is different.
    pub fn agrees(&self, got: &[u8], ended: bool, runs: &[Vec<u8>]) -> Result<(), String> {
        let text =
            |runs: &[Vec<u8>]| runs.iter().map(|run| run.escape_ascii().to_string()).collect::<Vec<_>>();
        if runs != self.runs {
            return Err(format!("ran {:?}, not {:?}", text(runs), text(&self.runs)));
        }
        // A 100 goes out or not: that depends on when the body comes, and it moves the places of the others.
        let got = String::from_utf8_lossy(got).replace("HTTP/1.1 100 Continue\r\n\r\n", "");
        let (mut wanted, mut closes) = (self.answers.clone(), self.closes);
        if let Some(is_head) = self.may_be_refused.filter(|_| ended) {
            // A line whose end has not come was refused for its beginning.
            wanted.push(([400].into(), is_head));
            closes = true;
        }
        let heads: Vec<_> = (0..wanted.len()).filter(|at| wanted[*at].1).collect();
        let Some((all, left)) = answers(got.as_bytes(), &heads) else { return Err("no answers".into()) };
        let statuses: Vec<u16> = all.iter().map(|answer| answer.0).collect();
        let fits = statuses.len() == wanted.len()
            && statuses.iter().zip(&wanted).all(|(status, (allowed, _))| allowed.contains(status));
        match fits && left == 0 && ended == closes {
            true => Ok(()),
            false => Err(format!(
                "answered {statuses:?} and {left} bytes, ended: {ended}, not {wanted:?}, {closes}"
            )),
        }
    }
}

/// What stands at the beginning of an input.
enum Read {
    /// A whole request: what is run, its length, whether the connection ends, whether it is HEAD.
    Whole(Vec<u8>, usize, bool, bool),
    /// A path that no handler gets: a status, and whether it is HEAD.
    Refused(BTreeSet<u16>, bool),
    /// More must come; see [`Seen::may_be_refused`].
    More(Option<bool>),
}

/// Stops at the first thing that is wrong.
enum Stop {
    More(bool),
    Wrong(u16),
}

const ALLOWED: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];

/// Decodes the whole of `input`.
pub fn decode(input: &[u8], limits: &Limits) -> Seen {
    let mut seen = Seen::default();
    let mut rest = input;
    loop {
        match read(rest, limits) {
            Read::More(may_be_refused) => return Seen { may_be_refused, ..seen },
            Read::Refused(statuses, is_head) => {
                seen.answers.push((statuses, is_head));
                return Seen { closes: true, ..seen };
            }
            Read::Whole(run, len, closes, is_head) => {
                seen.runs.push(run);
                seen.answers.push(([200].into(), is_head));
                rest = &rest[len..];
                if closes {
                    return Seen { closes: true, ..seen };
                }
            }
        }
    }
}

fn read(input: &[u8], limits: &Limits) -> Read {
    let blank = if input.starts_with(b"\r\n") { 2 } else { 0 };
    let is_head = input[blank..].starts_with(b"HEAD ");
    let stop = |stop| match stop {
        Stop::More(refused) => Read::More(refused.then_some(is_head)),
        Stop::Wrong(status) => Read::Refused([status].into(), is_head),
    };
    match input[blank..].first() {
        None => return Read::More(None),
        Some(b'\r') if input == b"\r" => return Read::More(None),
        Some(byte) if !is_tchar(*byte) => return stop(Stop::Wrong(400)),
        Some(_) => {}
    }
    let max_line = limits.max_request_line_bytes.unwrap();
    let (lines, head_len) =
        match lines(&input[blank..], limits.max_head_bytes.unwrap(), Some(max_line), limits) {
            Ok(lines) => lines,
            Err(wrong) => return stop(wrong),
        };
    let head = match Head::read(&lines) {
        Ok(head) => head,
        Err(complaints) => return Read::Refused(complaints, is_head),
    };
    let at = blank + head_len;
    let body = match head.body {
        Body::Length(len) => length(&input[at..], len, limits),
        Body::Chunked => chunked(&input[at..], limits),
    };
    let (body, len) = match body {
        Ok(body) => body,
        Err(wrong) => return stop(wrong),
    };
    if head.target.split('?').next().unwrap().contains("%00") {
        return Read::Refused([400].into(), is_head);
    }
    let run = [format!("{} {}=", head.method, head.target).as_bytes(), &body].concat();
    Read::Whole(run, at + len, head.closes, is_head)
}

/// The lines before an empty one, and the length of all with it.
fn lines<'i>(
    input: &'i [u8],
    max: usize,
    max_first: Option<usize>,
    limits: &Limits,
) -> Result<(Vec<&'i [u8]>, usize), Stop> {
    let mut all = Vec::new();
    let mut at = 0;
    let max_lines = limits.max_fields.unwrap() + usize::from(max_first.is_some());
    loop {
        let end = input[at..].iter().position(|byte| *byte == b'\n').map(|lf| at + lf + 1);
        let len = end.unwrap_or(input.len());
        if let Some(max_first) = max_first.filter(|first| all.is_empty() && len > *first && *first <= max) {
            let method = max_first > 32 && input[..max_first].iter().all(|byte| is_tchar(*byte));
            return Err(Stop::Wrong(if method { 501 } else { 414 }));
        }
        if len > max {
            return Err(Stop::Wrong(431));
        }
        let Some(end) = end else { return Err(Stop::More(false)) };
        let Some(line) = input[at..end].strip_suffix(b"\r\n") else { return Err(Stop::Wrong(400)) };
        if line.is_empty() {
            return Ok((all, end));
        }
        all.push(line);
        if all.len() > max_lines {
            return Err(Stop::Wrong(431));
        }
        at = end;
    }
}

enum Body {
    Chunked,
    Length(u64),
}

struct Head {
    method: String,
    target: String,
    body: Body,
    closes: bool,
}

impl Head {
    fn read(lines: &[&[u8]]) -> Result<Head, BTreeSet<u16>> {
        let mut wrong = BTreeSet::new();
        let parts: Vec<_> = lines[0].split(|byte| *byte == b' ').map(latin).collect();
        let [method, target, version] = &parts[..] else { return Err([400].into()) };
        let is_old = version == "HTTP/1.0";
        if !is_token(method) {
            wrong.insert(400);
        } else if !ALLOWED.contains(&&**method) {
            wrong.extend([405, 501]);
        }
        match version.strip_prefix("HTTP/").map(str::as_bytes) {
            Some([b'1', b'.', minor]) if minor.is_ascii_digit() => {}
            Some([major, b'.', minor]) if major.is_ascii_digit() && minor.is_ascii_digit() => {
                // The rest of such a head means nothing.
                wrong.insert(505);
            }
            _ => drop(wrong.insert(400)),
        }
        if !is_target(method, target) {
            wrong.insert(400);
        }
        let mut fields = Vec::new();
        for line in &lines[1..] {
            match field(line) {
                Some(field) => fields.push(field),
                None => drop(wrong.insert(400)),
            }
        }
        let all = |name: &str| -> Vec<&str> {
            fields.iter().filter(|field| field.0 == name).map(|field| field.1.as_str()).collect()
        };
        let list = |name: &str| -> Vec<String> {
            let lines = all(name).join(",");
            lines.split(',').map(blank).filter(|one| !one.is_empty()).map(str::to_ascii_lowercase).collect()
        };
        let hosts = all("host");
        let is_good = hosts.iter().all(|host| host.is_empty() || is_authority(host));
        if hosts.len() > 1 || (hosts.is_empty() && !is_old) || !is_good {
            wrong.insert(400);
        }
        let (lengths, codings) = (all("content-length"), list("transfer-encoding"));
        let body = if !all("transfer-encoding").is_empty() {
            let last = codings.last().is_some_and(|last| last == "chunked");
            if is_old || !lengths.is_empty() || !last || codings.len() > 1 {
                wrong.insert(400);
            }
            if last && codings.len() > 1 {
                wrong.insert(501);
            }
            Body::Chunked
        } else if lengths.is_empty() {
            Body::Length(0)
        } else {
            let digits = !lengths[0].is_empty() && lengths[0].bytes().all(|byte| byte.is_ascii_digit());
            match lengths[0].parse() {
                Ok(length) if digits && lengths.len() == 1 => Body::Length(length),
                _ => {
                    wrong.insert(400);
                    Body::Length(0)
                }
            }
        };
        if method == "CONNECT" && !matches!(body, Body::Length(0)) {
            // RFC 9110 section 9.3.6: what follows the head is not content.
            wrong.insert(400);
        }
        if !is_old && list("expect").iter().any(|one| one != "100-continue") {
            wrong.insert(417);
        }
        let options = list("connection");
        let says = |option: &str| options.iter().any(|one| one == option);
        let closes = says("close") || (is_old && !says("keep-alive"));
        match wrong.is_empty() {
            true => Ok(Head { method: method.clone(), target: target.clone(), body, closes }),
            false => Err(wrong),
        }
    }
}

/// Name in small letters, and value.
fn field(line: &[u8]) -> Option<(String, String)> {
    let text = latin(line);
    let (name, value) = text.split_once(':')?;
    let is_control = |c: char| (c < ' ' && c != '\t') || c == '\x7f';
    (is_token(name) && !value.contains(is_control))
        .then(|| (name.to_ascii_lowercase(), blank(value).to_owned()))
}

fn length(input: &[u8], len: u64, limits: &Limits) -> Result<(Vec<u8>, usize), Stop> {
    if len > limits.max_body_bytes.unwrap() {
        return Err(Stop::Wrong(413));
    }
    let len = usize::try_from(len).unwrap();
    input.get(..len).map(|body| (body.to_vec(), len)).ok_or(Stop::More(false))
}

fn chunked(input: &[u8], limits: &Limits) -> Result<(Vec<u8>, usize), Stop> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let rest = &input[at..];
        let line_end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |lf| lf + 1);
        if line_end > limits.max_chunk_line_bytes.unwrap() {
            return Err(Stop::Wrong(400));
        }
        if !rest[..line_end].ends_with(b"\n") {
            let full = line_end == limits.max_chunk_line_bytes.unwrap();
            return Err(if full { Stop::Wrong(400) } else { Stop::More(line_end > 0) });
        }
        let line = rest[..line_end].strip_suffix(b"\r\n").ok_or(Stop::Wrong(400))?;
        let size = chunk_size(line).ok_or(Stop::Wrong(400))?;
        if size > limits.max_body_bytes.unwrap() - body.len() as u64 {
            return Err(Stop::Wrong(413));
        }
        at += line_end;
        if size == 0 {
            break;
        }
        let rest = &input[at..];
        let size = usize::try_from(size).unwrap();
        body.extend_from_slice(rest.get(..size).ok_or(Stop::More(false))?);
        match &rest[size..] {
            [b'\r', b'\n', ..] => at += size + 2,
            [] | [b'\r'] => return Err(Stop::More(false)),
            _ => return Err(Stop::Wrong(400)),
        }
    }
    let (trailers, len) = lines(&input[at..], limits.max_trailer_bytes.unwrap(), None, limits)?;
    if trailers.iter().any(|line| field(line).is_none()) {
        return Err(Stop::Wrong(400));
    }
    Ok((body, at + len))
}

/// The size that a line without its CRLF gives, if it is well-formed.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let text = latin(line);
    let digits = text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len());
    let (size, mut rest) = text.split_at(digits);
    while !rest.is_empty() {
        rest = blank_start(rest).strip_prefix(';')?;
        rest = after_token(blank_start(rest))?;
        if let Some(value) = blank_start(rest).strip_prefix('=') {
            let value = blank_start(value);
            rest = match value.strip_prefix('"') {
                Some(quoted) => after_quoted(quoted)?,
                None => after_token(value)?,
            };
        }
    }
    u64::from_str_radix(size, 16).ok()
}

fn after_token(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_ascii() || !is_tchar(c as u8)).unwrap_or(text.len());
    (end > 0).then(|| &text[end..])
}

/// What is behind the closing quote.
fn after_quoted(text: &str) -> Option<&str> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return Some(&text[at + 1..]),
            '\\' if !escaped => escaped = true,
            '\t' | ' '..='~' | '\u{80}'.. => escaped = false,
            _ => return None,
        }
    }
    None
}

fn is_target(method: &str, target: &str) -> bool {
    if target.is_empty() || !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return false;
    }
    // No text that is a path and a query: host and port are looked at below.
    let after_host = |at: usize| target[at..].find(['/', '?']).map_or("", |end| &target[at + end..]);
    let rest =
        target.find("://").filter(|at| !target[..*at].contains('/')).map_or(target, |at| after_host(at + 3));
    if method != "CONNECT" && !is_name(&rest.replace([':', '@', '/', '?'], "_")) {
        return false;
    }
    let lower = target.to_ascii_lowercase();
    let scheme = ["http://", "https://"].into_iter().find(|scheme| lower.starts_with(scheme));
    match scheme {
        _ if method == "CONNECT" => {
            let port = target.rsplit_once(':').map_or("", |(_, port)| port);
            is_authority(target) && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
        }
        _ if target.starts_with('/') => true,
        _ if target == "*" => method == "OPTIONS",
        Some(scheme) => is_authority(target[scheme.len()..].split(['/', '?']).next().unwrap()),
        None => false,
    }
}

fn is_authority(text: &str) -> bool {
    let literal = text.starts_with('[').then(|| text.find(']')).flatten().map_or(0, |end| end + 1);
    let host = literal.max(text[literal..].find(':').map_or(text.len(), |colon| literal + colon));
    let (host, port) = text.split_at(host);
    let port = port.strip_prefix(':').unwrap_or(port);
    let port_is_good = port.is_empty()
        || (port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok());
    port_is_good
        && match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) => inner.parse::<Ipv6Addr>().is_ok() || is_future(inner),
            None => !host.is_empty() && !host.contains("%00") && is_name(host),
        }
}

fn is_future(inner: &str) -> bool {
    let Some((version, address)) = inner.split_once('.') else { return false };
    let Some(version) = version.strip_prefix(['v', 'V']) else { return false };
    !version.is_empty()
        && version.bytes().all(|byte| byte.is_ascii_hexdigit())
        && !address.is_empty()
        && !address.contains('%')
        && is_name(&address.replace(':', "_"))
}

fn is_name(text: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=".contains(c);
    text.split('%').enumerate().all(|(at, part)| {
        let escape = |part: &str| part.len() >= 2 && part.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit);
        (at == 0 || escape(part)) && part.chars().all(is_good)
    })
}

fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii() && is_tchar(c as u8))
}

fn blank(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

fn blank_start(text: &str) -> &str {
    text.trim_start_matches([' ', '\t'])
}

/// A text with a character for each byte.
fn latin(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Then, cases};

    #[test]
    fn the_reference_agrees_with_the_table() {
        let limits = Limits::default();
        let mut compared = 0;
        for case in cases() {
            // It knows of no time, no end of input and no other statuses than 200.
            let odd = case
                .runs
                .iter()
                .any(|run| run.windows(2).any(|two| two == b"/2" || two == b"/3" || two == b"/4"));
            if odd || !matches!(case.then, Then::Wait | Then::Whole) {
                continue;
            }
            let seen = decode(&case.pieces.concat(), &limits);
            let finals: Vec<_> = case.outcome.statuses.iter().filter(|status| status.0 != 100).collect();
            assert_eq!(seen.answers.len(), finals.len(), "{}: {seen:?}", case.id);
            for (one, (status, is_head)) in seen.answers.iter().zip(finals) {
                assert!(one.0.contains(status) && one.1 == *is_head, "{}: {seen:?}", case.id);
            }
            assert_eq!((&seen.runs, seen.closes), (&case.runs, case.outcome.closes), "{}", case.id);
            compared += 1;
        }
        assert!(compared > 600, "{compared}");
    }
}
