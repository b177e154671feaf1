//! The same service written for hyper, on a current-thread tokio.
//!
//!     hyper-peer ADDR:PORT [file PATH]
//!
//! `/` thanks, after the request's body if there is one; `/big` is 1 MiB from memory, `/file` the file.

use std::convert::Infallible;
use std::error::Error;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpSocket;

type Outcome<T> = Result<T, Box<dyn Error>>;

const MIB: usize = 1 << 20;
const BLOCK: usize = 64 * 1024;

static BIG: [u8; MIB] = [b'x'; MIB];

/// What every request is answered with.
enum Answer {
    Whole(Option<Bytes>),
    /// A part of a file: hyper has no way to have the kernel send it.
    File {
        file: Arc<File>,
        at: u64,
        end: u64,
    },
}

impl Answer {
    fn left(&self) -> u64 {
        match self {
            Self::Whole(bytes) => bytes.as_ref().map_or(0, |bytes| bytes.len() as u64),
            Self::File { at, end, .. } => end - at,
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(match self.get_mut() {
            Self::Whole(bytes) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
            Self::File { at, end, .. } if at == end => None,
            Self::File { file, at, end } => {
                // Read right here: tokio's own files are read by other threads, which costs more.
                let mut block = vec![0; BLOCK.min((*end - *at) as usize)];
                Some(file.read_exact_at(&mut block, *at).map(|()| {
                    *at += block.len() as u64;
                    Frame::data(block.into())
                }))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}

async fn answer(
    request: Request<Incoming>,
    file: Option<Arc<File>>,
) -> Result<Response<Answer>, hyper::Error> {
    let path = request.uri().path();
    let answer = match (path, file) {
        ("/big", _) => Answer::Whole(Some(Bytes::from_static(&BIG))),
        ("/file", Some(file)) => Answer::File { file, at: 0, end: MIB as u64 },
        _ => Answer::Whole(Some(Bytes::from_static(b"Thanks for the request!"))),
    };
    if request.method() == Method::POST {
        // Held in memory until it is whole, as evhttp and event-http do.
        let _body = request.into_body().collect().await?;
    }
    let mut response = Response::new(answer);
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=ISO-8859-1"));
    Ok(response)
}

async fn serve(address: SocketAddr, file: Option<Arc<File>>) -> Outcome<Infallible> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(4096)?;
    eprintln!("Server started on port {}", address.port());
    let mut http = http1::Builder::new();
    // Its deadline for heads is on unless it has no timer; the others have theirs on, too.
    http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30)).pipeline_flush(true);
    let http = Arc::new(http);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (http, file) = (http.clone(), file.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, file.clone()));
            // A client that leaves is its own affair.
            let _left = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let run = || -> Outcome<Infallible> {
        let address = args.first().ok_or("usage: hyper-peer ADDR:PORT [file PATH]")?.parse()?;
        let file = match &args[1..] {
            [what, path] if what == "file" => Some(Arc::new(File::open(path)?)),
            _ => None,
        };
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(address, file))
    };
    match run() {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("hyper-peer: {error}");
            ExitCode::FAILURE
        }
    }
}
