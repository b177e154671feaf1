//! Servers of the distribution that are told by a file what to answer: nginx and HAProxy.
//!
//! Each gets a directory of its own, which goes with the server, and one worker.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Outcome;
use crate::tools::scratch_dir;
use crate::work::{self, MIB, Work};

/// A directory that is removed with its contents when this is dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Outcome<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = scratch_dir()?.join(format!("{name}.{}-{count}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn write(&self, name: &str, text: &str) -> Outcome<PathBuf> {
        let path = self.0.join(name);
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("benches: {}: {error}", self.0.display());
        }
    }
}

/// The arguments that make a program serve, and what must live as long as it does.
pub(crate) struct Configured {
    pub(crate) words: Vec<OsString>,
    pub(crate) dir: TempDir,
}

/// The most connections that a server is told to expect: it reserves memory for each. nginx closes idle ones as soon as less
/// than a sixteenth is free.
fn room(connections: usize) -> usize {
    64 + connections * 5 / 4
}

/// Bytes of the piece that nginx's answer from memory is made of: a word of its configuration has less than 4 KiB.
const PIECE: usize = 2048;

/// A body of up to this many bytes comes with its head, or right behind it, and fits into any buffer.
const SMALL: usize = 1024;

/// # Errors
/// `no such mode: ...` where nginx cannot do the work.
pub(crate) fn nginx(address: SocketAddr, work: Work, connections: usize) -> Outcome<Configured> {
    if matches!(work, Work::Post(len) if len > SMALL) {
        return Err("no such mode: without an upstream it answers before it has read such a body".into());
    }
    let dir = TempDir::new("nginx")?;
    let at = dir.0.display();
    let body = match work {
        Work::Big => "$p".repeat(MIB / PIECE),
        _ => "Thanks for the request!".to_owned(),
    };
    let text = format!(
        "daemon off;
master_process off;
pid {at}/pid;
error_log stderr error;
events {{ worker_connections {connections}; multi_accept on; }}
http {{
    access_log off;
    server_tokens off;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_timeout 75s;
    keepalive_requests 1000000000;
    open_file_cache max=16;
    default_type \"text/html; charset=ISO-8859-1\";
    client_body_temp_path {at}/body;
    proxy_temp_path {at}/proxy;
    fastcgi_temp_path {at}/fastcgi;
    uwsgi_temp_path {at}/uwsgi;
    scgi_temp_path {at}/scgi;
    geo $p {{ default {piece}; }}
    server {{
        listen {address} backlog=4096;
        location / {{ return 200 \"{body}\"; }}
        location = /file {{ alias {file}; }}
    }}
}}
",
        connections = room(connections),
        piece = "x".repeat(PIECE),
        file = work::file()?.display(),
    );
    let config = dir.write("nginx.conf", &text)?;
    Ok(Configured { words: words(&["-e", "stderr", "-c"], &config), dir })
}

/// # Errors
/// `no such mode: ...` where HAProxy cannot do the work.
pub(crate) fn haproxy(address: SocketAddr, work: Work, connections: usize) -> Outcome<Configured> {
    let wait_for_body = match work {
        Work::Big | Work::File => {
            return Err("no such mode: an answer of its own must fit into a buffer of 16 KiB".into());
        }
        Work::Post(len) if len > SMALL => {
            return Err("no such mode: without an upstream a body must fit into a buffer of 16 KiB".into());
        }
        Work::Post(_) => "option http-buffer-request",
        Work::Close | Work::Get => "",
    };
    let dir = TempDir::new("haproxy")?;
    let text = format!(
        "global
    maxconn {connections}
    nbthread 1
defaults
    mode http
    timeout client 75s
    timeout http-request 20s
    timeout http-keep-alive 75s
    {wait_for_body}
frontend thanks
    maxconn {connections}
    bind {address} backlog 4096
    http-request return status 200 content-type \"text/html; charset=ISO-8859-1\" \
string \"Thanks for the request!\"
",
        connections = room(connections),
    );
    let config = dir.write("haproxy.cfg", &text)?;
    Ok(Configured { words: words(&["-db", "-q", "-f"], &config), dir })
}

fn words(flags: &[&str], config: &Path) -> Vec<OsString> {
    flags.iter().map(OsString::from).chain([config.into()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_configuration_goes_with_it() {
        let made = nginx("127.0.0.1:1".parse().unwrap(), Work::Big, 10).unwrap();
        let config = PathBuf::from(made.words.last().unwrap());
        let text = fs::read_to_string(&config).unwrap();
        assert_eq!(text.matches("$p").count(), 1 + MIB / PIECE);
        assert!(text.contains("worker_connections 76;"), "{text}");
        drop(made);
        assert!(!config.parent().unwrap().exists());
    }

    #[test]
    fn what_a_program_cannot_do_is_said_and_not_tried() {
        let address = "127.0.0.1:1".parse().unwrap();
        for refused in [
            nginx(address, Work::Post(MIB), 1).err(),
            haproxy(address, Work::Post(MIB), 1).err(),
            haproxy(address, Work::File, 1).err(),
        ] {
            assert!(refused.unwrap().to_string().starts_with("no such mode: "));
        }
    }
}
