//! Installs, watches what was installed, and repairs it: for ever.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::cni::conf::listing::Skipped;
use agent_core::cni::conf::plan::{Mode, Plan, Step};
use agent_core::cni::conf::throttle::Throttle;
use rustix::fs::inotify::WatchFlags;
use tokio::sync::watch;

use super::binaries::Copied;
use super::failure::{Failure, Part, obstacle, preempted};
use super::files::{FileError, Replaced, replace};
use super::{Config, Stats, folder, kubeconfig};
use crate::blocking::blocking;
use crate::inotify::Inotify;
use crate::report::Problem;

/// Changes within this time are looked at once.
const TOGETHER: Duration = Duration::from_millis(20);
/// First pause after an error that no change of a folder may end, as a full disk; doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What wakes the installer: names, contents and modes.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// The installer.
#[derive(Debug)]
pub struct Installer {
    config: Arc<Config>,
    stats: watch::Sender<Stats>,
    throttle: Throttle,
    start: Instant,
    /// The file that has our plugin since this agent put it there.
    last: Option<OsString>,
    copied: Copied,
    /// What was said of files that are passed over.
    said: Vec<String>,
    pause: Duration,
}

/// What one look found.
enum Look {
    /// The plugin is where it should be.
    Done,
    /// Something was written, or changed while it was looked at: look again.
    Again,
    Waits(Problem),
    Failed(Failure),
}

impl Installer {
    /// One that has done nothing yet, and how it will be.
    #[must_use]
    pub fn new(config: Config) -> (Self, watch::Receiver<Stats>) {
        let (stats, receiver) = watch::channel(Stats::default());
        let installer = Self {
            config: Arc::new(config),
            stats,
            throttle: Throttle::default(),
            start: Instant::now(),
            last: None,
            copied: Copied::default(),
            said: Vec::new(),
            pause: FIRST_PAUSE,
        };
        (installer, receiver)
    }

    /// Works until it is dropped. What fails is told and tried again: pods that are captured do not suffer.
    pub async fn run(mut self) -> Infallible {
        loop {
            // Before the look, so that nothing changes unnoticed in between.
            let watch = watch(&self.config);
            let retry = match self.look().await {
                Look::Again => continue,
                Look::Done => {
                    self.pause = FIRST_PAUSE;
                    let quarrel = self.throttle.quarrel(self.start.elapsed());
                    match quarrel {
                        Some(_) => self.tell_problem(self.quarrel()),
                        None => self.tell_ready(),
                    }
                    quarrel
                }
                Look::Waits(problem) => {
                    self.tell_problem(problem);
                    None
                }
                Look::Failed(failure) => {
                    self.count(failure.part);
                    self.tell_problem(failure.problem());
                    Some(self.next_pause())
                }
            };
            wait(watch, retry).await;
            tokio::time::sleep(TOGETHER).await;
        }
    }

    async fn look(&mut self) -> Look {
        let (config, last) = (self.config.clone(), self.last.clone());
        let mut copied = std::mem::take(&mut self.copied);
        let prepare = move || (prepare(&config, &mut copied, last.as_deref()), copied);
        let (plan, copied) = blocking(prepare).await;
        self.copied = copied;
        let plan = match plan {
            Ok(plan) => plan,
            Err(failure) => return Look::Failed(failure),
        };
        self.tell_skipped(&plan);
        match plan.step {
            Step::Keep { file } => {
                self.last = Some(file);
                let before = plan.preempted_by;
                before.map_or(Look::Done, |file| Look::Waits(preempted(&self.config, &file)))
            }
            Step::Wait(why) => Look::Waits(obstacle(&self.config.conf_dir, &why)),
            step => self.carry_out(step).await,
        }
    }

    async fn carry_out(&mut self, step: Step) -> Look {
        let delay = self.throttle.ask(self.start.elapsed());
        if !delay.is_zero() {
            // Until then pods start without the plugin.
            self.tell_problem(self.quarrel());
            tokio::time::sleep(delay).await;
            return Look::Again;
        }
        let config = self.config.clone();
        match blocking(move || apply(&config, &step)).await {
            Ok(Some(file)) => {
                tracing::info!(file = %self.config.conf_dir.join(&file).display(), "the CNI plugin is in the configuration");
                self.last = Some(file);
                Look::Again
            }
            Ok(None) => Look::Again,
            Err(failure) => Look::Failed(failure),
        }
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = LONGEST_PAUSE.min(pause * 2);
        pause
    }

    fn tell_ready(&self) {
        self.stats.send_if_modified(|stats| {
            let is_news = !stats.ready;
            if is_news {
                *stats = Stats {
                    ready: true,
                    success: stats.success + 1,
                    problem: None,
                    ..stats.clone()
                };
            }
            is_news
        });
    }

    fn tell_problem(&self, problem: Problem) {
        self.stats.send_if_modified(|stats| {
            let is_news = stats.problem.as_ref() != Some(&problem);
            if is_news {
                tracing::warn!("{}: {}; {}", problem.object, problem.problem, problem.fix);
            }
            let changed = is_news || stats.ready;
            (stats.ready, stats.problem) = (false, Some(problem));
            changed
        });
    }

    fn count(&self, part: Part) {
        self.stats.send_modify(|stats| match part {
            Part::Binaries => stats.copy_binaries += 1,
            Part::Kubeconfig => stats.create_kubeconfig += 1,
            Part::Configuration => stats.create_cni_config += 1,
        });
    }

