//! What is to be done so that nothing of ours is left in the folder.

use std::ffi::{OsStr, OsString};

use super::document::{Document, parse};
use super::edit::remove;
use super::element::PluginType;
use super::listing::Folder;

/// A file to change or to delete, if it still says what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undo {
    /// Its name.
    pub file: OsString,
    /// What it says.
    pub base: String,
    /// What it is to say; `None`: it is to go.
    pub text: Option<String>,
}

/// All files that have our plugin. `owned` are names of files that are ours as a whole. What is not understood stays.
#[must_use]
pub fn undo(folder: &Folder, owned: &[&OsStr]) -> Vec<Undo> {
    let files = folder.files.iter().filter_map(|file| {
        let base = file.text.as_ref().ok()?;
        let text = match parse(base).ok()? {
            Document::Single { plugin, .. } => PluginType::is_ours(&plugin).then_some(None)?,
            Document::List { .. } => {
                let without = remove(base).ok()??;
                (!owned.contains(&&*file.name)).then_some(without)
            }
        };
        Some(Undo {
            file: file.name.clone(),
            base: base.clone(),
            text,
        })
    });
    files.collect()
}
