//! The manual is whole: every trap and every fault of libevent that is known has its entry, every example is reachable from
//! the front pages, and the chart is what its program draws.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use tests::under_test::root;

/// What programs in C rely on, and faults of libevent: kind, number or name, what it is about.
const ENTRIES: &str = include_str!("../data/porting-entries.tsv");

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The entries of a kind: number or name, and the subject.
fn entries(kind: &str) -> Vec<(&'static str, &'static str)> {
    let rows = ENTRIES.lines().filter(|line| !line.starts_with('#'));
    let fields = rows.map(|line| line.split('\t').collect::<Vec<_>>());
    let of_kind = fields.filter_map(|fields| match fields[..] {
        [of, name, subject] => (of == kind).then_some((name, subject)),
        _ => panic!("not three fields: {fields:?}"),
    });
    of_kind.collect()
}

/// The sections of a page, by the heading of the second level.
fn sections(page: &str) -> Vec<(String, String)> {
    let parts = page.split("\n## ").skip(1).map(|part| {
        let (heading, text) = part.split_once('\n').unwrap();
        // A heading of the first level ends it.
        let text = text.split("\n# ").next().unwrap();
        (heading.to_owned(), text.to_owned())
    });
    parts.collect()
}

/// The words of a section outside of its code.
fn words(text: &str) -> usize {
    text.split("```").step_by(2).flat_map(str::split_whitespace).count()
}

#[test]
fn each_of_the_42_traps_has_its_entry_which_says_what_becomes_of_it() {
    let traps = entries("trap");
    assert_eq!(
        traps.iter().map(|trap| trap.0).collect::<Vec<_>>(),
        (1..=42).map(|n| n.to_string()).collect::<Vec<_>>()
    );
    let sections = sections(&read("event-core/src/manual/traps.md"));
    let headings: Vec<&str> = sections.iter().map(|section| section.0.as_str()).collect();
    let expected: Vec<String> =
        traps.iter().map(|(number, subject)| format!("{number}. {subject}")).collect();
    assert_eq!(headings, expected);
    let verdicts = ["same", "different", "missing"];
    let mut counts = [0; 3];
    for (heading, text) in &sections {
        let bold: Vec<&str> = text.split("**").skip(1).step_by(2).collect();
        let said = |verdict: &str| bold.iter().any(|bold| bold.to_lowercase().starts_with(verdict));
        assert!(
            verdicts.iter().any(|verdict| said(verdict)),
            "{heading}: neither same, different nor missing"
        );
        for (count, verdict) in counts.iter_mut().zip(verdicts) {
            *count += usize::from(said(verdict));
        }
        assert!(text.contains('`'), "{heading}: names nothing");
        assert!(words(text) >= 20, "{heading}: says little");
    }
    println!("of 42 traps: same {}, different in a point {}, missing {}", counts[0], counts[1], counts[2]);
}

#[test]
fn each_known_fault_of_libevent_has_its_entry() {
    let faults = entries("fault");
    let sections = sections(&read("event-core/src/manual/on_purpose.md"));
    let headings: Vec<&str> = sections.iter().map(|section| section.0.as_str()).collect();
    assert_eq!(headings, faults.iter().map(|fault| fault.1).collect::<Vec<_>>());
    for (heading, text) in &sections {
        assert!(words(text) >= 15, "{heading}: says little");
        assert!(text.contains("ere"), "{heading}: says not what happens here");
    }
}

#[test]
fn the_chart_in_the_manual_is_what_its_program_draws() {
    let drawn = tests::turn_chart::turn();
    assert!(!drawn.contains("\n\n"), "an empty line ends the chart in Markdown");
    let path = root().join("event-core/src/manual/turn.svg");
    if std::env::var_os("WRITE_CHART").is_some() {
        fs::write(&path, &drawn).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == drawn,
        "draw it anew: WRITE_CHART=1 cargo test -p tests --test manual"
    );
}

/// Examples that are whole programs, and longer than an example should be.
const LONG: [&str; 2] = ["becat", "line_server"];

/// The names of all examples.
fn examples() -> BTreeSet<String> {
    let files = fs::read_dir(root().join("examples/examples")).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn every_example_is_reachable_from_the_readme_and_the_front_pages() {
    let readme = read("README.md");
    let page = read("examples/src/lib.rs");
    let fronts = read("event-core/src/lib.rs") + &read("event-http/src/lib.rs");
    for name in examples() {
        assert!(readme.contains(&format!("--example {name}`")), "the README does not name {name}");
        assert!(page.contains(&format!("pub mod {name} {{}}")), "the examples' page does not show {name}");
        let link = format!("](../examples/{name}/index.html)");
        assert!(fronts.contains(&link), "no front page links to {name}");
        let source = read(&format!("examples/examples/{name}.rs"));
        assert!(
            source.lines().take(8).any(|line| line.contains(&format!("cargo run --example {name}"))
                || line.contains(&format!("cargo run --release --example {name}"))),
            "{name} does not say how to try it"
        );
        let lines = source.lines().count();
        assert!(lines <= 100 || LONG.contains(&&*name), "{name} has {lines} lines");
    }
}

/// The pieces of C in a page.
fn c_pieces(page: &str) -> Vec<&str> {
    page.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// A translation unit of a piece: its types and functions as they are, its statements in a function.
fn unit(piece: &str) -> String {
    let (mut outer, mut inner, mut in_definition) = (String::new(), String::new(), false);
    for line in piece.lines() {
        let begins = line.starts_with("static ") || (line.starts_with("struct ") && line.ends_with(" {"));
        in_definition |= begins;
        let part = if in_definition { &mut outer } else { &mut inner };
        *part += line;
        *part += "\n";
        in_definition &= !line.starts_with('}');
    }
    let missing = |is: &str, declaration: &'static str| if inner.contains(is) { "" } else { declaration };
    let base = missing("struct event_base *base =", "struct event_base *base = event_base_new();");
    let http = missing("struct evhttp *http =", "struct evhttp *http = NULL;");
    let s = if inner.contains("s->") { "struct server *s = NULL;" } else { "struct session *s = NULL;" };
    format!(
        "#include \"guide.h\"\n{outer}\nint piece(void)\n{{\nNAMES {s} {base} {http}\n{inner}\nreturn 0;\n}}\n"
    )
}

#[test]
fn the_c_in_the_guides_compiles_against_libevent() {
    let Some(compiler) = tests::under_test::c_compiler() else { return };
    let mut count = 0;
    for page in ["event-core/src/manual/porting.md", "event-http/src/manual/from_evhttp.md"] {
        for piece in c_pieces(&read(page)) {
            let mut command = Command::new(&compiler);
            command.args(["-fsyntax-only", "-Wall", "-Werror", "-Wno-unused", "-Wno-maybe-uninitialized"]);
            command.args(["-x", "c", "-"]).arg("-I").arg(root().join("tests/c"));
            let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(unit(piece).as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{page}:\n{piece}\n{}", String::from_utf8_lossy(&output.stderr));
            count += 1;
        }
    }
    assert!(count >= 15, "{count} pieces");
}
