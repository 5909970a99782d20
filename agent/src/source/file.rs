//! Facts from manifests: one file, or all `*.yaml`, `*.yml` and `*.json` of a folder, followed as they change.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use agent_core::facts::{Fact, NamespaceFacts, PodFacts, SourceState};
use agent_core::ids::ClusterId;
use rustix::fs::OFlags;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::manifest::LARGEST;
use super::reading::{Reading, Whole, together};
use super::told::{Told, Troubles};
use super::watched_path::{PathWatch, Survey};

/// Why a file source cannot start or go on.
#[derive(Debug, Error)]
pub enum FileError {
    /// The path cannot be read at start.
    #[error("source file:{path}: {cause}; name a manifest or a folder of manifests (it may be empty)")]
    Path {
        /// The path as it was given.
        path: String,
        /// What is wrong with it.
        cause: io::Error,
    },
    /// No inotify.
    #[error(
        "inotify for source file:{path}: {cause}; raise sysctl fs.inotify.max_user_instances if there are too many"
    )]
    Watch {
        /// The path as it was given.
        path: String,
        /// What the kernel says.
        cause: io::Error,
    },
}

/// The source `file:PATH`.
pub struct FileSource {
    path: PathBuf,
    cluster: ClusterId,
    watch: PathWatch,
}

/// A file and what it says.
#[derive(Debug)]
struct Known {
    /// Hash of the text; `None` when it could not be read.
    text: Option<u64>,
    reading: Reading,
}

/// All files by path.
type Files = BTreeMap<PathBuf, Known>;

/// What came of a look at the path.
struct Look {
    survey: Survey,
    files: Files,
    state: SourceState,
}

impl FileSource {
    /// A source for the objects in a file or folder, which belong to `cluster`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the path does not exist or there is no inotify.
    pub fn open(path: &Path, cluster: ClusterId) -> Result<Self, FileError> {
        let name = || path.display().to_string();
        fs::metadata(path).map_err(|cause| FileError::Path { path: name(), cause })?;
        let watch = PathWatch::new().map_err(|cause| FileError::Watch { path: name(), cause })?;
        Ok(Self {
            path: path.to_owned(),
            cluster,
            watch,
        })
    }

    /// Tells facts until nobody listens. A path that goes away later keeps what it said.
    ///
    /// # Errors
    /// When inotify cannot be read any more.
    pub async fn run(mut self, facts: mpsc::Sender<Fact>) -> Result<(), FileError> {
        let mut files = Files::new();
        let mut teller = Teller::default();
        loop {
            let survey = self.watch.survey();
            let (path, cluster) = (self.path.clone(), self.cluster.clone());
            // Parsing many megabytes takes seconds, which other tasks should not wait for.
            let look = match spawn_blocking(move || look(&cluster, &path, files, survey)).await {
                Ok(look) => look,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => return Ok(()),
            };
            self.watch.settle(look.survey);
            files = look.files;
            let readings = files
                .iter()
                .map(|(path, known)| (path.clone(), known.reading.clone()))
                .collect();
            for fact in teller.facts(together(&self.cluster, &readings), look.state) {
                if facts.send(fact).await.is_err() {
                    return Ok(());
                }
            }
            tokio::select! {
                changed = self.watch.changed() => changed.map_err(|cause| {
                    FileError::Watch { path: self.path.display().to_string(), cause }
                })?,
                () = facts.closed() => return Ok(()),
            }
        }
    }
}

/// Reads all files again; those whose text is the same are not parsed again.
fn look(cluster: &ClusterId, path: &Path, files: Files, mut survey: Survey) -> Look {
    match manifests(path, &mut survey) {
        Ok(found) => {
            let mut files = files;
            let read = found.into_iter().filter_map(|file| {
                let known = files.remove(&file);
                read_again(cluster, &file, known).map(|known| (file, known))
            });
            Look {
                files: read.collect(),
                survey,
                state: SourceState::Current,
            }
        }
        Err(cause) => {
            let problem = format!(
                "{}: {cause}; put it back or start the agent with another source; what it said last stays",
                path.display()
            );
            Look {
                files,
                survey,
                state: SourceState::Stale { problem },
            }
        }
    }
}

/// The file itself, or the manifests of a folder, as paths below `path`.
fn manifests(path: &Path, survey: &mut Survey) -> io::Result<Vec<PathBuf>> {
    let place = survey.locate(path)?;
    if !fs::metadata(&place)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let names = survey.names(&place)?;
    let files: Vec<PathBuf> = names
        .iter()
        .filter(|name| is_manifest(Path::new(name)))
        .map(|name| path.join(name))
        .collect();
    for file in &files {
        // Watches where links point to; a link to nowhere is told of when the file is read.
        let _ = survey.locate(file);
    }
    Ok(files)
}

/// Editors keep locks and copies beside a file, under names that begin with a dot.
fn is_manifest(name: &Path) -> bool {
    let hidden = name.as_os_str().as_encoded_bytes().starts_with(b".");
    let extension = name.extension().and_then(|extension| extension.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}

/// What a file says now; `None` when it is gone.
fn read_again(cluster: &ClusterId, file: &Path, known: Option<Known>) -> Option<Known> {
    let last = known.as_ref().map(|known| &known.reading);
    let text = match text_of(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            return Some(Known {
                text: None,
                reading: Reading::broken(file, error.to_string(), last),
            });
        }
    };
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let hash = Some(hasher.finish());
    match known {
        Some(known) if known.text == hash => Some(known),
        _ => Some(Known {
            text: hash,
            reading: Reading::of(cluster, file, &text, last),
        }),
    }
}

fn text_of(file: &Path) -> io::Result<Vec<u8>> {
    // Without NONBLOCK a named pipe would wait for its writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(file)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = Vec::with_capacity(usize::try_from(metadata.len().min(LARGEST)).unwrap_or(0));
    file.take(LARGEST + 1).read_to_end(&mut text)?;
    if u64::try_from(text.len()).is_ok_and(|length| length > LARGEST) {
        return Err(io::Error::other(format!(
            "it is larger than {} MiB; split it",
            LARGEST >> 20
        )));
    }
    Ok(text)
}

/// Tells what all files say: once in full, then changes.
#[derive(Default)]
struct Teller {
    pods: Told<PodFacts>,
    namespaces: Told<NamespaceFacts>,
    troubles: Troubles,
    listed: bool,
    state: Option<SourceState>,
}

impl Teller {
    fn facts(&mut self, whole: Whole, state: SourceState) -> Vec<Fact> {
        let mut facts = Vec::new();
        if self.listed {
            let (pods_gone, pods) = self.pods.change_to(whole.pods);
            let (namespaces_gone, namespaces) = self.namespaces.change_to(whole.namespaces);
            facts.extend(
                [pods_gone, namespaces, pods, namespaces_gone]
                    .into_iter()
                    .flatten(),
            );
        } else if state == SourceState::Current {
            facts.extend(self.namespaces.list(whole.namespaces));
            facts.extend(self.pods.list(whole.pods));
            self.listed = true;
        }
        facts.extend(self.troubles.only(whole.bad));
        if self.state.as_ref() != Some(&state) {
            facts.push(Fact::SourceState(state.clone()));
            self.state = Some(state);
        }
        facts
    }
}
