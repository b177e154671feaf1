//! The porting table is whole: every public name of libevent is found by a search of the docs, or has a row in the
//! table that says what to write in its place, or is known to be missing.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The names: name, header, first version, state and replacement, with tabs in between.
const NAMES: &str = include_str!("../data/libevent-names.tsv");

/// The porting table.
const TABLE: &str = include_str!("../../event-core/src/manual/from_libevent.rs");

/// Headers of which every name must have its alias or row.
const DUE: [&str; 12] = [
    "buffer.h",
    "buffer_compat.h",
    "bufferevent.h",
    "bufferevent_compat.h",
    "bufferevent_struct.h",
    "event.h",
    "event_compat.h",
    "event_struct.h",
    "listener.h",
    "thread.h",
    "util.h",
    "watch.h",
];

/// How many names of those headers still have neither. Lower it with each that comes; it does not go up.
const PLANNED_DUE: usize = 0;

/// What the headers declare or define and is not libevent's own.
const FOREIGN: [&str; 14] = [
    "EVENT__SIZEOF_VOID_P",
    "INPUT",
    "LIST_ENTRY",
    "LIST_HEAD",
    "OUTPUT",
    "TAILQ_ENTRY",
    "TAILQ_HEAD",
    "in6_addr",
    "in_addr",
    "sockaddr",
    "ss_family",
    "ssl_st",
    "timeval",
    "timezone",
];

/// What a word of the table's left side begins with if it is meant to be a name.
const PREFIXES: [&str; 16] = [
    "BEV_",
    "BUFFEREVENT_",
    "DNS_",
    "EVBUFFER_",
    "EVENT_",
    "EVHTTP_",
    "EVLOOP_",
    "EVTHREAD_",
    "EVUTIL_",
    "EV_",
    "HTTP_",
    "LEV_",
    "LIBEVENT_",
    "bufferevent_",
    "ev",
    "libevent_",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// A public item carries the name, so that a search of the docs finds it.
    Alias,
    /// The library does not have it yet.
    Planned,
    /// The table says what to write in its place.
    Row,
}

#[derive(Debug)]
struct Name {
    name: &'static str,
    header: &'static str,
    since: &'static str,
    state: State,
    replacement: &'static str,
}

impl Name {
    fn is_due(&self) -> bool {
        DUE.contains(&self.header)
    }
}

/// Reads the data file, in which lines that begin with # are comments.
fn names() -> Vec<Name> {
    let lines = NAMES.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    let read = |(at, line): (usize, &'static str)| {
        let fields: Vec<_> = line.split('\t').collect();
        let [name, header, since @ ("2.1" | "2.2"), state, replacement] = fields[..] else {
            panic!("line {}: {line:?}", at + 1)
        };
        let state = match state {
            "alias" => State::Alias,
            "planned" => State::Planned,
            "row" => State::Row,
            other => panic!("line {}: no such state: {other}", at + 1),
        };
        Name { name, header, since, state, replacement }
    };
    lines.map(read).collect()
}

/// Fails with all of them, if there are any.
#[track_caller]
fn none(what: &str, wrong: impl IntoIterator<Item = String>) {
    let wrong: Vec<_> = wrong.into_iter().collect();
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}

#[test]
fn every_name_stands_in_the_data_once() {
    let mut seen = BTreeSet::new();
    none("twice", names().iter().map(|name| name.name).filter(|name| !seen.insert(*name)).map(str::to_owned));
}

#[test]
fn the_states_are_counted_and_nothing_due_is_forgotten() {
    let names = names();
    let mut headers: BTreeMap<&str, BTreeMap<State, usize>> = BTreeMap::new();
    for name in &names {
        for header in [name.header, "all"] {
            *headers.entry(header).or_default().entry(name.state).or_default() += 1;
        }
    }
    println!("{:<22} alias   row planned", "header");
    for (header, counts) in &headers {
        let count = |state| counts.get(&state).copied().unwrap_or(0);
        let (alias, row, planned) = (count(State::Alias), count(State::Row), count(State::Planned));
        println!("{header:<22} {alias:>5} {row:>5} {planned:>7}");
    }
    let due: Vec<_> = names.iter().filter(|name| name.is_due()).collect();
    let planned = due.iter().filter(|name| name.state == State::Planned).count();
    println!("planned: {planned} of {} due names", due.len());
    assert_eq!(planned, PLANNED_DUE, "if fewer are planned now, lower PLANNED_DUE");
}

