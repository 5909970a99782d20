//! The real kubectl as `admin`, and the pods that a real kubelet runs.

use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Cluster, User};
use crate::process::Process;

/// How long `kubectl wait` waits: a kubelet tries again after ten seconds.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A pod that a kubelet runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Kubernetes UID.
    pub uid: String,
    /// `status.podIPs`, in the order that kubelet tells them.
    pub ips: Vec<IpAddr>,
}

impl Cluster {
    /// Runs kubectl and returns what it prints.
    ///
    /// # Errors
    /// When it fails, with what it complains of.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl_with(arguments, None)
    }

    /// `kubectl apply` of these objects.
    ///
    /// # Errors
    /// As [`Cluster::kubectl`].
    pub fn kubectl_apply(&self, objects: &[Value]) -> Result<()> {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string();
        self.kubectl_with(&["apply", "--filename", "-"], Some(&list))
            .map(drop)
    }

    /// Waits until a condition of an object is true: `kubectl_wait("shop", "Ready", "pod/web")`.
    ///
    /// # Errors
    /// When it is not within [`LIMIT`], with the events of the namespace.
    pub fn kubectl_wait(&self, namespace: &str, condition: &str, object: &str) -> Result<()> {
        let condition = format!("--for=condition={condition}");
        let limit = format!("--timeout={}s", LIMIT.as_secs());
        let waited = self.kubectl(&["wait", "--namespace", namespace, &condition, &limit, object]);
        waited.map(drop).or_else(|error| {
            let events = self.kubectl(&["events", "--namespace", namespace])?;
            Err(error.context(format!("events in {namespace}:\n{events}")))
        })
    }

    /// Runs the load tool in a container of a pod, which must have been made from its image, and returns the JSON that it
    /// prints.
    ///
    /// # Errors
    /// When it fails or prints something else.
    pub fn kubectl_load(&self, pod: &Running, arguments: &[&str]) -> Result<Value> {
        let inside = [
            "exec",
            "--namespace",
            &pod.namespace,
            &pod.name,
            "--",
            "/meshgate-load",
        ];
        let printed = self.kubectl(&[&inside, arguments].concat())?;
        serde_json::from_str(&printed).with_context(|| format!("{arguments:?} printed {printed:?}"))
    }

    /// A pod as it is now.
    ///
    /// # Errors
    /// When there is none, or it has no address yet.
    pub fn running(&self, namespace: &str, name: &str) -> Result<Running> {
        let reference = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "namespace": namespace, "name": name },
        });
        let pod = self
            .get(&reference)?
            .with_context(|| format!("no pod {namespace}/{name}"))?;
        let running = running(&pod);
        running.with_context(|| format!("{namespace}/{name} has no address: {}", pod["status"]))
    }

    /// Starts kubectl with `--watch`, say, to read its lines as they come.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn kubectl_talking(&self, arguments: &[&str]) -> Result<Process> {
        let mut command = self.kubectl_command(arguments)?;
        Process::start_talking("kubectl", &mut command)
    }

    fn kubectl_with(&self, arguments: &[&str], input: Option<&str>) -> Result<String> {
        let mut command = self.kubectl_command(arguments)?;
        command
            .stdin(if input.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("starting kubectl")?;
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
            std::io::Write::write_all(&mut stdin, input.as_bytes()).context("feeding kubectl")?;
        }
        let output = child.wait_with_output()?;
        if !output.status.success() {
            let (out, err) = (
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr),
            );
            bail!("kubectl {arguments:?} ended with {}: {err}{out}", output.status);
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    fn kubectl_command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = self.command("kubectl")?;
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig(User::Admin))
            .args(arguments)
            // It keeps what the API server offers in a cache there.
            .env("HOME", &self.folder);
        Ok(command)
    }
}

/// What a Pod object says of a pod; `None` before it has an address.
fn running(pod: &Value) -> Option<Running> {
    let text = |path: &str| pod.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let ips = pod["status"]["podIPs"].as_array()?;
    let ips = ips.iter().map(|ip| ip["ip"].as_str()?.parse().ok());
    Some(Running {
        namespace: text("/metadata/namespace")?,
        name: text("/metadata/name")?,
        uid: text("/metadata/uid")?,
        ips: ips.collect::<Option<_>>()?,
    })
}
