//! What a route's pattern means: `/users/{id}`, `/static/*rest`, or a plain path.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;

use crate::error::{Caller, Error};

/// A pattern of paths, cut at its slashes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    segments: Vec<Segment>,
}

/// In the order in which they win over each other.
#[derive(Debug)]
enum Segment {
    /// That text, after percent-decoding.
    Text(Box<[u8]>),
    /// `{name}`: any text but an empty one.
    Param(Box<str>),
    /// `*name`: everything up to the end, slashes too, or nothing.
    Rest(Box<str>),
}

/// Names do not tell patterns apart.
impl PartialEq for Segment {
    fn eq(&self, other: &Segment) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Segment {}

impl PartialOrd for Segment {
    fn partial_cmp(&self, other: &Segment) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Segment {
    fn cmp(&self, other: &Segment) -> Ordering {
        let rank = |segment: &Segment| match segment {
            Segment::Text(_) => 0,
            Segment::Param(_) => 1,
            Segment::Rest(_) => 2,
        };
        match (self, other) {
            (Segment::Text(one), Segment::Text(two)) => one.cmp(two),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

/// The values that a path has for the names of a pattern.
#[derive(Debug)]
pub(crate) struct Params {
    pattern: Rc<Pattern>,
    values: Vec<Box<str>>,
}

impl Params {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let at = self.pattern.names().position(|own| own == name)?;
        self.values.get(at).map(AsRef::as_ref)
    }
}

impl Pattern {
    /// # Errors
    /// - `Caller::Pattern` if it does not begin with a slash, has a brace or star anywhere else than round a whole
    ///   segment, has a star that is not the last, or names two segments alike.
    pub(crate) fn new(text: &str) -> Result<Pattern, Error> {
        let inside = text.strip_prefix('/').ok_or(Caller::Pattern)?;
        let mut segments: Vec<Segment> = Vec::new();
        for part in inside.split('/') {
            if matches!(segments.last(), Some(Segment::Rest(_))) {
                return Err(Caller::Pattern.into());
            }
            let (segment, name) = if let Some(name) = part.strip_prefix('*') {
                (Segment::Rest(if name.is_empty() { "*" } else { name }.into()), name)
            } else if let Some(name) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
                if name.is_empty() {
                    return Err(Caller::Pattern.into());
                }
                (Segment::Param(name.into()), name)
            } else {
                (Segment::Text(part.as_bytes().into()), part)
            };
            if name.contains(['{', '}', '*']) {
                return Err(Caller::Pattern.into());
            }
            segments.push(segment);
        }
        let pattern = Pattern { segments };
        let names: Vec<&str> = pattern.names().collect();
        match names.iter().enumerate().any(|(at, name)| names[..at].contains(name)) {
            true => Err(Caller::Pattern.into()),
            false => Ok(pattern),
        }
    }

    /// Whether it is one path and no other.
    pub(crate) fn is_exact(&self) -> bool {
        self.segments.iter().all(|segment| matches!(segment, Segment::Text(_)))
    }

    /// Which of two patterns that match one path is asked first.
    pub(crate) fn precedence(&self, other: &Pattern) -> Ordering {
        self.segments.cmp(&other.segments)
    }

    /// Whether two patterns that match the same paths name the same things.
    pub(crate) fn has_names_of(&self, other: &Pattern) -> bool {
        self.names().eq(other.names())
    }

    /// Whether it matches a path that is not decoded. Cut before it is decoded: `%2F` ends no segment.
    pub(crate) fn matches(&self, path: &str) -> bool {
        self.walk(path, |_| ())
    }

    /// The values of a path that matches; `None` if one is no text.
    pub(crate) fn params(self: &Rc<Pattern>, path: &str) -> Option<Params> {
        let mut values = Some(Vec::new());
        self.walk(path, |raw| {
            let value = percent_encoding::percent_decode_str(raw).decode_utf8();
            match (&mut values, value) {
                (Some(values), Ok(value)) => values.push(value.into_owned().into_boxed_str()),
                _ => values = None,
            }
        });
        Some(Params { pattern: self.clone(), values: values? })
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Param(name) | Segment::Rest(name) => Some(name.as_ref()),
            Segment::Text(_) => None,
        })
    }

