//! The agent as a black box: the binary `meshgate`, started on a node, awaited by what it writes, killed at will.

use std::fs::{self, OpenOptions};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::Value;

use crate::node::Node;
use crate::process::{Process, Said, said};
use crate::{programs, wait};

/// What the agent says of itself in `status.json`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Status {
    /// Pods that it knows on this node.
    #[serde(default)]
    pub pods: Vec<PodStatus>,
    /// Proxies that are connected.
    #[serde(default)]
    pub proxies: Vec<Value>,
    /// What it has put right.
    #[serde(default)]
    pub repairs: Value,
    /// What the node needs to be ready for pods.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// What is wrong, in its own words.
    #[serde(default)]
    pub problems: Vec<Value>,
    /// What the CNI plugin was answered.
    #[serde(default)]
    pub cni: Value,
}

/// Something that the node needs, in `status.json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Condition {
    /// Which part needs it.
    pub name: String,
    /// It is there.
    pub ready: bool,
    /// What is missing.
    pub missing: String,
}

impl Status {
    /// What this part misses; `None` while it is ready, or has told nothing.
    #[must_use]
    pub fn missing(&self, part: &str) -> Option<&str> {
        let condition = self.conditions.iter().find(|condition| condition.name == part)?;
        (!condition.ready).then_some(&condition.missing)
    }
}

/// One pod in `status.json`.
#[derive(Clone, Debug, Deserialize)]
pub struct PodStatus {
    /// Kubernetes UID.
    pub uid: String,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `enabled`, `pending`, …
    pub state: String,
    /// Why it is in that state.
    #[serde(default)]
    pub reason: Value,
}

/// An agent of a node.
#[derive(Debug)]
pub struct Agent {
    /// Flags that every verb takes.
    paths: Vec<String>,
    /// Flags of `run` only.
    flags: Vec<String>,
    /// The binary.
    program: PathBuf,
    command: Recipe,
    run_dir: PathBuf,
    log: PathBuf,
    /// Where the log of the last start begins.
    log_start: usize,
    process: Option<Process>,
}

/// Makes the command anew for each start.
struct Recipe(Box<Make>);

/// Makes a command of a program.
type Make = dyn Fn(&Path) -> Result<Command> + Send;

impl std::fmt::Debug for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recipe")
    }
}

impl Agent {
    /// Starts the agent of this node with the file source and waits until it is ready.
    ///
    /// # Errors
    /// When it ends or does not become ready; its log is in the error.
    pub fn start(node: &Node) -> Result<Self> {
        Self::start_with(node, &format!("file:{}", node.manifests().display()), &[])
    }

    /// Starts it with another `--source`, and more flags, which replace the usual ones.
    ///
    /// # Errors
    /// As [`Agent::start`].
    pub fn start_with(node: &Node, source: &str, more: &[&str]) -> Result<Self> {
        let mut agent = Self::stopped(node, source, more)?;
        agent.launch()?;
        Ok(agent)
    }

    /// An agent which does not run yet: for the verbs that work without one, and for [`Agent::restart`].
    ///
    /// # Errors
    /// When the binary was not built or the run folder cannot be made.
    pub fn stopped(node: &Node, source: &str, more: &[&str]) -> Result<Self> {
        let (program, run_dir) = (programs::find("meshgate")?, node.run_dir().join("agent"));
        fs::create_dir_all(&run_dir)?;
        let text = |path: &Path| path.display().to_string();
        let paths = words(&[
            ("--cgroup-root", text(node.cgroup())),
            ("--bpffs", text(node.bpffs())),
            ("--run-dir", text(&run_dir)),
            ("--host-netns", text(&node.netns().path())),
        ]);
        let mut usual = vec![
            ("--source", source.to_owned()),
            ("--node", node.name().to_owned()),
            ("--cluster", "test".to_owned()),
            ("--zds-socket", text(&node.zds_socket())),
            ("--plugin-socket", text(&node.plugin_socket())),
        ];
        usual.retain(|(flag, _)| !more.contains(flag));
        let mut flags = words(&usual);
        flags.extend(more.iter().map(ToString::to_string));
        let (netns, group) = (node.netns().path(), node.cgroup().join("node/agent"));
        let command = Recipe(Box::new(move |program| {
            let mut command = Command::new(program);
            let cgroup = crate::cgroup::entrance(&crate::cgroup::create(group.clone())?)?;
            crate::sys::enter_on_exec(&mut command, fs::File::open(&netns)?.into(), Some(cgroup));
            Ok(command)
        }));
        Ok(Self {
            paths,
            flags,
            program,
            command,
            log: run_dir.join("agent.log"),
            log_start: 0,
            run_dir,
            process: None,
        })
    }

    /// From the next start on it is this binary, for the other verbs at once.
    pub fn replace_program(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
    }

    fn launch(&mut self) -> Result<()> {
        self.spawn()?;
        self.wait_until_ready()
    }

    /// Starts it and does not wait: for tests that kill it at any moment.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&mut self) -> Result<()> {
        // A killed agent leaves its files behind, and what they say is not what the new one says.
        for file in ["ready", "status.json"] {
            let _ = fs::remove_file(self.run_dir.join(file));
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        self.log_start = log.metadata()?.len() as usize;
        let mut command = self.command()?;
        command
            .args(self.arguments(&["run"]))
            .args(&self.flags)
            .stdout(log.try_clone()?)
            .stderr(log);
        self.process = Some(Process::start("meshgate run", &mut command)?);
        Ok(())
    }