// The sources.

/// One `#[doc(alias)]`.
#[derive(Debug, PartialEq, Eq)]
struct Alias {
    name: String,
    /// The item that has it, with its type if it has one: `Buffer::add`. `$type` is a type that a macro fills in.
    item: String,
    is_public: bool,
}

/// Finds the aliases in a source file that rustfmt has formatted.
fn aliases(source: &str) -> Vec<Alias> {
    let lines: Vec<_> = source.lines().collect();
    let mut found = Vec::new();
    for (at, line) in
        lines.iter().enumerate().filter(|(_, line)| line.trim_start().starts_with("#[doc(alias"))
    {
        let is_item = |line: &&str| !matches!(line.trim_start().get(..2), Some("#[" | "//") | None);
        let Some(start) = lines[at..].iter().position(is_item) else { continue };
        let (item, is_public) = item(&lines, at + start);
        for name in line.split('"').skip(1).step_by(2) {
            found.push(Alias { name: name.to_owned(), item: item.clone(), is_public });
        }
    }
    found
}

/// The item that begins in a line, and whether it is public by its own `pub` or by its enum's, trait's or bit set's.
fn item(lines: &[&str], at: usize) -> (String, bool) {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let name = item_name(lines[at]);
    let is_pub = lines[at].trim_start().starts_with("pub ");
    let outer = lines[..at].iter().rev().find(|line| !line.is_empty() && indent(line) < indent(lines[at]));
    let Some(outer) = outer else { return (name, is_pub) };
    let words = outer.trim();
    let holds_public_items =
        ["pub enum", "pub trait", "pub struct"].iter().any(|word| words.starts_with(word));
    if words.starts_with("impl") {
        // `impl<T> Type<T> {` or `impl Trait for Type {`.
        let of = words.rsplit(" for ").next().unwrap_or(words).trim_start_matches("impl");
        let of = if of.starts_with('<') { of.split_once("> ").map_or(of, |(_, rest)| rest) } else { of };
        (format!("{}::{name}", first_word(of.trim())), is_pub)
    } else if words.starts_with("bitflags!") || words.starts_with("macro_rules!") {
        (name, is_pub)
    } else {
        let is_field =
            words.starts_with("pub struct") && lines[at].contains(": ") && !lines[at].contains(" = ");
        (format!("{}::{name}", item_name(outer)), if is_field { is_pub } else { holds_public_items })
    }
}

/// The name in `pub const fn name(`, `pub struct Name {`, `const NAME = 1;`, `Name,`.
fn item_name(line: &str) -> String {
    let keywords =
        ["async", "const", "enum", "fn", "pub", "pub(crate)", "static", "struct", "trait", "type", "unsafe"];
    let word = line.split_whitespace().find(|word| !keywords.contains(word));
    first_word(word.unwrap_or_default()).to_owned()
}

