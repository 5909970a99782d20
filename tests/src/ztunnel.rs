//! The real, unmodified ztunnel as the proxy: its own pod, its own certificates (`FAKE_CA`, which needs a build with its
//! `testing` feature), and what istiod would tell it from a file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

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
        fs::write(&file, serde_saphyr::to_string(&json!({ "workloads": entries }))?)?;
        let output = File::create(&log)?;
        let mut command = pod.command(program)?;
        command
            .env_clear()
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
