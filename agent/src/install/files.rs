//! Files that are replaced as a whole, so that whoever reads them, or dies, never sees half of one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

/// End of the names of unfinished files. There is one agent, so that what another has left is overwritten.
pub(super) const UNFINISHED: &str = ".meshgate-tmp";

/// An operation on a file that failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {path}: {source}")]
pub(super) struct FileError {
    pub(super) operation: &'static str,
    pub(super) path: PathBuf,
    pub(super) source: io::Error,
}

impl FileError {
    /// Names the operation and the path of an error.
    pub(super) fn of(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self {
            operation,
            path: path.clone(),
            source,
        }
    }
}

/// Whether a file was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaced {
    /// It was.
    Yes,
    /// Somebody else changed it meanwhile, and that stands.
    Changed,
}

/// Writes a file whatever was there.
pub(super) fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), FileError> {
    let unfinished = Unfinished::new(path, content, mode)?;
    fs::rename(&unfinished.0, path).map_err(FileError::of("replacing", path))?;
    sync_folder(path);
    Ok(())
}

/// Replaces a file that says `base`, or makes one where none is. Exchanging the two shows what was there at that very
/// moment, so that no change of another program is lost.
pub(super) fn replace(path: &Path, base: Option<&str>, text: &str, mode: u32) -> Result<Replaced, FileError> {
    let unfinished = Unfinished::new(path, text.as_bytes(), mode)?;
    let fresh = &unfinished.0;
    let flags = match base {
        Some(_) => RenameFlags::EXCHANGE,
        None => RenameFlags::NOREPLACE,
    };
    let replaced = match (renameat_with(CWD, fresh, CWD, path, flags), base) {
        (Ok(()), None) => Replaced::Yes,
        (Ok(()), Some(base)) => displaced(path, fresh, base, text)?,
        (Err(Errno::EXIST), _) if !path.is_file() => {
            return Err(FileError::of("making", path)(io::Error::new(
                ErrorKind::AlreadyExists,
                "a folder, a link to nothing or the like stands in its place: remove that",
            )));
        }
        (Err(Errno::EXIST | Errno::NOENT), _) => Replaced::Changed,
        // Not every file system can exchange; then a moment is left in which a change is lost.
        (Err(Errno::INVAL), base) => replace_plainly(path, fresh, base)?,
        (Err(error), _) => return Err(FileError::of("replacing", path)(error.into())),
    };
    drop(unfinished);
    sync_folder(path);
    Ok(replaced)
}

/// Looks at what the exchange has brought back; what was not expected goes back to its place.
fn displaced(path: &Path, fresh: &Path, base: &str, ours: &str) -> Result<Replaced, FileError> {
    let is = |text: &str| read(fresh).is_ok_and(|content| content == text.as_bytes());
    if is(base) {
        return Ok(Replaced::Yes);
    }
    let exchange = || renameat_with(CWD, fresh, CWD, path, RenameFlags::EXCHANGE);
    exchange().map_err(|error| FileError::of("restoring", path)(error.into()))?;
    if !is(ours) {
        // Somebody wrote between the two exchanges: that is the newest.
        exchange().map_err(|error| FileError::of("restoring", path)(error.into()))?;
    }
    Ok(Replaced::Changed)
}

fn replace_plainly(path: &Path, fresh: &Path, base: Option<&str>) -> Result<Replaced, FileError> {
    let now = read(path).ok();
    if now.as_deref() != base.map(str::as_bytes) {
        return Ok(Replaced::Changed);
    }
    fs::rename(fresh, path).map_err(FileError::of("replacing", path))?;
    Ok(Replaced::Yes)
}

/// Reads a regular file, through links; a FIFO would keep the reader for ever.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open(path)?.read_to_end(&mut content)?;
    Ok(content)
}

/// Opens a regular file for reading, through links.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(file)
}

/// A complete file beside the one that it is to replace, on the disk; it goes with this value.
struct Unfinished(PathBuf);

impl Unfinished {
    fn new(path: &Path, content: &[u8], mode: u32) -> Result<Self, FileError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let fresh = Self(path.with_file_name(format!(".{name}{UNFINISHED}")));
        let written = fresh.write(content, mode);
        written.map_err(FileError::of("writing", path))?;
        Ok(fresh)
    }

    /// Whatever stood there, a link or a FIFO too, is not written through but removed.
    fn write(&self, content: &[u8], mode: u32) -> io::Result<()> {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&self.0)?;
        // The mode above counts only through the umask.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.sync_all()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A rename is on the disk when its folder is; where that fails the next start repairs.
fn sync_folder(path: &Path) {
    if let Some(folder) = path.parent().and_then(|folder| File::open(folder).ok()) {
        let _ = folder.sync_all();
    }
}

/// Whether this is the name of an unfinished file.
pub(super) fn is_unfinished(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(UNFINISHED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_expected_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.conflist");
        let read = || fs::read_to_string(&path).unwrap();
        assert_eq!(
            replace(&path, Some("x"), "ours", 0o600).unwrap(),
            Replaced::Changed,
            "no file"
        );
        assert_eq!(replace(&path, None, "ours", 0o640).unwrap(), Replaced::Yes);
        assert_eq!(
            (
                read().as_str(),
                fs::metadata(&path).unwrap().permissions().mode() & 0o777
            ),
            ("ours", 0o640)
        );
        assert_eq!(replace(&path, None, "again", 0o600).unwrap(), Replaced::Changed);
        fs::write(&path, "theirs").unwrap();
        assert_eq!(
            replace(&path, Some("ours"), "again", 0o600).unwrap(),
            Replaced::Changed
        );
        assert_eq!(read(), "theirs");
        assert_eq!(
            replace(&path, Some("theirs"), "again", 0o600).unwrap(),
            Replaced::Yes
        );
        assert_eq!(read(), "again");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing unfinished is left"
        );
    }

    #[test]
    fn nothing_but_a_regular_file_is_read_or_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let fifo = |path: &Path| {
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            rustix::fs::mknodat(CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        };
        fifo(&at("fifo"));
        assert_eq!(read(&at("fifo")).unwrap_err().kind(), ErrorKind::InvalidInput);
        // In the way of what is to be written.
        fs::write(at("precious"), "theirs").unwrap();
        fifo(&at(".a.meshgate-tmp"));
        write(&at("a"), b"ours", 0o600).unwrap();
        std::os::unix::fs::symlink(at("precious"), at(".a.meshgate-tmp")).unwrap();
        assert_eq!(
            replace(&at("a"), Some("ours"), "again", 0o600).unwrap(),
            Replaced::Yes
        );
        assert_eq!(
            [fs::read(at("a")).unwrap(), fs::read(at("precious")).unwrap()],
            [&b"again"[..], b"theirs"]
        );
        // In its place: told, and nothing unfinished is left.
        fs::create_dir(at("folder")).unwrap();
        std::os::unix::fs::symlink("nowhere", at("link")).unwrap();
        for name in ["folder", "link"] {
            let error = replace(&at(name), None, "ours", 0o600).unwrap_err().to_string();
            assert!(error.contains("in its place"), "{error}");
        }
        write(&at("folder"), b"ours", 0o600).unwrap_err();
        let unfinished = |entry: &fs::DirEntry| is_unfinished(&entry.file_name().to_string_lossy());
        assert_eq!(
            fs::read_dir(folder.path())
                .unwrap()
                .flatten()
                .filter(unfinished)
                .count(),
            0
        );
    }
}
