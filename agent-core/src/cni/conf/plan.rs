//! What is to be done in the folder, from what is in it: nothing, one file to write, or nothing yet, and why.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::document::{Document, delegates, parse};
use super::edit::{Look, has_ours, insert, is_installed};
use super::element::{Element, PluginType};
use super::listing::{File, Folder, Skipped, has_extension};

/// Name of our own configuration, if no other is given: it sorts behind everybody's.
pub const STANDALONE_FILE: &str = "YYY-istio-cni.conf";
/// Name of the configuration that is ours and takes the place of the primary one.
pub const OWNED_FILE: &str = "02-istio-cni.conflist";

/// Where our plugin is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In a list of the main plugin: the file of this name, or the first that a runtime would use.
    Chained {
        /// The name.
        file: Option<OsString>,
    },
    /// In a copy of that list, which sorts before it.
    Owned {
        /// Name of the primary file, or the first that a runtime would use without ours.
        primary: Option<OsString>,
        /// Name of the copy.
        file: OsString,
    },
    /// Alone: Multus calls it besides the main plugin.
    Standalone {
        /// Name of its file.
        file: OsString,
    },
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Where.
    pub mode: Mode,
    /// What.
    pub element: Element,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// This file is as it should be.
    Keep {
        /// Its name.
        file: OsString,
    },
    /// Write this file, if it still says what it said.
    Write {
        /// Its name.
        file: OsString,
        /// What it says; `None` if it is not there.
        base: Option<String>,
        /// What it is to say.
        text: String,
    },
    /// Write a list in place of a file with one plugin. The list comes first: a runtime takes the other until that is
    /// removed, and both work.
    Convert {
        /// The file with one plugin, which goes.
        file: OsString,
        /// What it says.
        base: String,
        /// The list.
        into: OsString,
        /// What the list says, if it is there.
        into_base: Option<String>,
        /// What the list is to say.
        text: String,
    },
    /// Nothing can be done before the folder changes.
    Wait(Obstacle),
}

/// Why nothing can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The file that it is about; `None` for the folder.
    pub file: Option<OsString>,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub fix: String,
}

/// A step, and what is worth saying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What to do.
    pub step: Step,
    /// Files that no runtime would use.
    pub skipped: Vec<Skipped>,
    /// A file that a runtime uses before the one with our plugin, and that does not lead to ours.
    pub preempted_by: Option<OsString>,
}

impl Goal {
    /// What is to be done. `last` is the file that has our plugin since this agent put it there.
    #[must_use]
    pub fn plan(&self, folder: &Folder, last: Option<&OsStr>) -> Plan {
        let (usable, skipped) = folder.usable();
        let (step, preempted_by) = match &self.mode {
            Mode::Chained { file } => {
                let target = primary(folder, &usable, file.as_deref(), None);
                let before = match &target {
                    Ok(target) => passes_us_by(&usable, |first| first.name != target.name),
                    Err(_) => None,
                };
                let step = target.map_or_else(Step::Wait, |target| self.chain(folder, target, last));
                (step, before)
            }
            Mode::Owned { primary: name, file } => {
                let step = match primary(folder, &usable, name.as_deref(), Some(file)) {
                    Ok(primary) => self.own(folder, primary, file),
                    Err(obstacle) => Step::Wait(obstacle),
                };
                (step, passes_us_by(&usable, |first| first.name < *file))
            }
            Mode::Standalone { file } => (self.stand_alone(folder, file), None),
        };
        Plan {
            step,
            skipped,
            preempted_by,
        }
    }

    fn chain(&self, folder: &Folder, file: &File, last: Option<&OsStr>) -> Step {
        let name = file.name.clone();
        let (base, text) = match self.inserted(file) {
            Ok(texts) => texts,
            Err(obstacle) => return Step::Wait(obstacle),
        };
        if has_extension(&name, "conf") {
            return convert(folder, name, base, text);
        }
        let look = if last == Some(&*name) {
            Look::Presence
        } else {
            Look::Whole
        };
        if text == base || is_installed(&base, &self.element, look) {
            return Step::Keep { file: name };
        }
        Step::Write {
            file: name,
            base: Some(base),
            text,
        }
    }

    fn own(&self, folder: &Folder, primary: &File, name: &OsStr) -> Step {
        let text = match self.inserted(primary) {
            Ok((_, text)) => text,
            Err(obstacle) => return Step::Wait(obstacle),
        };
        self.write_own(folder, name, text, |base, text| base == text)
    }

