//! Serves the files of a directory: libevent's `http-server` sample. A directory is listed, whatever is not GET and the
//! path /dump are printed, and paths with `..` are refused. Ctrl-C ends it.
//!
//! Try: cargo run --example http_server -- -H 127.0.0.1 -p 8083 .      and in another terminal: curl http://127.0.0.1:8083/

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use event_core::{Address, Buffer, EventBase, ListenerOptions, Signal};
use event_http::{Error, Limits, Method, Plus, Request, Server, htmlescape, uridecode_str, uriencode};
use examples::{cannot_listen, getopt, number, stop_with};

const USAGE: &str = "usage: http_server [-p port] [-U socket [-u]] [-H address] [-m bytes] [-v] docroot
  -U  listen on this unix socket instead
  -u  replace the unix socket that an earlier run has left
  -m  bytes of a request's body, above which it is answered 413
  -v  say what is asked for";

/// What a file is, by the end of its name.
const TYPES: [(&str, &str); 3] = [("html", "text/html"), ("txt", "text/plain"), ("png", "image/png")];

fn dump(req: Request) -> Result<(), Error> {
    println!("{} {}", req.method(), req.target());
    req.headers().iter().for_each(|(name, value)| println!("{name}: {}", value.to_str().unwrap_or("?")));
    println!("\n{}", String::from_utf8_lossy(&req.body().to_vec()));
    req.send_reply(200, "OK", "")
}

/// The page that lists a directory.
fn list(directory: &Path, path: &str) -> std::io::Result<String> {
    let names: BTreeSet<_> = fs::read_dir(directory)?.flatten().map(|entry| entry.file_name()).collect();
    let base = format!("/{}/", path.trim_matches('/')).replace("//", "/");
    let (title, base) = (htmlescape(path), htmlescape(&base));
    let mut page = format!("<html><head><title>{title}</title><base href=\"{base}\"></head><body><ul>\n");
    for name in names {
        let name = name.to_string_lossy();
        let link = uriencode(name.as_bytes(), Plus::Literal);
        page += &format!("<li><a href=\"{link}\">{}</a>\n", htmlescape(&name));
    }
    Ok(page + "</ul></body></html>\n")
}

/// What a path stands for, and its type; `None` for nothing.
fn find(root: &Path, path: &str) -> Option<(Buffer, &'static str)> {
    let file = Some(root.join(path.trim_start_matches('/'))).filter(|_| !path.contains(".."))?;
    if file.is_dir() {
        return Some((list(&file, path).ok()?.into(), "text/html"));
    }
    let mut body = Buffer::new(); // the kernel sends the file from where it lies
    body.add_file(File::open(Some(&file).filter(|file| file.is_file())?).ok()?, 0, None).ok()?;
    let known = TYPES.iter().find(|(end, _)| file.extension().is_some_and(|of| of == *end));
    Some((body, known.map_or("application/misc", |(_, name)| name)))
}

fn document(mut req: Request, root: &Path) -> Result<(), Error> {
    let found = uridecode_str(req.path(), Plus::Literal).ok().and_then(|path| find(root, &path));
    let Some((body, content_type)) = found else { return req.send_error(404, "Document was not found") };
    req.add_header("Content-Type", content_type)?;
    req.send_reply(200, "OK", body)
}

fn main() -> Result<(), Error> {
    let (mut host, mut port, mut unix) = ("0.0.0.0".to_owned(), 0, None);
    let (mut options, mut limits, mut verbose) = (ListenerOptions::new(), Limits::default(), false);
    let (given, rest) = getopt("p:U:uH:m:v", USAGE);
    for (option, value) in given {
        match option {
            'p' => port = number(&value, USAGE),
            'U' => unix = Some(Address::unix(value)),
            'u' => options = options.replace_stale(true),
            'H' => host = value,
            'm' => limits.max_body_bytes = Some(number(&value, USAGE)),
            _ => verbose = true,
        }
    }
    let [root] = rest.try_into().unwrap_or_else(|_| stop_with(USAGE));

    let mut base = EventBase::new()?;
    let http = Server::new(&base)?;
    http.set_limits(limits);
    http.set_cb("/dump", dump)?;
    http.set_gencb(move |req| {
        if verbose {
            println!("asked for {}", req.target());
        }
        if *req.method() == Method::GET { document(req, root.as_ref()) } else { dump(req) }
    });
    let bound = match unix {
        Some(address) => http.bind_with(&options, address),
        None => http.bind_with(&options, (&*host, port)),
    }
    .unwrap_or_else(|error| cannot_listen("that address", error));
    println!("listening on {}", bound.local_address()?);
    let stop = Signal::new(&base, Signal::INT, move |_| http.shutdown(Duration::from_secs(1)))?;
    stop.add()?;
    stop.set_background(true)?;
    base.dispatch().map(|_| ()).map_err(Into::into)
}
