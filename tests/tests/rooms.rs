//! Which module of the reactor may import which: each room from those above it only.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms from the ground up. Those of one line know each other.
const ROOMS: &[&[&str]] = &[
    // Bit sets, errors, keys, points in time: pure, and known to all.
    &["interest"],
    &["error"],
    &["slots"],
    &["clock"],
    // For unit tests.
    &["few"],
    // Bytes in memory; knows nothing of fds or of the loop.
    &["buffer"],
    // Where sockets are, as a value and as text.
    &["address"],
    // The kernels, real and simulated.
    &["sys"],
    // What a loop keeps: fds, active events, timers.
    &["fdmap"],
    &["queue"],
    &["heap"],
    &["common_timeout"],
    &["stats"],
    // The loop takes other threads' requests out of the inbox that `remote` keeps; `remote` hands out what reaches it.
    &["remote", "reactor"],
    &["config"],
    &["base"],
    &["event"],
    &["watcher"],
    // What crates on top of this one are built with.
    &["owned"],
    // Threads for what blocks, and who looks names up with them.
    &["workers"],
    &["resolver"],
    &["bufferevent"],
    &["listener"],
    // The public face of the simulation.
    &["testing"],
    // The root re-exports all of them; what asserts things of public types, and the manual, name them through it.
    &["lib", "manual", "threads"],
];

fn floor(room: &str) -> usize {
    let floor = ROOMS.iter().position(|rooms| rooms.contains(&room));
    floor.unwrap_or_else(|| panic!("the room `{room}` is not in the table"))
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.push(path),
        }
    }
}

/// The first segments after `crate::`, outside of comments and unit tests.
fn imports(text: &str) -> BTreeSet<&str> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut found = BTreeSet::new();
    for line in code {
        for rest in line.split("crate::").skip(1) {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            // What begins with a capital is re-exported by the root; in braces only such names stand here.
            let of_root = rest.starts_with(|c: char| c.is_uppercase() || c == '{');
            found.insert(if of_root { "lib" } else { &rest[..end] });
        }
    }
    found
}

#[test]
fn every_module_imports_from_the_rooms_below_it_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../event-core/src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 30, "{files:?}");
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for file in files {
        let inside = file.strip_prefix(&root).unwrap();
        let of_tests = |part: &str| part.ends_with("tests") || part.ends_with("tests.rs");
        if inside.iter().any(|part| of_tests(part.to_str().unwrap())) {
            continue;
        }
        let first = inside.iter().next().unwrap().to_str().unwrap();
        let room = first.strip_suffix(".rs").unwrap_or(first).to_owned();
        for import in imports(&fs::read_to_string(&file).unwrap()) {
            let same_floor = ROOMS[floor(&room)].contains(&import);
            if !same_floor && floor(import) >= floor(&room) {
                wrong.push(format!("{} imports `{import}`", inside.display()));
            }
        }
        seen.insert(room);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let known: BTreeSet<String> = ROOMS.iter().copied().flatten().map(|room| (*room).to_owned()).collect();
    assert_eq!(known.difference(&seen).collect::<Vec<_>>(), Vec::<&String>::new(), "rooms without a file");
}

#[test]
fn the_reader_of_imports_sees_what_it_should() {
    let text = "//! see crate::base\nuse crate::error::Error;\nuse crate::{Bytes};\nlet x = crate::fdmap::NONE;\n\
                use crate::Buffer;\n#[cfg(test)]\nmod tests { use crate::testing; }";
    assert_eq!(imports(text).into_iter().collect::<Vec<_>>(), ["error", "fdmap", "lib"]);
}
