//! A pod: a network namespace with `eth0`, a cgroup below `kubepods`, and a pause process which lives in both; or its
//! sandbox alone, before the first process.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::netns::Netns;
use crate::node::Node;
use crate::process::Process;
use crate::spec::{Families, Identity, PodSpec, pod_manifest, scheduled_manifest};
use crate::{cgroup, programs, sys};

/// A pod that runs. Dropping it kills its processes and removes its namespace, but not its manifest: that is
/// [`Node::delete`], and a node may well learn of it late.
#[derive(Debug)]
pub struct Pod {
    spec: PodSpec,
    identity: Identity,
    /// Host part of its addresses.
    host: u32,
    netns: Netns,
    /// `kubepods/pod<uid>`.
    slice: PathBuf,
    /// `kubepods/pod<uid>/<container id>`.
    container: PathBuf,
    /// None while it is a sandbox only.
    pause: Option<Process>,
}

impl Pod {
    /// Makes the sandbox of a pod of a node, and gives it its addresses.
    pub(crate) fn sandbox(node: &Node, spec: PodSpec, mut identity: Identity) -> Result<Self> {
        let (uid, number) = (&identity.uid, identity.number);
        let netns = Netns::create(&format!("{}.{}", node.name(), spec.name))?;
        let slice = cgroup::create(node.cgroup().join(format!("kubepods/pod{uid}")))?;
        let container = cgroup::create(slice.join(format!("{number:064x}")))?;
        let host = spec.host.unwrap_or(number + 1);
        let v4 = (spec.families != Families::V6).then(|| format!("10.{}.0.{host}", node.subnet()));
        let v6 = (spec.families != Families::V4).then(|| format!("fd00:{}::{host:x}", node.subnet()));
        let interface = format!("veth{number}");
        node.netns().ip(&format!(
            "link add {interface} type veth peer name eth0 netns {}\n\
             link set {interface} addrgenmode none master br0 up\n",
            netns.name()
        ))?;
        netns.ip(&eth0(node.subnet(), v4.as_deref(), v6.as_deref()))?;
        identity.ips = [v4, v6]
            .iter()
            .flatten()
            .map(|ip| ip.parse())
            .collect::<Result<Vec<IpAddr>, _>>()?;
        Ok(Self {
            spec,
            identity,
            host,
            netns,
            slice,
            container,
            pause: None,
        })
    }

