//! The program that measures, run once for a second: that its figures are there, not what they are.

// Everything here is part of a test.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn is_there(tool: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|dir| dir.join(tool).is_file())
}

#[test]
fn a_round_of_http_gives_figures_of_the_bare_loop_and_of_whatever_else_is_built() {
    for tool in ["cc", "strace", "wrk"] {
        if !is_there(tool) {
            println!("skipped: {tool}");
            assert!(std::env::var_os("REQUIRE_TOOLS").is_none(), "{tool} is not there");
            return;
        }
    }
    let json = Path::new(env!("CARGO_TARGET_TMPDIR")).join("smoke.json");
    let output = Command::new(env!("CARGO_BIN_EXE_benches"))
        .args([
            "http",
            "--rounds",
            "1",
            "--seconds",
            "1",
            "--only",
            "bare,event-http",
            "--modes",
            "k1",
            "--json",
        ])
        .arg(&json)
        // Else it would build our server first, with optimisation, which is much for a test.
        .env_remove("CARGO")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}{errors}");
    assert!(errors.contains("http: 1 modes, 2 servers, 1 rounds of 1 s: about 1 minutes"), "{errors}");
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["failures"], Value::Array(Vec::new()), "{report}");
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    let servers: Vec<_> = rows.iter().map(|row| row["server"].as_str().unwrap()).collect();
    assert_eq!(servers, ["bare", "event-http"]);
    for row in rows {
        let note = row["note"].as_str().unwrap();
        if note.starts_with("missing: ") && row["server"] != "bare" {
            println!("skipped: event-http: {note}");
            continue;
        }
        assert_eq!(row["failed"], 0, "{row}");
        for column in ["req/s", "cpu us/req", "cpu to bare", "p50 us", "p99 us", "RSS KiB", "busy %"] {
            assert!(row[column]["median"].as_f64().unwrap() > 0.0, "{column}: {row}");
        }
        // Wait, receive, send. Now and then a server finds the next request before it waits.
        let calls = row["calls/req"].as_f64().unwrap();
        assert!((2.5..3.5).contains(&calls), "{row}");
    }
    assert_eq!(rows[0]["cpu to bare"]["median"], 1.0);
}
