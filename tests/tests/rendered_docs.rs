//! Whoever searches the rendered documentation for a C name finds what takes its place.
//!
//! Looks at what `cargo doc --workspace --no-deps` has made: without that it prints `skipped: cargo doc`; where
//! `REQUIRE_TOOLS` is set, as `.ci/run` does after it has made them, it fails.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::under_test::root;

/// C names from all over, with where a search must lead.
const NAMES: [(&str, &str); 24] = [
    ("event_base_new", "event_core/struct.EventBase.html#method.new"),
    ("event_base_dispatch", "event_core/struct.EventBase.html#method.dispatch"),
    ("event_base_loopexit", "event_core/struct.LoopHandle.html#method.loopexit"),
    ("event_base_once", "event_core/struct.LoopHandle.html#method.once"),
    ("event_new", "event_core/struct.Event.html#method.new"),
    ("event_add", "event_core/struct.Event.html#method.add"),
    ("evtimer_new", "event_core/struct.Timer.html#method.new"),
    ("evsignal_new", "event_core/struct.Signal.html#method.new"),
    ("event_reinit", "event_core/struct.EventBase.html#method.after_fork"),
    ("evwatch_prepare_new", "event_core/struct.Watcher.html#method.prepare"),
    ("EV_READ", "event_core/struct.What.html#associatedconstant.READ"),
    ("BEV_EVENT_EOF", "event_core/struct.StreamEvent.html#associatedconstant.EOF"),
    ("bufferevent_setcb", "event_core/struct.BufferEvent.html#method.set_callbacks"),
    ("bufferevent_enable", "event_core/struct.BufferEvent.html#method.enable"),
    ("bufferevent_setwatermark", "event_core/struct.BufferEvent.html#method.set_watermark"),
    ("evbuffer_add_printf", "event_core/struct.Buffer.html#method.write_fmt"),
    ("evbuffer_readln", "event_core/struct.Buffer.html#method.readln"),
    ("evbuffer_add_file", "event_core/struct.Buffer.html#method.add_file"),
    ("evconnlistener_new_bind", "event_core/struct.Listener.html#method.bind"),
    ("evhttp_new", "event_http/struct.Server.html#method.new"),
    ("evhttp_set_cb", "event_http/struct.Server.html#method.set_cb"),
    ("evhttp_send_reply", "event_http/struct.Request.html#method.send_reply"),
    ("evhttp_send_reply_chunk", "event_http/struct.Reply.html#method.chunk"),
    ("evhttp_uri_parse", "event_http/struct.Uri.html#method.parse"),
];

/// Where the documentation lies, if it was made.
fn docs() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap();
    let doc = target.join("doc");
    if doc.join("event_http/index.html").is_file() {
        return Some(doc);
    }
    println!("skipped: cargo doc");
    let required = std::env::var_os("REQUIRE_TOOLS").is_some_and(|value| !value.is_empty());
    assert!(!required, "no documentation in {}: cargo doc --workspace --no-deps", doc.display());
    None
}

/// Everything in the search index.
fn index(doc: &Path) -> String {
    fn read(path: &Path, all: &mut String) {
        for entry in fs::read_dir(path).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => read(&path, all),
                false => all.push_str(&fs::read_to_string(path).unwrap()),
            }
        }
    }
    let mut all = String::new();
    read(&doc.join("search.index"), &mut all);
    // Before Rust 1.92 it was one file.
    for entry in fs::read_dir(doc).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("search-index") {
            all.push_str(&fs::read_to_string(path).unwrap());
        }
    }
    all
}

/// A name as it stands in the index: behind its length, in base 16 with a digit's last place in lower case.
fn entry(name: &str) -> String {
    let hex = format!("{:x}", name.len());
    let last = hex.len() - 1;
    let digit = |(at, digit): (usize, char)| {
        let base = if at == last { 0x60 } else { 0x40 };
        char::from(base + digit.to_digit(16).unwrap() as u8)
    };
    hex.chars().enumerate().map(digit).chain(name.chars()).collect()
}

#[test]
fn each_c_name_stands_in_the_search_index_and_its_item_is_there() {
    assert_eq!(
        (entry("event_base_new"), entry("event_get_events")),
        ("nevent_base_new".into(), "A`event_get_events".into())
    );
    let Some(doc) = docs() else { return };
    let index = index(&doc);
    let is_in = |name: &str| index.contains(&entry(name)) || index.contains(&format!("\"{name}\""));
    assert!(!is_in("event_base_nee"));
    for (name, place) in NAMES {
        assert!(is_in(name), "{name} is not in the index");
        let (page, item) = place.split_once('#').unwrap();
        let page = fs::read_to_string(doc.join(page)).unwrap();
        assert!(page.contains(&format!("id=\"{item}\"")), "{name}: there is no {place}");
    }
}

#[test]
fn the_search_itself_leads_from_each_c_name_to_its_item() {
    let Some(doc) = docs() else { return };
    // The search is a script of the pages, and needs something that runs scripts.
    let is_new = doc.join("search.index").is_dir();
    let mut node = Command::new("node");
    node.arg(root().join("tests/data/search.js")).arg(&doc).args(NAMES.map(|(name, _)| name));
    let Some(output) = is_new.then(|| node.output().ok()).flatten() else {
        println!("skipped: node");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Vec<&str>> = found.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.iter().map(|line| line[0]).collect::<Vec<_>>(), NAMES.map(|(name, _)| name));
    for (line, (name, place)) in lines.iter().zip(NAMES) {
        // Where a name has become several calls, each is a hit.
        assert!(line[1..].contains(&&*format!("../{place}")), "{name} leads to {:?}", &line[1..]);
    }
}

/// Where the links of a page lead that stay within the documentation: file and anchor.
fn links(text: &str) -> Vec<(&str, &str)> {
    let links = text.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    // Scripts put others together.
    let inside =
        links.filter(|link| !link.starts_with("http") && !link.starts_with('#') && !link.contains('$'));
    inside.map(|link| link.split_once('#').unwrap_or((link, ""))).collect()
}

#[test]
fn the_links_of_the_front_pages_and_of_the_manuals_lead_somewhere() {
    let Some(doc) = docs() else { return };
    let mut pages: Vec<PathBuf> = ["event_core", "event_http", "examples"]
        .iter()
        .map(|name| doc.join(name).join("index.html"))
        .collect();
    for manual in ["event_core/manual", "event_http/manual"] {
        let entries = fs::read_dir(doc.join(manual)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.is_dir()).map(|path| path.join("index.html")));
        pages.push(doc.join(manual).join("index.html"));
    }
    assert!(pages.len() >= 3 + 5 + 1 + 2, "{pages:?}");
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for (file, anchor) in links(&text) {
            let path = page.with_file_name(file);
            assert!(path.exists(), "{}: there is no {file}", page.display());
            let has = anchor.is_empty()
                || file.contains("/src/")
                || path.extension().is_some_and(|extension| extension != "html")
                || fs::read_to_string(&path).unwrap().contains(&format!("id=\"{anchor}\""));
            assert!(has, "{}: {file} has no place {anchor}", page.display());
        }
    }
}