    /// Says once what is passed over.
    fn tell_skipped(&mut self, plan: &Plan) {
        let said = |skipped: &Skipped| {
            format!(
                "{} is passed over, as container runtimes do: {}",
                skipped.name.display(),
                skipped.why
            )
        };
        let notes: Vec<String> = plan.skipped.iter().map(said).collect();
        for note in notes.iter().filter(|note| !self.said.contains(note)) {
            tracing::warn!("CNI configuration: {note}");
        }
        self.said = notes;
    }

    /// Another program writes the configuration, again and again.
    fn quarrel(&self) -> Problem {
        let file = self.last.as_deref().unwrap_or_default();
        let fix = if file.to_string_lossy().contains("cilium") {
            "set cni.exclusive=false in Cilium"
        } else {
            "find it by the file's time and stop it, or set --istio-owned-cni-config (ISTIO_OWNED_CNI_CONFIG)"
        };
        Problem {
            object: self.config.conf_dir.join(file).display().to_string(),
            problem: "another program repeatedly takes the CNI plugin out of it, and pods that start meanwhile are not \
                      captured"
                .to_owned(),
            fix: format!("{fix}; the plugin is put back once a second"),
        }
    }
}

/// Copies what is needed beside the configuration, and plans that.
fn prepare(config: &Config, copied: &mut Copied, last: Option<&OsStr>) -> Result<Plan, Failure> {
    copied
        .bring(&config.bin_source, &config.bin_target)
        .map_err(Failure::of(Part::Binaries))?;
    kubeconfig::write(config).map_err(Failure::of(Part::Kubeconfig))?;
    let folder = folder::read(&config.conf_dir, &named(config)).map_err(Failure::of(Part::Configuration))?;
    Ok(config.goal.plan(&folder, last))
}

/// Files that the settings name.
pub(super) fn named(config: &Config) -> Vec<&OsStr> {
    match &config.goal.mode {
        Mode::Chained { file } => file.iter().map(|file| &**file).collect(),
        Mode::Owned { primary, file } => primary.iter().chain([file]).map(|file| &**file).collect(),
        Mode::Standalone { file } => vec![file],
    }
}

/// Writes what was planned; returns the name of the file with our plugin, or nothing when the folder has changed since.
fn apply(config: &Config, step: &Step) -> Result<Option<OsString>, Failure> {
    let failed = Failure::of(Part::Configuration);
    match step {
        Step::Write { file, base, text } => {
            let is_ours = !matches!(&config.goal.mode, Mode::Chained { .. });
            let replaced = put(config, file, base.as_deref(), text, is_ours).map_err(failed)?;
            Ok((replaced == Replaced::Yes).then(|| file.clone()))
        }
        Step::Convert {
            file,
            base,
            into,
            into_base,
            text,
        } => {
            let mode = mode_of(&config.conf_dir.join(file)).unwrap_or(config.conf_mode);
            let path = config.conf_dir.join(into);
            if replace(&path, into_base.as_deref(), text, mode).map_err(&failed)? == Replaced::Changed {
                return Ok(None);
            }
            let single = config.conf_dir.join(file);
            if folder::text(&single).as_ref() == Ok(base) {
                fs::remove_file(&single)
                    .map_err(FileError::of("removing", &single))
                    .map_err(failed)?;
            }
            Ok(Some(into.clone()))
        }
        Step::Keep { .. } | Step::Wait(_) => Ok(None),
    }
}

/// Through a symbolic link the file that it leads to is replaced, not the link.
fn put(
    config: &Config,
    name: &OsStr,
    base: Option<&str>,
    text: &str,
    is_ours: bool,
) -> Result<Replaced, FileError> {
    let path = config.conf_dir.join(name);
    let path = fs::canonicalize(&path).unwrap_or(path);
    let mode = mode_of(&path).filter(|_| !is_ours).unwrap_or(config.conf_mode);
    replace(&path, base, text, mode)
}

pub(super) fn mode_of(path: &Path) -> Option<u32> {
    Some(fs::metadata(path).ok()?.permissions().mode() & 0o7777)
}

/// Watches all that the installation depends on. Where a folder is missing, the next one above tells of its making.
fn watch(config: &Config) -> io::Result<Inotify> {
    let inotify = Inotify::new()?;
    let mut folders = vec![config.conf_dir.clone(), config.bin_target.clone()];
    folders.extend(linked_folders(&config.conf_dir));
    if let Some(credentials) = &config.kubeconfig {
        folders.extend(credentials.token_file.parent().map(Path::to_owned));
    }
    for folder in folders {
        let exists = |path: &&Path| inotify.watch(path, CHANGES).is_ok();
        let _ = folder.ancestors().find(exists);
    }
    Ok(inotify)
}

/// Where symbolic links in the folder lead to.
fn linked_folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    links
        .filter_map(|link| Some(fs::canonicalize(link.path()).ok()?.parent()?.to_owned()))
        .collect()
}

/// Waits for a change, or for the time of the next try. Without inotify there is only time.
async fn wait(watch: io::Result<Inotify>, retry: Option<Duration>) {
    let (changed, retry) = match watch {
        Ok(inotify) => (Some(inotify), retry),
        Err(error) => {
            tracing::warn!("changes of the CNI configuration are noticed late: {error}");
            (None, Some(retry.unwrap_or(LONGEST_PAUSE)))
        }
    };
    let change = async {
        match &changed {
            Some(inotify) => inotify.changes(|_| ()).await,
            None => std::future::pending().await,
        }
    };
    let time = async {
        match retry {
            Some(pause) => tokio::time::sleep(pause).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = change => {}
        () = time => {}
    }
}