fn first_word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '$');
    &text[..end.unwrap_or(text.len())]
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// The aliases of both crates.
fn all_aliases() -> Vec<Alias> {
    fn walk(directory: &Path, found: &mut Vec<Alias>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.extend(aliases(&fs::read_to_string(path).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    for of in ["event-core", "event-http"] {
        walk(&root().join(of).join("src"), &mut found);
    }
    found
}

#[test]
fn a_name_with_state_alias_is_the_alias_of_the_public_item_that_the_data_gives() {
    let aliases = all_aliases();
    let is_found = |name: &Name| {
        let same = |item: &str| match item.strip_prefix("$type::") {
            Some(method) => name.replacement.split_once("::").is_some_and(|(_, given)| given == method),
            None => name.replacement == item,
        };
        aliases.iter().any(|alias| alias.is_public && alias.name == name.name && same(&alias.item))
    };
    let names = names();
    let wrong = names.iter().filter(|name| name.state == State::Alias && !is_found(name));
    none("no such alias", wrong.map(|name| format!("{} on {}", name.name, name.replacement)));
}

#[test]
fn every_alias_of_a_public_item_is_a_name_with_state_alias() {
    let names = names();
    let known: BTreeSet<_> =
        names.iter().filter(|name| name.state == State::Alias).map(|name| name.name).collect();
    let wrong = all_aliases().into_iter().filter(|alias| alias.is_public && !known.contains(&*alias.name));
    none("misspelt, or not marked as alias in the data", wrong.map(|a| format!("{} on {}", a.name, a.item)));
}

#[test]
fn aliases_are_read_with_their_items() {
    let source = r#"
#[doc(alias = "event_a")]
#[derive(Debug)]
pub struct Thing<T> {
    /// Text.
    #[doc(alias = "event_b")]
    pub field: usize,
}

impl<T: Clone> Thing<T> {
    #[doc(alias = "event_c")]
    #[doc(alias = "event_d")]
    pub const fn make() -> Thing<T> {
        if true {
        }
    }

    #[doc(alias = "event_e")]
    fn hidden(&self) {}
}

pub trait Calls {
    #[doc(alias("event_f", "event_g"))]
    fn call(&self);
}

bitflags! {
    #[doc(alias = "event_h")]
    pub struct Bits: u8 {
        #[doc(alias = "EV_I")]
        const I = 1;
    }
}

#[doc(alias = "event_j")]
pub(crate) fn inner() {}
"#;
    let found = aliases(source);
    let found: Vec<_> = found.iter().map(|a| (&*a.name, &*a.item, a.is_public)).collect();
    let expected = [
        ("event_a", "Thing", true),
        ("event_b", "Thing::field", true),
        ("event_c", "Thing::make", true),
        ("event_d", "Thing::make", true),
        ("event_e", "Thing::hidden", false),
        ("event_f", "Calls::call", true),
        ("event_g", "Calls::call", true),
        ("event_h", "Bits", true),
        ("EV_I", "Bits::I", true),
        ("event_j", "inner", false),
    ];
    assert_eq!(found, expected);
}

// The table.

/// The words in the code spans of a text.
fn code_words(text: &str) -> impl Iterator<Item = &str> {
    let spans = text.split('`').skip(1).step_by(2);
    spans
        .flat_map(|span| span.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .filter(|word| !word.is_empty())
}

/// The rows of all tables: the C side and the Rust side.
fn rows(table: &'static str) -> Vec<(&'static str, String)> {
    let lines = table.lines().filter_map(|line| line.strip_prefix("//! | ")?.strip_suffix(" |"));
    let cells = lines.map(|line| line.split_once(" | ").expect("a row has two cells"));
    let rows = cells.filter(|(left, _)| *left != "C");
    rows.map(|(left, right)| (left, right.replace("\\|", "|"))).collect()
}

/// The part of the manual that says what is missing.
fn missing(table: &str) -> String {
    let lines = table.lines().filter_map(|line| line.strip_prefix("//!"));
    lines.skip_while(|line| *line != " # Not there yet").collect::<Vec<_>>().join("\n")
}

#[test]
fn a_name_with_state_row_has_a_row_that_shows_its_replacement() {
    let rows = rows(TABLE);
    let is_shown = |name: &Name| {
        let mut of_name = rows.iter().filter(|(left, _)| code_words(left).any(|word| word == name.name));
        name.replacement.len() > 1 && of_name.any(|(_, right)| right.contains(name.replacement))
    };
    let names = names();
    let wrong = names.iter().filter(|name| name.state == State::Row && !is_shown(name));
    none("no row with this", wrong.map(|name| format!("{} -> {}", name.name, name.replacement)));
}

#[test]
fn the_table_shows_what_there_is_and_nothing_else() {
    let rows = rows(TABLE);
    let shown: BTreeSet<_> = rows.iter().flat_map(|(left, _)| code_words(left)).collect();
    let names = names();
    let known: BTreeMap<_, _> = names.iter().map(|name| (name.name, name.state)).collect();

    let unshown = names.iter().filter(|name| name.state == State::Alias && !shown.contains(name.name));
    none("has an alias and no row", unshown.map(|name| name.name.to_owned()));

    let looks_like_a_name =
        |word: &&str| word.contains('_') && PREFIXES.iter().any(|prefix| word.starts_with(prefix));
    let unknown = shown.iter().filter(|word| looks_like_a_name(word) && !known.contains_key(**word));
    none("in the table and not in the data", unknown.map(|word| (*word).to_owned()));

    let planned = shown.iter().filter(|word| known.get(**word) == Some(&State::Planned));
    none("in the table and planned", planned.map(|word| (*word).to_owned()));

    let empty = rows.iter().filter(|(_, right)| !right.contains('`') || right.contains("not needed"));
    none("says not what to write", empty.map(|(left, _)| (*left).to_owned()));
}

#[test]
fn what_is_missing_is_listed() {
    let text = missing(TABLE);
    let listed: BTreeSet<_> = code_words(&text).collect();
    let names = names();
    let planned = names.iter().filter(|name| name.is_due() && name.state == State::Planned);
    let planned: BTreeSet<_> = planned.map(|name| name.name).collect();
    none("planned and not listed", planned.difference(&listed).map(|name| (*name).to_owned()));
    none("listed and not planned", listed.difference(&planned).map(|name| (*name).to_owned()));
}

#[test]
fn rows_are_read_with_both_sides() {
    let table = "//! | C | Rust |\n//! |---|---|\n//! | `a_b(EV_C)`, `d` | `\\|x\\|`, [`Y`] |\n//! # Not there yet\n//! `e`";
    assert_eq!(rows(table), [("`a_b(EV_C)`, `d`", "`|x|`, [`Y`]".to_owned())]);
    assert_eq!(code_words("`a_b(EV_C)`, or `d`").collect::<Vec<_>>(), ["a_b", "EV_C", "d"]);
    assert_eq!(code_words(&missing(table)).collect::<Vec<_>>(), ["e"]);
}

// The headers.

/// Without the headers of libevent 2.1 prints `skipped: libevent-dev`; where `REQUIRE_TOOLS` is set, fails the test.
fn headers() -> Option<PathBuf> {
    let directory = PathBuf::from("/usr/include/event2");
    // Debian may keep the generated header in a directory of the architecture's.
    let config = fs::read_to_string(directory.join("event-config.h")).unwrap_or_default();
    let other_version =
        config.contains("EVENT__NUMERIC_VERSION 0x") && !config.contains("EVENT__NUMERIC_VERSION 0x0201");
    if directory.join("event.h").is_file() && !other_version {
        return Some(directory);
    }
    println!("skipped: libevent-dev");
    let required = std::env::var_os("REQUIRE_TOOLS").is_some_and(|value| !value.is_empty());
    assert!(!required, "libevent-dev 2.1 is not installed, and REQUIRE_TOOLS is set");
    None
}

/// The public names that a header declares or defines.
fn declared(header: &str) -> BTreeSet<String> {
    let text = without_comments(&header.replace("\\\n", " "));
    let is_directive = |line: &&str| line.trim_start().starts_with('#');
    let mut names: BTreeSet<String> = text.lines().filter(is_directive).filter_map(defined).collect();
    let code: Vec<_> = text.lines().filter(|line| !is_directive(line)).collect();
    let code = code.join("\n");
    let tokens = tokens(&code);
    for statement in statements(&tokens) {
        names.extend(declared_by(&statement));
    }
    names.retain(|name| !name.starts_with('_') && !name.ends_with('_') && !FOREIGN.contains(&&**name));
    names
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let mut code = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        code.push(' ');
        code.push_str(part.split_once("*/").map_or("", |(_, rest)| rest));
    }
    code
}

/// The name in `#define NAME`.
fn defined(line: &str) -> Option<String> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("define")?;
    Some(first_word(rest.trim_start()).to_owned())
}

/// Words, and every other character that is not blank.
fn tokens(mut text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    while let Some(first) = text.trim_start().chars().next() {
        text = text.trim_start();
        let end = first_word(text).len().max(first.len_utf8());
        tokens.push(&text[..end]);
        text = &text[end..];
    }
    tokens
}

/// The declarations outside of all braces but those of `extern "C"`, without attributes.
fn statements<'a>(tokens: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut found = Vec::new();
    let mut statement = Vec::new();
    let mut depth = 0;
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at] {
            "extern" if tokens[at + 1..].starts_with(&["\"", "C", "\"", "{"]) => at += 4,
            "__attribute__" => {
                let mut open = 0;
                loop {
                    at += 1;
                    open += match tokens[at] {
                        "(" => 1,
                        ")" => -1,
                        _ => 0,
                    };
                    if open == 0 {
                        break;
                    }
                }
            }
            // The end of `extern "C"`.
            "}" if depth == 0 => statement.clear(),
            ";" if depth == 0 => found.push(std::mem::take(&mut statement)),
            token => {
                depth += match token {
                    "{" => 1,
                    "}" => -1,
                    _ => 0,
                };
                statement.push(token);
            }
        }
        at += 1;
    }
    found
}

