//! Files that people name, read whole, never without a bound, or written whole.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::Path,
};

/// Reads a text of at most `most` bytes. With more it is an error: `/dev/zero` has no end.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    bounded(&File::open(path)?, most)
}

/// The same, and an error for what is no regular file: a pipe waits for a writer, and a device for an event.
#[cfg(target_os = "linux")]
pub fn read_regular(path: &Path, most: u64) -> io::Result<String> {
    use std::os::unix::fs::OpenOptionsExt as _;

    // Some files of the kernel look regular, and wait.
    let file = File::options()
        .read(true)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    bounded(&file, most)
}

fn bounded(file: &File, most: u64) -> io::Result<String> {
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        let text = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(text)
}

/// The directory that holds `path`.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    }
}

/// Puts `text` in the place of what the file at `path` holds: whoever reads sees one or the other, and if there is no
/// room for it, the old one stays. Into what is no regular file, such as a device or a link, it is written.
pub fn write_text(path: &Path, text: &str) -> io::Result<()> {
    let rights = match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => return fs::write(path, text),
        Ok(found) => Some(found.permissions()),
        Err(_) => None,
    };
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    // Permissions there are another matter.
    #[cfg(not(unix))]
    builder.suffix(".new");
    let mut staged = builder.tempfile_in(directory_of(path))?;
    staged.write_all(text.as_bytes())?;
    if let Some(rights) = rights {
        staged.as_file().set_permissions(rights)?;
    }
    staged.persist(path).map(drop).map_err(|error| error.error)
}

/// Refuses what a library would read without a bound: a device, or a file of more than `most` bytes. A
/// pipe passes, because whoever writes into it ends it.
#[cfg(target_os = "linux")]
pub fn check_size(path: &Path, most: u64) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;

    let found = std::fs::metadata(path)?;
    let kind = found.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return Err(io::Error::other("it is a device, not a file"));
    }
    if kind.is_file() && found.len() > most {
        let text = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn no_more_is_read_than_may_be() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "1234").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "1234");
        let error = read_text(&path, 3).unwrap_err().to_string();
        assert_eq!(error, "it has more than 3 bytes");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_rights() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let directory = tempfile::tempdir().unwrap();
        let [path, link] = ["file", "link"].map(|name| directory.path().join(name));
        write_text(&path, "1").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let before = File::open(&path).unwrap();
        write_text(&path, "2").unwrap();
        // Whoever has the old one open goes on reading that.
        assert_eq!(io::read_to_string(before).unwrap(), "1");
        assert_eq!(fs::read_to_string(&path).unwrap(), "2");
        let rights = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(rights & 0o777, 0o640);
        symlink(&path, &link).unwrap();
        write_text(&link, "3").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "3");
        assert!(write_text(Path::new("/dev/full"), "4").is_err());
        assert!(write_text(&directory.path().join("none/file"), "5").is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_has_no_end_is_not_handed_to_a_library() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "1234").unwrap();
        check_size(&path, 4).unwrap();
        let error = check_size(&path, 3).unwrap_err().to_string();
        assert_eq!(error, "it has more than 3 bytes");
        let error = check_size(Path::new("/dev/zero"), 4).unwrap_err();
        assert_eq!(error.to_string(), "it is a device, not a file");
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        check_size(&pipe, 0).unwrap();
        let missing = check_size(&directory.path().join("none"), 4);
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
