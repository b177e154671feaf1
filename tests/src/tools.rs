//! Programs that a test needs and a machine may lack.

use std::path::PathBuf;

/// Finds a program on PATH.
///
/// Without it prints `skipped: NAME` and gives `None`, for the test to return; where `REQUIRE_TOOLS` is set to
/// anything but nothing, as `.ci/run` does, it fails the test instead.
///
/// # Panics
/// If the program is missing and `REQUIRE_TOOLS` is set.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| is_program(file));
    if found.is_none() {
        println!("skipped: {name}");
        let required = std::env::var_os("REQUIRE_TOOLS").is_some_and(|value| !value.is_empty());
        assert!(!required, "{name} is not installed, and REQUIRE_TOOLS is set");
    }
    found
}

fn is_program(file: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_every_system_has_is_found() {
        assert!(tool("sh").unwrap().ends_with("sh"));
    }

    #[test]
    fn a_directory_or_a_plain_file_is_no_program() {
        assert!(!is_program("/etc".as_ref()));
        assert!(!is_program("/etc/passwd".as_ref()));
        assert!(!is_program("/no/such/file".as_ref()));
    }
}
