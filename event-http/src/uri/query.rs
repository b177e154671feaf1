//! Queries as forms make them: `key=value&key=value`.

use std::borrow::Cow;
use std::collections::HashSet;

use bitflags::bitflags;

use crate::error::{Error, UriPart};

bitflags! {
    /// How [`parse_query_str`] takes what is not quite a form's query. The bits are libevent's.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QueryFlags: u32 {
        /// A key without `=` has an empty value, and a pair without a key is skipped; without this, both are errors.
        #[doc(alias = "EVHTTP_URI_QUERY_NONCONFORMANT")]
        const NONCONFORMANT = 1;
        /// Of several pairs with one key the last stays.
        #[doc(alias = "EVHTTP_URI_QUERY_LAST_VAL")]
        const LAST_VAL = 2;
    }
}

/// Key and value, decoded.
pub type QueryPair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// The pairs of a query in order, decoded; duplicates and empty values are kept, and nothing is an error.
///
/// `&` separates; nothing between two of them is no pair. A pair without `=` has an empty value. `+` is a blank, and
/// a `%` without two hexadecimal digits behind it stays. What does not decode to UTF-8 becomes U+FFFD, as in browsers;
/// a decoded NUL is kept. For other rules split the query and use [`uridecode`](crate::uridecode).
///
/// Each pair is decoded when it is asked for, so a query takes no memory for those that are not.
///
/// ```
/// let pairs: Vec<_> = event_http::query_pairs("a=1&b&a=&&c=x+y%21").collect();
/// assert_eq!(pairs.len(), 4);
/// assert_eq!(pairs[1], ("b".into(), "".into()));
/// assert_eq!(pairs[3], ("c".into(), "x y!".into()));
/// ```
pub fn query_pairs(query: &str) -> impl Iterator<Item = QueryPair<'_>> + Clone {
    form_urlencoded::parse(query.as_bytes())
}

/// All pairs of a query in order, decoded as by [`query_pairs`], or an error if it is not well-formed.
///
/// An `&` at the end is well-formed, as is an empty query. The list takes about 50 bytes a pair besides the text,
/// and a pair takes at least two of the query's.
///
/// # Errors
/// - `is_invalid_argument`, unless the flags allow it, for a pair without `=` (nothing between two `&` included) or
///   without a key.
///
/// ```
/// use event_http::{QueryFlags, parse_query_str};
///
/// assert!(parse_query_str("a=1&b", QueryFlags::empty()).is_err());
/// let last = parse_query_str("a=1&b&a=2", QueryFlags::NONCONFORMANT | QueryFlags::LAST_VAL)?;
/// assert_eq!(last, [("b".into(), "".into()), ("a".into(), "2".into())]);
/// # Ok::<(), event_http::Error>(())
/// ```
#[doc(alias = "evhttp_parse_query_str")]
#[doc(alias = "evhttp_parse_query_str_flags")]
pub fn parse_query_str(query: &str, flags: QueryFlags) -> Result<Vec<QueryPair<'_>>, Error> {
    if !flags.contains(QueryFlags::NONCONFORMANT) && !query.is_empty() {
        let pairs = query.strip_suffix('&').unwrap_or(query);
        if pairs.split('&').any(|pair| pair.find('=').is_none_or(|at| at == 0)) {
            return Err(UriPart::Query.into());
        }
    }
    let mut pairs: Vec<_> = query_pairs(query).filter(|(key, _)| !key.is_empty()).collect();
    if flags.contains(QueryFlags::LAST_VAL) {
        keep_last(&mut pairs);
    }
    Ok(pairs)
}

/// Keeps the last pair of each key, in the order of these.
fn keep_last(pairs: &mut Vec<QueryPair<'_>>) {
    let mut seen = HashSet::new();
    let mut keep: Vec<bool> = pairs.iter().rev().map(|(key, _)| seen.insert(key.as_ref())).collect();
    pairs.retain(|_| keep.pop().unwrap_or(true));
}
