//! The ledger of faults: each row that is said to be covered names a test that is there.

// Everything here is part of a test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The file in which a test of the ledger stands: `timers` is one of this directory, anything with a slash a path from
/// the root of the workspace.
fn source(file: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    match file.contains('/') {
        true => here.parent().unwrap().join(file),
        false => here.join("tests").join(file).with_extension("rs"),
    }
}

#[test]
fn every_test_that_the_ledger_names_exists() {
    let ledger = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ledger.tsv")).unwrap();
    let mut lines = ledger.lines();
    assert_eq!(lines.next(), Some("# fault row, test"));
    let mut seen = BTreeSet::new();
    for line in lines {
        let (row, test) = line.split_once('\t').unwrap_or_else(|| panic!("no tab in `{line}`"));
        row.parse::<u32>().unwrap_or_else(|_| panic!("no row number in `{line}`"));
        let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("no test in `{line}`"));
        let text = fs::read_to_string(source(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(&format!("fn {name}()")), "there is no test `{name}` in {file}");
        assert!(seen.insert(line), "twice: `{line}`");
    }
    assert!(seen.len() > 30);
}
