//! What is found or made at run time: tools, compiled peers, programs of our own, scratch files.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Outcome;

/// Where this program's own build puts things: `target/release`.
fn build_dir() -> Outcome<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.parent().ok_or("this program lies nowhere")?.to_owned())
}

/// A directory for what is made at run time: C peers, scripts, tool output.
pub(crate) fn scratch_dir() -> Outcome<PathBuf> {
    let dir = build_dir()?.join("bench-peers");
    fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    Ok(dir)
}

/// A file for what a tool writes, of this process alone.
pub(crate) fn scratch_file(name: &str) -> Outcome<PathBuf> {
    Ok(scratch_dir()?.join(format!("{name}.{}", std::process::id())))
}

/// The full path of a tool, as the shell would find it.
pub(crate) fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Compiles `peers/NAME.c`; the inner error is why that cannot be done here.
pub(crate) fn compiled(name: &str, libraries: &[&str]) -> Outcome<Result<PathBuf, String>> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let Some(cc) = find_tool("cc") else { return Ok(Err("no C compiler (cc)".to_owned())) };
    let program = scratch_dir()?.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(format!("{name}.c"));
    // Under a name of its own first: another run of this program may be starting the old one right now.
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let fresh = program.with_extension(format!("{}-{count}", std::process::id()));
    let output = Command::new(cc).arg("-O2").arg(&source).arg("-o").arg(&fresh).args(libraries).output()?;
    if !output.status.success() {
        return Ok(Err(format!("cc {name}.c: {}", complaint(&output.stderr))));
    }
    fs::rename(&fresh, &program)?;
    Ok(Ok(program))
}

/// Builds a program of our own with cargo if cargo runs us, so that it is never an old one; else takes what is there.
///
/// `what` is what `cargo build --release` is told, `path` where the program then lies in `target/release`.
pub(crate) fn built_by_cargo(what: &[&str], path: &str) -> Outcome<Result<PathBuf, String>> {
    let build_dir = build_dir()?;
    let target = build_dir.parent().ok_or("no target directory")?;
    if let Some(cargo) = std::env::var_os("CARGO") {
        let output = Command::new(cargo)
            .args(["build", "--release"])
            .args(what)
            .args([OsString::from("--target-dir"), target.into()])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()?;
        if !output.status.success() {
            return Ok(Err(format!("cargo build: {}", complaint(&output.stderr))));
        }
    }
    let program = target.join("release").join(path);
    if program.is_file() {
        return Ok(Ok(program));
    }
    Ok(Err(format!("cargo build --release {} has not been run", what.join(" "))))
}

/// Builds `peers/DIRECTORY`, a workspace of its own, with cargo; the inner error is why that cannot be done here.
pub(crate) fn peer_workspace(directory: &str, program: &str) -> Outcome<Result<PathBuf, String>> {
    let cargo = std::env::var_os("CARGO").map(PathBuf::from).or_else(|| find_tool("cargo"));
    let Some(cargo) = cargo else { return Ok(Err("no cargo".to_owned())) };
    let target = scratch_dir()?.join(directory);
    let output = Command::new(cargo)
        .args(["build", "--release", "--locked", "--target-dir"])
        .arg(&target)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(directory))
        .output()?;
    if !output.status.success() {
        return Ok(Err(format!("cargo build of {directory}: {}", complaint(&output.stderr))));
    }
    Ok(Ok(target.join("release").join(program)))
}

/// The line that says most of what a compiler said.
fn complaint(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().find(|line| line.contains("error")).or_else(|| text.lines().next());
    line.unwrap_or("failed without a word").trim().to_owned()
}
