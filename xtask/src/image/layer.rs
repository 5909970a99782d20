//! The image's one layer: files packed so that the same files make the same bytes, whenever and by whomever packed.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use super::archive::sha256;

/// A file of the layer.
pub(super) struct Entry {
    path: String,
    content: Content,
}

enum Content {
    File {
        mode: u32,
        bytes: Vec<u8>,
    },
    /// Another name of the file at this path.
    Link(String),
}

impl Entry {
    /// An executable file.
    pub(super) fn program(path: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self::file(path, 0o755, bytes)
    }

    /// A file to be read.
    pub(super) fn text(path: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self::file(path, 0o644, bytes)
    }

    /// A second name of a file.
    pub(super) fn link(path: impl Into<String>, target: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            content: Content::Link(target.into()),
        }
    }

    fn file(path: impl Into<String>, mode: u32, bytes: Vec<u8>) -> Self {
        Self {
            path: path.into(),
            content: Content::File { mode, bytes },
        }
    }
}

/// A packed layer.
pub(super) struct Layer {
    /// The compressed archive.
    pub(super) blob: Vec<u8>,
    /// Digest of the archive before it was compressed: what the image's configuration names.
    pub(super) diff_id: String,
    /// Paths of its files, with their sizes.
    pub(super) files: Vec<(String, usize)>,
}

impl Layer {
    /// Packs files, which all belong to root and are of the epoch's first second.
    pub(super) fn pack(mut entries: Vec<Entry>) -> anyhow::Result<Self> {
        // A link comes behind what it names, as whoever unpacks the layer needs it.
        entries.sort_by(|a, b| (a.content.rank(), &a.path).cmp(&(b.content.rank(), &b.path)));
        let mut tar = Builder::new(Vec::new());
        for folder in folders(&entries) {
            let mut header = header(EntryType::Directory, 0o755, 0);
            tar.append_data(&mut header, format!("{folder}/"), std::io::empty())?;
        }
        let mut files = Vec::new();
        for entry in &entries {
            let path = &entry.path;
            files.push((path.clone(), entry.content.len()));
            match &entry.content {
                Content::File { mode, bytes } => {
                    let mut header = header(EntryType::Regular, *mode, bytes.len());
                    tar.append_data(&mut header, path, bytes.as_slice())
                }
                Content::Link(target) => {
                    tar.append_link(&mut header(EntryType::Link, 0o755, 0), path, target)
                }
            }
            .with_context(|| format!("cannot pack {path}"))?;
        }
        let tar = tar.into_inner()?;
        Ok(Self {
            diff_id: sha256(&tar),
            blob: compress(&tar)?,
            files,
        })
    }
}

impl Content {
    fn rank(&self) -> u8 {
        match self {
            Self::File { .. } => 0,
            Self::Link(_) => 1,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::File { bytes, .. } => bytes.len(),
            Self::Link(_) => 0,
        }
    }
}

/// Writes the files below a folder, as whoever unpacks the layer would.
pub(super) fn write(entries: &[Entry], folder: &Path) -> anyhow::Result<()> {
    for made in folders(entries) {
        let made = folder.join(made);
        fs::create_dir_all(&made).with_context(|| format!("cannot make {}", made.display()))?;
    }
    let (links, files): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| entry.content.rank() == 1);
    for entry in files.into_iter().chain(links) {
        let path = folder.join(&entry.path);
        let _ = fs::remove_file(&path);
        match &entry.content {
            Content::File { mode, bytes } => fs::write(&path, bytes)
                .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(*mode))),
            Content::Link(target) => fs::hard_link(folder.join(target), &path),
        }
        .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// All folders above the entries, a folder behind the one that it is in.
fn folders(entries: &[Entry]) -> BTreeSet<String> {
    let above = |entry: &Entry| {
        let folders = Path::new(&entry.path).ancestors().skip(1);
        folders
            .map(|folder| folder.display().to_string())
            .collect::<Vec<_>>()
    };
    let all = entries.iter().flat_map(above);
    all.filter(|folder| !folder.is_empty()).collect()
}

fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn compress(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    // The builder's default: no name, no time in the head.
    let mut gzip = GzBuilder::new().write(Vec::new(), Compression::best());
    gzip.write_all(bytes)?;
    Ok(gzip.finish()?)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn entries() -> Vec<Entry> {
        vec![
            Entry::link("opt/b", "opt/z"),
            Entry::program("opt/z", b"program".to_vec()),
            Entry::text("usr/share/doc/t", b"text".to_vec()),
        ]
    }

    #[test]
    fn a_link_comes_behind_its_file_and_a_file_behind_its_folders() {
        let layer = Layer::pack(entries()).expect("a layer");
        let mut bytes = Vec::new();
        GzDecoder::new(layer.blob.as_slice())
            .read_to_end(&mut bytes)
            .expect("gzip");
        assert_eq!(sha256(&bytes), layer.diff_id);
        let mut archive = tar::Archive::new(bytes.as_slice());
        let found: Vec<_> = archive
            .entries()
            .expect("tar")
            .map(|entry| {
                let entry = entry.expect("an entry");
                let header = entry.header();
                assert_eq!((header.mtime().ok(), header.uid().ok()), (Some(0), Some(0)));
                let path = entry.path().expect("a path").display().to_string();
                (path, header.entry_type(), header.mode().expect("a mode"))
            })
            .collect();
        let folder = |path: &str| (path.to_owned(), EntryType::Directory, 0o755);
        assert_eq!(
            found,
            [
                folder("opt/"),
                folder("usr/"),
                folder("usr/share/"),
                folder("usr/share/doc/"),
                ("opt/z".to_owned(), EntryType::Regular, 0o755),
                ("usr/share/doc/t".to_owned(), EntryType::Regular, 0o644),
                ("opt/b".to_owned(), EntryType::Link, 0o755),
            ]
        );
    }

    #[test]
    fn a_folder_gets_what_the_layer_has_also_the_second_time() {
        let folder = std::env::temp_dir().join(format!("meshgate-layer-{}", std::process::id()));
        for _ in 0..2 {
            write(&entries(), &folder).expect("files");
        }
        let mode = |path: &str| {
            let metadata = fs::metadata(folder.join(path)).expect("a file");
            metadata.permissions().mode() & 0o777
        };
        let modes = (mode("opt/b"), mode("usr/share/doc/t"));
        let link = fs::read(folder.join("opt/b")).expect("the link");
        fs::remove_dir_all(&folder).expect("no folder");
        assert_eq!((modes, link.as_slice()), ((0o755, 0o644), b"program".as_slice()));
    }

    #[test]
    fn the_same_files_in_another_order_make_the_same_layer() {
        let mut other = entries();
        other.reverse();
        let [a, b] = [entries(), other].map(|entries| Layer::pack(entries).expect("a layer"));
        assert_eq!(a.blob, b.blob);
    }
}