    /// Hands the values to `value`, not decoded; false if the path does not match.
    fn walk<'a>(&self, path: &'a str, mut value: impl FnMut(&'a str)) -> bool {
        let Some(mut left) = path.strip_prefix('/').map(Some) else { return false };
        for segment in &self.segments {
            // Behind the last slash there is one more, perhaps empty, segment.
            let Some(rest) = left else { return false };
            let (part, behind) = match rest.split_once('/') {
                Some((part, behind)) => (part, Some(behind)),
                None => (rest, None),
            };
            match segment {
                Segment::Rest(_) => {
                    value(rest);
                    return true;
                }
                Segment::Param(_) if part.is_empty() => return false,
                Segment::Param(_) => value(part),
                Segment::Text(text) => {
                    if *decoded(part) != **text {
                        return false;
                    }
                }
            }
            left = behind;
        }
        left.is_none()
    }
}

/// Allocates only if something is encoded.
pub(crate) fn decoded(text: &str) -> Cow<'_, [u8]> {
    percent_encoding::percent_decode_str(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Rc<Pattern> {
        Rc::new(Pattern::new(text).unwrap())
    }

    fn values(of: &str, path: &str) -> Option<Vec<String>> {
        let pattern = pattern(of);
        pattern
            .matches(path)
            .then(|| pattern.params(path).unwrap().values.iter().map(|value| value.to_string()).collect())
    }

    #[test]
    fn segments_are_cut_before_they_are_decoded() {
        let some = |values: &[&str]| Some(values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>());
        assert_eq!(values("/users/{id}", "/users/7"), some(&["7"]));
        assert_eq!(values("/users/{id}", "/users/a%2Fb%20c"), some(&["a/b c"]));
        assert_eq!(values("/users/{id}", "/%75sers/7"), some(&["7"]));
        assert_eq!(values("/users/{id}", "/users/"), None);
        assert_eq!(values("/users/{id}", "/users"), None);
        assert_eq!(values("/users/{id}", "/users/7/"), None);
        assert_eq!(values("/users/{id}/", "/users/7/"), some(&["7"]));
        assert_eq!(values("/u/{a}/x/{b}", "/u/1/x/2"), some(&["1", "2"]));
        assert_eq!(values("/u/{a}/x/{b}", "/u/1/y/2"), None);
        assert_eq!(values("/static/*rest", "/static/a/b%2Fc"), some(&["a/b/c"]));
        assert_eq!(values("/static/*rest", "/static/"), some(&[""]));
        assert_eq!(values("/static/*rest", "/static"), None);
        assert_eq!(values("/*", "/"), some(&[""]));
        assert_eq!(values("/*", "*"), None);
        assert_eq!(values("/*", ""), None);
        assert_eq!(values("/a//b", "/a//b"), some(&[]));
        assert_eq!(values("/a", "/a%00"), None);
    }

    #[test]
    fn a_value_that_is_no_text_is_told_apart() {
        assert!(pattern("/{id}").matches("/%FF"));
        assert!(pattern("/{id}").params("/%FF").is_none());
    }

    #[test]
    fn a_name_is_looked_up_in_its_pattern() {
        let params = pattern("/{a}/*rest").params("/1/2/3").unwrap();
        assert_eq!((params.get("a"), params.get("rest"), params.get("b")), (Some("1"), Some("2/3"), None));
        assert_eq!(pattern("/*").params("/x").unwrap().get("*"), Some("x"));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in
            ["", "a", "/{}", "/{a", "/a}", "/x{a}", "/{a}x", "/*a/b", "/a*b", "/{a}/{a}", "/{a}/*a", "/**"]
        {
            assert!(Pattern::new(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn text_wins_over_a_name_and_a_name_over_a_rest() {
        let mut all =
            ["/*rest", "/{a}/x", "/a/*rest", "/a/{b}", "/{a}", "/a/x", "/{a}/*rest", "/a/b/{c}"].map(pattern);
        all.sort_by(|one, two| one.precedence(two));
        let order: Vec<String> = ["/a/x", "/a/b", "/1/x", "/1/y", "/1", "/a/b/c", "/"]
            .map(|path| format!("{:?}", all.iter().position(|pattern| pattern.matches(path))))
            .into();
        // Sorted: /a/b/{c} /a/x /a/{b} /a/*rest /{a} /{a}/x /{a}/*rest /*rest
        assert_eq!(order, ["Some(1)", "Some(2)", "Some(5)", "Some(6)", "Some(4)", "Some(0)", "Some(7)"]);
        assert_eq!(pattern("/{a}"), pattern("/{b}"), "names do not tell patterns apart");
    }
}
