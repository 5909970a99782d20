//! The files of the source tree that tidy reads, with their texts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::code;

/// Files by their path from the root, with `/` between folders.
#[derive(Default)]
pub(super) struct Tree {
    files: BTreeMap<String, File>,
}

/// A file's text.
pub(super) struct File {
    /// All of it.
    pub(super) text: String,
    /// Rust only: without comments and without what is in string literals, line by line the same.
    pub(super) code: String,
}

impl Tree {
    /// Reads all Rust, Markdown and lock files below `root`, hidden folders and build output excepted.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut tree = Self::default();
        tree.read_folder(root, "")?;
        Ok(tree)
    }

    /// Adds a file.
    pub(super) fn add(&mut self, path: impl Into<String>, text: impl Into<String>) {
        let (path, text) = (path.into(), text.into());
        let code = if path.ends_with(".rs") {
            code::only(&text)
        } else {
            String::new()
        };
        self.files.insert(path, File { text, code });
    }

    /// The text of one file.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|file| file.text.as_str())
    }

    /// Files whose path begins and ends so, in order of path.
    pub(super) fn files<'a>(
        &'a self,
        begin: &'a str,
        end: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a File)> {
        let all = self.files.iter().map(|(path, file)| (path.as_str(), file));
        all.filter(move |(path, _)| path.starts_with(begin) && path.ends_with(end))
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> anyhow::Result<()> {
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry
                .file_type()
                .with_context(|| format!("cannot tell what {name} is"))?;
            if name.starts_with('.') || name == "target" {
                continue;
            }
            let path = format!("{prefix}{name}");
            if kind.is_dir() {
                self.read_folder(&entry.path(), &format!("{path}/"))?;
            } else if [".rs", ".md", ".lock"].iter().any(|end| name.ends_with(end)) {
                self.add(
                    path,
                    fs::read_to_string(entry.path()).with_context(|| format!("cannot read {name}"))?,
                );
            }
        }
        Ok(())
    }
}
