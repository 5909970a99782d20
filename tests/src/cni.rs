//! The CNI plugin, called as a container runtime calls it: the command in the environment, the configuration on standard
//! input, and the result of the plugins before within that.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::node::Node;
use crate::pod::Pod;
use crate::programs;

/// What a call left behind.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whether it ended with 0.
    pub success: bool,
    /// What it printed on standard output; null if nothing.
    pub printed: Value,
    /// What it wrote on standard error.
    pub complained: String,
    /// From its start to its end.
    pub took: Duration,
}

impl Answer {
    fn of(output: &Output, took: Duration) -> Result<Self> {
        let text = String::from_utf8_lossy(&output.stdout);
        let printed = match text.trim() {
            "" => Value::Null,
            json => serde_json::from_str(json).with_context(|| format!("the plugin printed {text:?}"))?,
        };
        Ok(Self {
            success: output.status.success(),
            printed,
            complained: String::from_utf8_lossy(&output.stderr).into_owned(),
            took,
        })
    }

    /// `msg` and `details` of an error, in one text.
    #[must_use]
    pub fn error(&self) -> String {
        let text = |key: &str| self.printed[key].as_str().unwrap_or_default();
        format!("{}: {}", text("msg"), text("details"))
    }
}

/// The plugin of a node.
#[derive(Clone, Debug)]
pub struct Plugin {
    program: PathBuf,
    config: Value,
}

/// A call that goes on.
#[derive(Debug)]
pub struct Call {
    child: std::process::Child,
    start: Instant,
}

impl Call {
    /// Waits for its end.
    ///
    /// # Errors
    /// When it prints what is no JSON.
    pub fn wait(self) -> Result<Answer> {
        let output = self.child.wait_with_output()?;
        Answer::of(&output, self.start.elapsed())
    }
}

impl Plugin {
    /// The plugin, configured for the agent of a node, behind a main plugin that spoke CNI 1.0.0.
    ///
    /// # Errors
    /// When it was not built.
    pub fn new(node: &Node) -> Result<Self> {
        let run_dir = node.plugin_socket();
        let run_dir = run_dir.parent().context("a socket without a folder")?;
        Ok(Self {
            program: programs::find("meshgate-cni")?,
            config: json!({
                "cniVersion": "1.0.0",
                "name": "k8s-pod-network",
                "type": "istio-cni",
                "cni_agent_run_dir": run_dir,
                "exclude_namespaces": ["kube-system"],
                "pod_namespace": "istio-system",
                "ambient_enabled": true,
            }),
        })
    }

    /// Under another name, by a link in this folder, which is made.
    ///
    /// # Errors
    /// When one of them cannot be made.
    pub fn called(mut self, folder: &Path, name: &str) -> Result<Self> {
        let link = folder.join(name);
        std::fs::create_dir_all(folder)?;
        symlink(&self.program, &link).with_context(|| format!("making the link {}", link.display()))?;
        self.program = link;
        Ok(self)
    }

    /// Where it looks for its agent.
    ///
    /// # Panics
    /// When the configuration has no `cni_agent_run_dir` any more.
    #[must_use]
    pub fn run_dir(&self) -> PathBuf {
        let folder = self.config["cni_agent_run_dir"].as_str();
        folder.expect("every plugin of a test has one").into()
    }

    /// With another value of a key.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.config[key] = value.into();
        self
    }

    /// What the main plugin said of a pod.
    #[must_use]
    pub fn previous(pod: &Pod) -> Value {
        let ips: Vec<_> = pod
            .ips()
            .iter()
            .map(|ip| json!({"interface": 0, "address": format!("{ip}/{}", if ip.is_ipv4() { 24 } else { 64 })}))
            .collect();
        json!({
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "eth0", "sandbox": pod.netns().path()}],
            "ips": ips,
            "dns": {},
        })
    }

    /// Starts `ADD` for a pod.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_add(&self, pod: &Pod) -> Result<Call> {
        let mut config = self.config.clone();
        config["prevResult"] = Self::previous(pod);
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_UID={}",
            pod.namespace(),
            pod.name(),
            pod.uid()
        );
        let mut command = self.command("ADD");
        command.env("CNI_NETNS", pod.netns().path()).env("CNI_ARGS", args);
        feed(&mut command, config.to_string().as_bytes())
    }

    /// `ADD` for a pod, to its end.
    ///
    /// # Errors
    /// As [`Plugin::start_add`], or when it prints what is no JSON.
    pub fn add(&self, pod: &Pod) -> Result<Answer> {
        self.start_add(pod)?.wait()
    }

    /// Another command, for no pod.
    ///
    /// # Errors
    /// As [`Plugin::add`].
    pub fn call(&self, command: &str) -> Result<Answer> {
        self.call_with(command, self.config.to_string().as_bytes())
    }

    /// A command with any text on standard input.
    ///
    /// # Errors
    /// As [`Plugin::add`].
    pub fn call_with(&self, command: &str, input: &[u8]) -> Result<Answer> {
        feed(&mut self.command(command), input)?.wait()
    }

    fn command(&self, command: &str) -> Command {
        let mut process = Command::new(&self.program);
        process
            .env_clear()
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", "0123abcd")
            .env("CNI_NETNS", "/run/netns/none")
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", "/opt/cni/bin");
        process
    }
}

/// Starts a program as a runtime starts a plugin, with this on standard input.
///
/// # Errors
/// When it cannot be started.
pub fn feed(command: &mut Command, input: &[u8]) -> Result<Call> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let mut stdin = child.stdin.take().context("its stdin is a pipe")?;
    // A plugin that fails before it reads closes its end.
    let _ = stdin.write_all(input);
    drop(stdin);
    Ok(Call { child, start })
}