    /// Starts its first process, as a runtime does when all CNI plugins have agreed. From then on Kubernetes knows its
    /// addresses: the next [`Node::apply`] writes them.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start(&mut self) -> Result<()> {
        let mut pause = self.command(&programs::find("meshgate-load")?)?;
        self.pause = Some(Process::start("pause", pause.arg("pause"))?);
        Ok(())
    }

    /// Kubernetes UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.identity.uid
    }

    /// Name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Kubernetes namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.spec.namespace
    }

    /// Host part of its addresses, for [`PodSpec::host`] of a pod that gets them next.
    #[must_use]
    pub fn host(&self) -> u32 {
        self.host
    }

    /// What it was made from and has become, with its UID: to make its sandbox anew, with other addresses.
    #[must_use]
    pub fn spec(&self) -> PodSpec {
        PodSpec {
            uid: Some(self.uid().to_owned()),
            host: None,
            ..self.spec.clone()
        }
    }

    /// Its addresses, IPv4 first.
    #[must_use]
    pub fn ips(&self) -> &[IpAddr] {
        &self.identity.ips
    }

    /// Its IPv4 address.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn v4(&self) -> IpAddr {
        *self
            .ips()
            .iter()
            .find(|ip| ip.is_ipv4())
            .expect("the pod has an IPv4 address")
    }

    /// Its IPv6 address.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn v6(&self) -> IpAddr {
        *self
            .ips()
            .iter()
            .find(|ip| ip.is_ipv6())
            .expect("the pod has an IPv6 address")
    }

    /// Its network namespace.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// The cgroup of its container.
    #[must_use]
    pub fn cgroup(&self) -> &Path {
        &self.container
    }

    /// Process id of its pause process.
    ///
    /// # Panics
    /// When it is a sandbox only.
    #[must_use]
    pub fn pause_pid(&self) -> u32 {
        self.pause.as_ref().expect("the pod was started").id()
    }

    /// A command that runs in the pod's network namespace and cgroup: the only kind of process whose sockets are the
    /// application's.
    ///
    /// # Errors
    /// When the pod is gone.
    pub fn command(&self, program: &Path) -> Result<Command> {
        self.command_in(None, program)
    }

    /// Like [`Pod::command`], in this cgroup instead of the container's.
    ///
    /// # Errors
    /// When the pod or the cgroup is gone.
    pub fn command_in(&self, cgroup: Option<&Path>, program: &Path) -> Result<Command> {
        let mut command = Command::new(program);
        enter(&mut command, &self.netns, cgroup.unwrap_or(&self.container))?;
        Ok(command)
    }

    /// Runs a program in the pod to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn exec(&self, program: &str, arguments: &[&str]) -> Result<Output> {
        let mut command = self.command(Path::new(program))?;
        command
            .args(arguments)
            .output()
            .with_context(|| format!("running {program} in {}", self.name()))
    }

    /// Runs the load tool in the pod to its end and returns the JSON that it prints. See `meshgate-load --help`.
    ///
    /// # Errors
    /// When it fails or prints something else. A refused connection is a result, not a failure.
    pub fn load(&self, arguments: &[&str]) -> Result<Value> {
        json_output(self.command(&programs::find("meshgate-load")?)?.args(arguments))
    }

    /// Starts the load tool in the pod.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, arguments: &[&str]) -> Result<Process> {
        let mut command = self.command(&programs::find("meshgate-load")?)?;
        Process::start_talking(
            &format!("{} in {}", arguments.join(" "), self.name()),
            command.args(arguments),
        )
    }

    /// Starts `meshgate-load server` in the pod and waits until it listens.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn serve(&self, arguments: &[&str]) -> Result<Process> {
        let mut server = self.spawn(&[&["server"], arguments].concat())?;
        server.await_line("ready")?;
        Ok(server)
    }

    /// Runs `work` on a thread in the pod's network namespace; see [`Netns::run`] for what it cannot show.
    ///
    /// # Errors
    /// When the namespace is gone.
    pub fn in_netns<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.netns.run(work)
    }

    /// Its manifest as it is now.
    #[must_use]
    pub fn manifest(&self) -> Value {
        match self.pause {
            Some(_) => pod_manifest(&self.spec, &self.identity),
            None => scheduled_manifest(&self.spec, &self.identity),
        }
    }

    /// Its manifest's file.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("pod-{}-{}.yaml", self.spec.namespace, self.spec.name)
    }

    /// Sets or removes a label of the manifest, which the next [`Node::apply`] writes.
    pub fn set_label(&mut self, key: &str, value: Option<&str>) {
        set(&mut self.spec.labels, key, value);
    }

    /// Sets or removes an annotation of the manifest, which the next [`Node::apply`] writes.
    pub fn set_annotation(&mut self, key: &str, value: Option<&str>) {
        set(&mut self.spec.annotations, key, value);
    }

    /// Into or out of the mesh by the pod's own label, in the manifest.
    pub fn set_ambient(&mut self, ambient: bool) {
        self.set_label(
            "istio.io/dataplane-mode",
            Some(if ambient { "ambient" } else { "none" }),
        );
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        cgroup::remove(&self.slice);
    }
}

/// Commands which make `eth0` the pod's way out, in the families that it has.
fn eth0(subnet: u32, v4: Option<&str>, v6: Option<&str>) -> String {
    let mut script = "link set eth0 addrgenmode none up\n".to_owned();
    if let Some(v4) = v4 {
        script += &format!("addr add {v4}/24 dev eth0\nroute add default via 10.{subnet}.0.1\n");
    }
    if let Some(v6) = v6 {
        script += &format!("addr add {v6}/64 dev eth0 nodad\nroute add default via fd00:{subnet}::1\n");
    }
    script
}

fn enter(command: &mut Command, netns: &Netns, cgroup: &Path) -> Result<()> {
    sys::enter_on_exec(command, netns.open()?, Some(cgroup::entrance(cgroup)?));
    Ok(())
}

fn set(map: &mut std::collections::BTreeMap<String, String>, key: &str, value: Option<&str>) {
    match value {
        Some(value) => map.insert(key.to_owned(), value.to_owned()),
        None => map.remove(key),
    };
}

/// Runs a command to its end and parses what it printed.
pub(crate) fn json_output(command: &mut Command) -> Result<Value> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if !output.status.success() {
        bail!("{command:?} ended with {}: {err}{out}", output.status);
    }
    serde_json::from_str(&out).with_context(|| format!("{command:?} printed {out:?} {err}"))
}

/// Reads on from byte `read` in a file of JSON lines that another process still writes, and moves `read` on. An
/// unfinished last line is left for the next time, and a file that is not there yet has no lines.
///
/// # Errors
/// When a finished line is not a `T`.
pub(crate) fn json_lines<T: DeserializeOwned>(path: &Path, read: &mut u64) -> Result<Vec<T>> {
    let Ok(mut file) = File::open(path) else {
        return Ok(Vec::new());
    };
    let mut text = String::new();
    file.seek(SeekFrom::Start(*read))?;
    file.read_to_string(&mut text)?;
    let finished = text.rfind('\n').map_or("", |end| &text[..=end]);
    *read += finished.len() as u64;
    let parsed = finished
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<Vec<T>, _>>();
    parsed.with_context(|| format!("reading {}", path.display()))
}
