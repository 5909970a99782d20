//! Which files of the folder a container runtime would use, in its order: as libcni 1.3 lists and loads them.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::document::{Document, NotUnderstood, parse, plugins_elsewhere};
use super::element::PluginType;

/// A file of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name.
    pub name: OsString,
    /// What it says, or why it cannot be read.
    pub text: Result<String, String>,
}

/// The folder, as it was at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folder {
    /// Files that matter: all that [`is_configuration`], and those that the settings name.
    pub files: Vec<File>,
    /// Folders therein that have a `*.conf`: plugins of the list that has the folder's name.
    pub plugin_folders: BTreeSet<OsString>,
}

/// A file that is passed over, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skipped {
    /// Its name.
    pub name: OsString,
    /// Why.
    pub why: String,
}

/// Whether a runtime looks at files of this name.
#[must_use]
pub fn is_configuration(name: &OsStr) -> bool {
    has_extension(name, "conf") || has_extension(name, "conflist")
}

pub(super) fn has_extension(name: &OsStr, extension: &str) -> bool {
    Path::new(name).extension() == Some(OsStr::new(extension))
}

impl Folder {
    pub(super) fn get(&self, name: &OsStr) -> Option<&File> {
        self.files.iter().find(|file| file.name == name)
    }

    /// The files that a runtime would use, first first, and those that it would pass over. Where we cannot tell, it would:
    /// to pass over a file that the runtime takes leaves pods uncaptured without a word.
    #[must_use]
    pub fn usable(&self) -> (Vec<&File>, Vec<Skipped>) {
        let mut files: Vec<&File> = self
            .files
            .iter()
            .filter(|file| is_configuration(&file.name))
            .collect();
        files.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        let mut skipped = Vec::new();
        files.retain(|file| match self.check(file) {
            Ok(()) => true,
            Err(why) => {
                skipped.push(Skipped {
                    name: file.name.clone(),
                    why,
                });
                false
            }
        });
        (files, skipped)
    }

    fn check(&self, file: &File) -> Result<(), String> {
        let Ok(text) = &file.text else {
            return Ok(());
        };
        let is_list = has_extension(&file.name, "conflist");
        match parse(text) {
            Ok(Document::List { .. }) if is_list => Ok(()),
            Ok(Document::Single { plugin, .. }) if PluginType::is_ours(&plugin) => {
                Err("it is our plugin alone, without a network".to_owned())
            }
            Ok(Document::Single { .. }) if !is_list => Ok(()),
            Ok(Document::List { .. }) => Err("it is a list, whose file must end with .conflist".to_owned()),
            Ok(Document::Single { .. }) => Err("it is one plugin, whose file must end with .conf".to_owned()),
            Err(NotUnderstood::InDoubt { .. }) => Ok(()),
            Err(_) if is_list && self.has_its_plugins_elsewhere(text) => Ok(()),
            Err(NotUnderstood::Field { .. }) if !is_list && !has_type(text) => {
                Err("\"type\" is missing".to_owned())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn has_its_plugins_elsewhere(&self, text: &str) -> bool {
        plugins_elsewhere(text).is_some_and(|name| self.plugin_folders.contains(OsStr::new(&name)))
    }
}

fn has_type(text: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(text).is_ok_and(|value| value.get("type").is_some())
}