/// The names that one declaration brings: a function, a type, an enum with its constants.
fn declared_by(statement: &[&str]) -> Vec<String> {
    let is_word = |token: &&&str| !first_word(token).is_empty();
    let own = |token: &&str| (*token).to_owned();
    let typedef = statement.first() == Some(&"typedef");
    let body = if typedef { &statement[1..] } else { statement };
    match body {
        [] => Vec::new(),
        ["enum", rest @ ..] if rest.contains(&"{") => {
            let open = rest.iter().position(|token| *token == "{").unwrap_or(0);
            let close = rest.iter().position(|token| *token == "}").unwrap_or(rest.len());
            let constants = rest[open + 1..close].split(|token| *token == ",").filter_map(|one| one.first());
            rest[..open]
                .iter()
                .chain(constants)
                .chain(rest[close + 1..].iter().filter(is_word))
                .map(own)
                .collect()
        }
        ["struct" | "union", tag] | ["struct" | "union", tag, "{", .., "}"] if !typedef => vec![own(tag)],
        _ if typedef => {
            let open = body.iter().position(|token| *token == "(");
            let name = match open {
                Some(open) if body.get(open + 1) == Some(&"*") => body.get(open + 2),
                Some(open) => body.get(open.saturating_sub(1)),
                None => body.last(),
            };
            name.map(own).into_iter().collect()
        }
        _ if body.contains(&"EVENT2_EXPORT_SYMBOL") => {
            let open = body.iter().position(|token| *token == "(").unwrap_or(0);
            body[..open].last().map(own).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn the_data_has_exactly_the_names_of_the_installed_headers() {
    let Some(directory) = headers() else { return };
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let header = path.file_name().unwrap().to_string_lossy().into_owned();
        if header == "event-config.h" || header == "visibility.h" {
            continue;
        }
        for name in declared(&String::from_utf8_lossy(&fs::read(path).unwrap())) {
            found.entry(name).or_default().insert(header.clone());
        }
    }
    let names = names();
    let of_2_1: BTreeMap<_, _> =
        names.iter().filter(|name| name.since == "2.1").map(|name| (name.name, name.header)).collect();
    let unknown = found.iter().filter(|(name, _)| !of_2_1.contains_key(&***name));
    none("in the headers and not in the data", unknown.map(|(name, header)| format!("{name} {header:?}")));
    let is_in = |name: &str, header: &str| found.get(name).is_some_and(|headers| headers.contains(header));
    let gone = of_2_1.iter().filter(|(name, header)| !is_in(name, header));
    none("in the data and not in that header", gone.map(|(name, header)| format!("{name} {header}")));
}

#[test]
fn names_are_read_from_a_header() {
    let header = r#"
#ifndef EVENT2_X_H_INCLUDED_
#define EVENT2_X_H_INCLUDED_
#ifdef __cplusplus
extern "C" {
#endif
/** event_comment(); */
# define evx_add(a, \
    b) event_not(a)
#define EVX_ONE 1 /* more
   event_not2 */
struct event_x;
struct timeval;
struct event_y { int field; void (*cb)(int); };
enum event_z { EVZ_A = 1, EVZ_B };
typedef enum { EVW_A } event_w;
typedef void (*event_x_cb)(int, void *);
typedef int event_v_cb(int);
EVENT2_EXPORT_SYMBOL
const char *event_x_name(const struct event_x *, void (*cb)(int))
#ifdef __GNUC__
    __attribute__((format(printf, 3, 4)))
#endif
;
EVENT2_EXPORT_SYMBOL int
event_x_size(void);
#ifdef __cplusplus
}
#endif
#endif
"#;
    let expected = [
        "EVW_A",
        "EVX_ONE",
        "EVZ_A",
        "EVZ_B",
        "event_v_cb",
        "event_w",
        "event_x",
        "event_x_cb",
        "event_x_name",
        "event_x_size",
        "event_y",
        "event_z",
        "evx_add",
    ];
    assert_eq!(declared(header).into_iter().collect::<Vec<_>>(), expected);
}
