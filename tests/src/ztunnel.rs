//! The real, unmodified ztunnel as the proxy: its own pod, its own certificates (`FAKE_CA`, which needs a build with its
//! `testing` feature), and what istiod would tell it from a file.

use std::fs::{self, File};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::node::Node;
use crate::pod::Pod;
use crate::process::Process;
use crate::spec::PodSpec;

/// Environment variable which names the binary.
pub const VARIABLE: &str = "MESHGATE_ZTUNNEL";

/// A pod as istiod would describe it to ztunnel.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Whether it is in the mesh: others reach it by HBONE then.
    pub mesh: bool,
}

/// What it knows of names.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// Whom it asks for names that are not of the mesh: in its `/etc/resolv.conf`.
    pub name_server: IpAddr,
    /// A service of the mesh, by its name in namespace `default`.
    pub service: &'a str,
    /// The service's addresses.
    pub vips: [IpAddr; 2],
}

/// A ztunnel that runs.
#[derive(Debug)]
pub struct Ztunnel {
    process: Process,
    log: PathBuf,
    /// Owns the namespace and the cgroup.
    pod: Pod,
}

impl Ztunnel {
    /// Starts it; it connects to the node's ZDS socket at once or when somebody listens there.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(node: &Node, name: &str, program: &Path, workloads: &[Workload<'_>]) -> Result<Self> {
        Self::start_with(node, name, program, workloads, None)
    }

    /// Like [`Ztunnel::start`], with names that it knows.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_with(
        node: &Node,
        name: &str,
        program: &Path,
        workloads: &[Workload<'_>],
        names: Option<Names<'_>>,
    ) -> Result<Self> {
        let pod = node.pod_with(
            PodSpec::new(name)
                .namespace("istio-system")
                .label("app", "ztunnel"),
        )?;
        let (file, log) = (
            node.run_dir().join(format!("{name}.yaml")),
            node.run_dir().join(format!("{name}.log")),
        );
        let entries: Vec<Value> = workloads.iter().map(|workload| entry(node, *workload)).collect();
        let services: Vec<Value> = names.iter().map(service).collect();
        let told = json!({ "workloads": entries, "services": services });
        fs::write(&file, serde_saphyr::to_string(&told)?)?;
        let output = File::create(&log)?;
        let mut command = match names {
            None => pod.command(program)?,
            Some(names) => {
                let resolv = node.run_dir().join(format!("{name}.resolv.conf"));
                fs::write(&resolv, format!("nameserver {}\n", names.name_server))?;
                resolving(&pod, &resolv, program)?
            }
        };
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("FAKE_CA", "true")
            .env("XDS_ADDRESS", "")
            .env("LOCAL_XDS_PATH", &file);
        command
            .env("INPOD_UDS", node.zds_socket())
            .env("PROXY_MODE", "shared")
            .env("NODE_NAME", node.name());
        command
            .env("ZTUNNEL_WORKER_THREADS", "1")
            .env("RUST_LOG", "info")
            .env("POD_NAME", name);
        command.stdout(output.try_clone()?).stderr(output);
        let process = Process::start(name, &mut command)?;
        Ok(Self { process, log, pod })
    }

    /// The pod that it is.
    #[must_use]
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Everything that it logged. Each connection has a line when it ends.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Stops it with SIGTERM, as a rolling update does.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn stop(mut self) -> Result<()> {
        self.process.signal(Signal::TERM)?;
        self.process.wait().map(drop)
    }
}

/// A program with this `/etc/resolv.conf`.
fn resolving(pod: &Pod, resolv: &Path, program: &Path) -> Result<Command> {
    let script = format!(
        "mount --bind {} /etc/resolv.conf && exec \"$@\"",
        resolv.display()
    );
    let mut command = pod.command(Path::new("unshare"))?;
    command.args(["--mount", "sh", "-c", &script, "sh"]).arg(program);
    Ok(command)
}

/// A service of ztunnel's local file.
fn service(names: &Names<'_>) -> Value {
    json!({
        "name": names.service,
        "namespace": "default",
        "hostname": format!("{}.default.svc.cluster.local", names.service),
        "vips": names.vips.map(|vip| format!("/{vip}")),
        "ports": {},
        "subjectAltNames": [],
        "canonical": true,
    })
}

/// A workload of ztunnel's local file.
fn entry(node: &Node, Workload { pod, mesh }: Workload<'_>) -> Value {
    json!({
        "uid": format!("Kubernetes//Pod/{}/{}", pod.namespace(), pod.name()),
        "name": pod.name(),
        "namespace": pod.namespace(),
        "serviceAccount": "default",
        "workloadIps": pod.ips(),
        "protocol": if mesh { "HBONE" } else { "TCP" },
        "node": node.name(),
        "network": "",
        // It must be there, and may be empty.
        "services": {},
    })
}
