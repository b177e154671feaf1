//! Files sent from where they lie.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use super::*;

/// A file of these bytes, which has no name any more.
fn file(bytes: &[u8]) -> File {
    static NEXT: AtomicI32 = AtomicI32::new(0);
    let name = format!("event-core-sys-{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = env::temp_dir().join(name);
    fs::write(&path, bytes).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    file
}

fn pair() -> (UnixStream, UnixStream) {
    let (a, b) = UnixStream::pair().unwrap();
    a.set_nonblocking(true).unwrap();
    (a, b)
}

#[cfg(target_os = "linux")]
#[test]
fn a_range_of_a_file_is_sent_and_its_own_position_stays() {
    each(|sys| {
        let (a, mut b) = pair();
        let mut file = file(b"0123456789");
        assert_eq!(sys.sendfile(a.as_raw_fd(), &file, 3, 4).unwrap(), 4);
        assert_eq!(sys.sendfile(a.as_raw_fd(), &file, 8, usize::MAX).unwrap(), 2);
        assert_eq!(sys.sendfile(a.as_raw_fd(), &file, 10, 5).unwrap(), 0, "the end");
        assert_eq!(sys.sendfile(a.as_raw_fd(), &file, 99, 5).unwrap(), 0, "beyond it");
        let mut got = [0; 6];
        b.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"345689");
        let mut whole = Vec::new();
        file.read_to_end(&mut whole).unwrap();
        assert_eq!(whole, b"0123456789");
        assert!(sys.sendfile(a.as_raw_fd(), &file, u64::MAX, 5).is_err());
        assert!(sys.sendfile(-1, &file, 0, 5).is_err());
        assert!(sys.sendfile(closed_number(), &file, 0, 5).is_err());
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_goes_into_a_pipe_and_a_full_socket_says_so() {
    each(|sys| {
        let (mut reader, writer) = io::pipe().unwrap();
        let file = file(&[b'f'; 1 << 20]);
        assert_eq!(sys.sendfile(writer.as_raw_fd(), &file, 0, 100).unwrap(), 100);
        let mut got = [0; 100];
        reader.read_exact(&mut got).unwrap();
        assert_eq!(got, [b'f'; 100]);
        let (a, _b) = pair();
        let full = (0..1000).find_map(|_| sys.sendfile(a.as_raw_fd(), &file, 0, 1 << 20).err()).unwrap();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_sent_from_where_it_lies_says_that() {
    each(|sys| {
        let (a, _b) = pair();
        // Not a file to read at a place.
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"x").unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(reader));
        assert!(sys.sendfile(a.as_raw_fd(), &pipe, 0, 1).is_err());
        // A target that only appends.
        let path = env::temp_dir().join(format!("event-core-append-{}-{}", process::id(), sys.name()));
        let append = File::options().append(true).create(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let refused = sys.sendfile(append.as_raw_fd(), &file(b"text"), 0, 4).unwrap_err();
        assert!(matches!(refused.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported));
    });
}

#[test]
fn a_system_without_the_call_says_unsupported() {
    use std::os::fd::AsFd;
    let (a, _b) = pair();
    let refused = super::super::posix::sendfile(a.as_fd(), file(b"x").as_fd(), 0, 1).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
}
