//! The answers in what a server has sent. The fuzz targets read this file, too, so it needs nothing but std.

/// Status, head and body of an answer.
pub type Answer = (u16, String, Vec<u8>);

/// Whole answers at the start of `bytes`, and how many bytes are left. `heads` names, by index, the
/// answers to HEAD. `None` if the bytes are no answers.
pub fn answers(mut bytes: &[u8], heads: &[usize]) -> Option<(Vec<Answer>, usize)> {
    let mut all = Vec::new();
    while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
        let head = std::str::from_utf8(&bytes[..end]).ok()?.to_string();
        let status: u16 = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let rest = &bytes[end + 4..];
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let (body, used) = if status < 200 || heads.contains(&all.len()) {
            (Vec::new(), 0)
        } else if field("Transfer-Encoding:") == Some("chunked") {
            match chunked(rest) {
                Some(found) => found,
                None => break,
            }
        } else if let Some(length) = field("Content-Length:") {
            let length: usize = length.parse().ok()?;
            match rest.get(..length) {
                Some(body) => (body.to_vec(), length),
                None => break,
            }
        } else {
            (Vec::new(), 0)
        };
        bytes = &rest[used..];
        all.push((status, head, body));
    }
    Some((all, bytes.len()))
}

/// The data of a whole chunked body without trailers, and its length on the wire.
fn chunked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let line = bytes[at..].windows(2).position(|two| two == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[at..at + line]).ok()?, 16).ok()?;
        at += line + 2;
        if size == 0 {
            let end = bytes[at..].windows(2).position(|two| two == b"\r\n")?;
            if end == 0 {
                return Some((body, at + 2));
            }
            let end = bytes[at..].windows(4).position(|four| four == b"\r\n\r\n")?;
            return Some((body, at + end + 4));
        }
        body.extend_from_slice(bytes.get(at..at + size)?);
        at += size + 2;
        bytes.get(..at)?;
    }
}
