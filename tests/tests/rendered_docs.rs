//! Whoever searches the rendered documentation for a C name finds what takes its place.
//!
//! Makes the documentation that it looks at, in a directory of its own and in the README's order: links from one crate
//! into another are there only if the other was documented before.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

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

/// Every public name of libevent: name, header, first version, state and replacement, with tabs in between.
const LIBEVENT: &str = include_str!("../data/libevent-names.tsv");

/// What the README has its readers say to make the documentation, behind `cargo doc`.
fn commands() -> Vec<Vec<String>> {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let commands = readme.lines().filter_map(|line| line.trim().strip_prefix("cargo doc "));
    let words = commands.map(|command| command.split_whitespace().map(str::to_owned));
    words.map(|words| words.filter(|word| word != "--open").collect()).collect()
}

/// Where the documentation lies. The first test to ask makes it.
fn docs() -> &'static Path {
    static DOCS: OnceLock<PathBuf> = OnceLock::new();
    DOCS.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rendered");
        let commands = commands();
        assert_eq!(commands.len(), 2, "{commands:?}");
        for words in commands {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["doc", "--quiet", "--target-dir"]).arg(&target).args(&words).current_dir(root());
            assert!(cargo.status().unwrap().success(), "{words:?}");
        }
        target.join("doc")
    })
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
    let doc = docs();
    let index = index(doc);
    let is_in = |name: &str| index.contains(&entry(name)) || index.contains(&format!("\"{name}\""));
    assert!(!is_in("event_base_nee"));
    for (name, place) in NAMES {
        assert!(is_in(name), "{name} is not in the index");
        let (page, item) = place.split_once('#').unwrap();
        let page = fs::read_to_string(doc.join(page)).unwrap();
        assert!(page.contains(&format!("id=\"{item}\"")), "{name}: there is no {place}");
    }
}

/// Where the search of the pages leads from each name, best first. `None` if nothing here runs scripts.
fn search<'a>(doc: &Path, names: impl Iterator<Item = &'a str> + Clone) -> Option<Vec<Vec<String>>> {
    // Before Rust 1.92 it was another script.
    let is_new = doc.join("search.index").is_dir();
    let mut node = Command::new("node");
    node.arg(root().join("tests/data/search.js")).arg(doc).args(names.clone());
    let Some(output) = is_new.then(|| node.output().ok()).flatten() else {
        println!("skipped: node");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Vec<&str>> = found.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.iter().map(|line| line[0]).collect::<Vec<_>>(), names.collect::<Vec<_>>());
    Some(lines.iter().map(|line| line[1..].iter().map(|hit| (*hit).to_owned()).collect()).collect())
}

#[test]
fn the_search_itself_leads_from_each_c_name_to_its_item() {
    let Some(found) = search(docs(), NAMES.iter().map(|(name, _)| *name)) else { return };
    for (hits, (name, place)) in found.iter().zip(NAMES) {
        // Where a name has become several calls, each is a hit.
        assert!(hits.contains(&format!("../{place}")), "{name} leads to {hits:?}");
    }
}

#[test]
fn the_search_leads_from_every_name_of_libevent_to_its_item_its_row_or_its_trap() {
    let traps = include_str!("../../event-core/src/manual/traps.md");
    let lines = LIBEVENT.lines().filter(|line| !line.starts_with('#'));
    let fields: Vec<Vec<&str>> = lines.map(|line| line.split('\t').collect()).collect();
    let names: Vec<_> = fields
        .iter()
        .filter(|line| line[3] != "planned" || traps.contains(&format!("`{}`", line[0])))
        .collect();
    assert!(names.len() > 600, "{}", names.len());
    let Some(found) = search(docs(), names.iter().map(|line| line[0])) else { return };
    let leads = |hit: &str, line: &[&str]| match line[3] {
        "alias" => match line[4].split_once("::") {
            // What a macro writes for several types.
            Some(("$type", part)) => hit.ends_with(&format!(".{part}")),
            Some((of, part)) => hit.contains(&format!(".{of}.html#")) && hit.ends_with(&format!(".{part}")),
            None => hit.ends_with(&format!(".{}.html", line[4])),
        },
        "planned" => hit == "../event_core/manual/traps/index.html",
        _ => hit == "../event_core/manual/from_libevent/index.html",
    };
    let mut lost = Vec::new();
    for (line, hits) in names.iter().zip(found) {
        // The search does not tell `evbuffer_read` and `EVBUFFER_READ` apart: what is an item is found.
        let item = names.iter().find(|other| other[3] == "alias" && other[0].eq_ignore_ascii_case(line[0]));
        if !hits.iter().any(|hit| leads(hit, item.unwrap_or(line))) {
            lost.push(format!("{} leads to {hits:?}", line[0]));
        }
    }
    assert!(lost.is_empty(), "{} names are lost:\n{}", lost.len(), lost.join("\n"));
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
    let doc = docs();
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