    fn stand_alone(&self, folder: &Folder, name: &OsStr) -> Step {
        let wanted = self.element.alone();
        let is_it = |base: &str, _: &str| {
            serde_json::from_str::<serde_json::Value>(base).is_ok_and(|is| is == wanted)
        };
        let foreign = |text: &str| match parse(text) {
            Ok(Document::Single { plugin, .. }) => !PluginType::is_ours(&plugin),
            Ok(Document::List { .. }) => true,
            // The default name is ours alone; what stands under another and is not understood may be anybody's.
            Err(_) => !text.trim().is_empty() && name != STANDALONE_FILE,
        };
        match folder.get(name).map(|file| &file.text) {
            Some(Ok(text)) if foreign(text) => Step::Wait(Obstacle {
                file: Some(name.to_owned()),
                problem: "it is not a configuration of ours".to_owned(),
                fix: "choose another file with --cni-conf-name (CNI_CONF_NAME), or remove this one"
                    .to_owned(),
            }),
            _ => self.write_own(folder, name, self.element.alone_text(), is_it),
        }
    }

    /// A file that is ours as a whole.
    fn write_own(
        &self,
        folder: &Folder,
        name: &OsStr,
        text: String,
        is_it: impl Fn(&str, &str) -> bool,
    ) -> Step {
        let file = name.to_owned();
        match folder.get(name).map(|file| &file.text) {
            None => Step::Write {
                file,
                base: None,
                text,
            },
            Some(Ok(base)) if is_it(base, &text) => Step::Keep { file },
            Some(Ok(base)) => Step::Write {
                file,
                base: Some(base.clone()),
                text,
            },
            Some(Err(why)) => Step::Wait(unreadable(name, why)),
        }
    }

    /// What a file says, and what it would say with our plugin.
    fn inserted(&self, file: &File) -> Result<(String, String), Obstacle> {
        let text = file.text.clone().map_err(|why| unreadable(&file.name, &why))?;
        let inserted = insert(&text, &self.element).map_err(|error| Obstacle {
            file: Some(file.name.clone()),
            problem: format!("our plugin cannot be put into it: {error}; it was left as it is"),
            fix: "correct the file, or name another with --cni-conf-name (CNI_CONF_NAME)".to_owned(),
        })?;
        Ok((text, inserted))
    }
}

/// The first file that a runtime uses, if it stands before ours and does not lead there.
fn passes_us_by(usable: &[&File], is_before: impl Fn(&File) -> bool) -> Option<OsString> {
    let leads_to_ours = |file: &File| {
        let text = file.text.as_deref().unwrap_or_default();
        has_ours(text) || delegates(text)
    };
    let first = usable.first()?;
    (is_before(first) && !leads_to_ours(first)).then(|| first.name.clone())
}

fn unreadable(name: &OsStr, why: &str) -> Obstacle {
    Obstacle {
        file: Some(name.to_owned()),
        problem: format!("it cannot be read: {why}"),
        fix: "correct or remove the file".to_owned(),
    }
}

/// The file with the main plugin: the named one, under the other extension if need be, or the first usable.
fn primary<'a>(
    folder: &'a Folder,
    usable: &[&'a File],
    name: Option<&OsStr>,
    except: Option<&OsStr>,
) -> Result<&'a File, Obstacle> {
    let Some(name) = name else {
        let first = usable.iter().find(|file| Some(&*file.name) != except);
        return first.copied().ok_or_else(|| Obstacle {
            file: None,
            problem: "no valid CNI configuration is there yet: the plugin waits for the main plugin's".to_owned(),
            fix: "install the main CNI plugin (Calico, Cilium, kindnet, …), or correct the files that the log names"
                .to_owned(),
        });
    };
    let other = if has_extension(name, "conf") {
        Some(Path::new(name).with_extension("conflist"))
    } else if has_extension(name, "conflist") {
        Some(Path::new(name).with_extension("conf"))
    } else {
        None
    };
    let found = folder.get(name).or_else(|| folder.get(other?.as_os_str()));
    found.ok_or_else(|| Obstacle {
        file: Some(name.to_owned()),
        problem: "it is not there yet: the plugin waits for it".to_owned(),
        fix: "install the main CNI plugin, or name its file with --cni-conf-name (CNI_CONF_NAME)".to_owned(),
    })
}

fn convert(folder: &Folder, file: OsString, base: String, text: String) -> Step {
    let into = Path::new(&file).with_extension("conflist").into_os_string();
    let into_base = match folder.get(&into).map(|file| &file.text) {
        None => None,
        Some(Ok(list)) if has_ours(list) => Some(list.clone()),
        Some(_) => {
            return Step::Wait(Obstacle {
                file: Some(file),
                problem: format!(
                    "as a list it would be {}, which exists and is another's",
                    into.display()
                ),
                fix: "remove one of the two files".to_owned(),
            });
        }
    };
    Step::Convert {
        file,
        base,
        into,
        into_base,
        text,
    }
}