    /// Waits until it is ready: all pods of the node are known, and proxies are served.
    ///
    /// # Errors
    /// When it ends or does not become ready; its log is in the error.
    pub fn wait_until_ready(&mut self) -> Result<()> {
        let ready = self.run_dir.join("ready");
        self.until(&ready, "the agent to be ready", || {
            Ok(ready.exists().then_some(()))
        })
    }

    /// The arguments of a verb on this node.
    #[must_use]
    pub fn arguments(&self, verb: &[&str]) -> Vec<String> {
        let verb = verb.iter().map(ToString::to_string);
        verb.chain(self.paths.iter().cloned()).collect()
    }

    /// The flags of `run` beside those of every verb.
    #[must_use]
    pub fn run_flags(&self) -> &[String] {
        &self.flags
    }

    /// Folder of its lock and of what it says of itself.
    #[must_use]
    pub fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// A command that runs the binary on this node, where the agent would be.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn command(&self) -> Result<Command> {
        (self.command.0)(&self.program)
    }

    /// Waits for a file of the agent to satisfy `check`; an agent that ends is an error.
    fn until<T>(
        &mut self,
        file: &Path,
        what: &str,
        mut check: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let log = self.log.clone();
        let process = self.process.as_mut().context("the agent does not run")?;
        let pidfd = process.pidfd().try_clone()?;
        let result = wait::for_file(file, Some(pidfd.as_fd()), what, || match process.ended()? {
            Some(status) => bail!("the agent ended with {status}"),
            None => check(),
        });
        result.with_context(|| {
            format!(
                "log of the agent:\n{}",
                fs::read_to_string(&log).unwrap_or_default()
            )
        })
    }

    /// What it says of itself now; nothing before it wrote anything.
    ///
    /// # Errors
    /// When `status.json` is not what was agreed.
    pub fn status(&self) -> Result<Status> {
        let Ok(text) = fs::read_to_string(self.run_dir.join("status.json")) else {
            return Ok(Status::default());
        };
        serde_json::from_str(&text).with_context(|| format!("status.json: {text}"))
    }

    /// Waits until the status satisfies `check`, and returns what that returned.
    ///
    /// # Errors
    /// When it does not in time, or the agent ends.
    pub fn wait_for<T>(&mut self, what: &str, check: impl Fn(&Status) -> Option<T>) -> Result<T> {
        let file = self.run_dir.join("status.json");
        let read = file.clone();
        self.until(&file, what, move || match fs::read_to_string(&read) {
            Ok(text) => Ok(check(
                &serde_json::from_str(&text).with_context(|| format!("status.json: {text}"))?,
            )),
            Err(_) => Ok(None),
        })
    }

    /// Waits until a pod is in a state.
    ///
    /// # Errors
    /// As [`Agent::wait_for`].
    pub fn wait_for_pod_state(&mut self, uid: &str, state: &str) -> Result<PodStatus> {
        self.wait_for(&format!("pod {uid} to be {state}"), |status| {
            status
                .pods
                .iter()
                .find(|pod| pod.uid == uid && pod.state == state)
                .cloned()
        })
    }

    /// Waits until a line of its log, since it was last started, has this text.
    ///
    /// # Errors
    /// As [`Agent::wait_for`].
    pub fn wait_for_log(&mut self, text: &str) -> Result<()> {
        let (log, from) = (self.log.clone(), self.log_start);
        let read = log.clone();
        self.until(&log, &format!("{text:?} in the log"), move || {
            let log = fs::read(&read)?;
            let said = String::from_utf8_lossy(log.get(from..).unwrap_or_default()).into_owned();
            Ok(said.contains(text).then_some(()))
        })
    }

    /// Runs another verb with the same flags.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn cli(&self, verb: &[&str]) -> Result<Output> {
        let mut command = self.command()?;
        command.args(self.arguments(verb));
        command
            .output()
            .with_context(|| format!("running meshgate {verb:?}"))
    }

    /// Runs another verb with the same flags: its exit code, what it printed, what it complained of.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn said(&self, verb: &[&str]) -> Result<Said> {
        Ok(said(&self.cli(verb)?))
    }

    /// Runs another verb with the same flags and `-o json`.
    ///
    /// # Errors
    /// When it fails or prints no JSON.
    pub fn cli_json(&self, verb: &[&str]) -> Result<Value> {
        let mut command = self.command()?;
        crate::pod::json_output(command.args(self.arguments(verb)).args(["-o", "json"]))
    }

    /// Process id, while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Kills it with SIGKILL.
    pub fn kill9(&mut self) {
        self.process = None;
    }

    /// Stops it with SIGTERM and waits for its end.
    ///
    /// # Errors
    /// When it does not run or does not end in time.
    pub fn stop(&mut self) -> Result<std::process::ExitStatus> {
        let mut process = self.process.take().context("the agent does not run")?;
        process.signal(Signal::TERM)?;
        process.wait()
    }

    /// Kills it with SIGKILL, if it runs, and starts it again.
    ///
    /// # Errors
    /// As [`Agent::start`].
    pub fn restart(&mut self) -> Result<()> {
        self.kill9();
        self.launch()
    }

    /// Everything that it logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

fn words(pairs: &[(&str, String)]) -> Vec<String> {
    let both = |(flag, value): &(&str, String)| [(*flag).to_owned(), value.clone()];
    pairs.iter().flat_map(both).collect()
}

impl Drop for Agent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the agent:\n{}", self.log());
        }
    }
}
