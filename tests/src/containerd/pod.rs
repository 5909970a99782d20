//! A pod that a runtime makes, step by step as kubelet asks for it: sandbox, containers one after the other, the next
//! sandbox, the end.

use std::fs::{self, File};
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tonic::Status;

use super::{Containerd, IMAGE};
use crate::cri::{
    ContainerConfig, ContainerMetadata, ContainerStatusRequest, CreateContainerRequest, Cri, DnsConfig,
    ImageSpec, LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata, PodSandboxStatusRequest,
    PodSandboxStatusResponse, PortMapping, RemovePodSandboxRequest, RunPodSandboxRequest,
    StartContainerRequest, StopPodSandboxRequest,
};
use crate::node::Node;
use crate::spec::{Identity, PodSpec, pod_manifest, scheduled_manifest};
use crate::{netns, sys, wait};

/// State of a container that has ended (`CONTAINER_EXITED`).
const EXITED: i32 = 2;

/// A pod of a runtime. It ends with its node, or by [`RuntimePod::stop`].
#[derive(Debug)]
pub struct RuntimePod {
    cri: Cri,
    spec: PodSpec,
    /// Its addresses are those of the sandbox.
    identity: Identity,
    config: PodSandboxConfig,
    /// The one that runs.
    sandbox: Option<String>,
    /// Those before it, which were stopped and not removed.
    stopped: Vec<String>,
}

/// A container that was started.
#[derive(Clone, Debug)]
pub struct Container {
    id: String,
    log: PathBuf,
}

impl Containerd {
    /// A pod that was put on the node and has no sandbox yet. Kubernetes does not know of it before
    /// [`RuntimePod::apply`].
    ///
    /// # Errors
    /// When the runtime does not answer.
    pub fn pod(&self, node: &Node, spec: PodSpec) -> Result<RuntimePod> {
        let identity = node.identity(&spec);
        let logs = node.run_dir().join("logs").join(&identity.uid);
        fs::create_dir_all(&logs)?;
        let group = node.cgroup().file_name().context("a node without a cgroup")?;
        let config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: spec.name.clone(),
                uid: identity.uid.clone(),
                namespace: spec.namespace.clone(),
                attempt: 0,
            }),
            hostname: spec.name.clone(),
            log_directory: logs.display().to_string(),
            // The machine's own file may lie in its /run.
            dns_config: Some(DnsConfig {
                servers: vec!["10.96.0.10".to_owned()],
            }),
            port_mappings: Vec::new(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("/{}/kubepods/pod{}", group.display(), identity.uid),
            }),
        };
        Ok(RuntimePod {
            cri: self.cri()?,
            spec,
            identity,
            config,
            sandbox: None,
            stopped: Vec::new(),
        })
    }
}

impl RuntimePod {
    /// With a port of the node that leads to one of its own.
    #[must_use]
    pub fn host_port(mut self, host: u16, container: u16) -> Self {
        self.config.port_mappings.push(PortMapping {
            container_port: container.into(),
            host_port: host.into(),
        });
        self
    }

    /// Has its sandbox made: the CNI plugins are called meanwhile.
    ///
    /// # Errors
    /// What the runtime says, with what a plugin said.
    pub fn run(&mut self) -> Result<(), Status> {
        let sandbox = self.cri.call(RunPodSandboxRequest {
            config: Some(self.config.clone()),
        })?;
        self.sandbox = Some(sandbox.pod_sandbox_id);
        let network = self.status()?.status.and_then(|status| status.network);
        let network = network.ok_or_else(|| Status::internal("a sandbox without a network"))?;
        let others = network.additional_ips.into_iter().map(|other| other.ip);
        let ips = [network.ip].into_iter().chain(others).map(|ip| ip.parse());
        let ips = ips.collect::<Result<Vec<IpAddr>, _>>();
        self.identity.ips = ips.map_err(|error| Status::internal(error.to_string()))?;
        self.identity.ips.sort();
        Ok(())
    }

    /// Writes its manifest as kubelet would report it now, or when it had its last sandbox.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn apply(&self, node: &Node) -> Result<()> {
        let manifest = if self.ips().is_empty() {
            scheduled_manifest(&self.spec, &self.identity)
        } else {
            pod_manifest(&self.spec, &self.identity)
        };
        node.write(&self.file_name(), &manifest)
    }

    /// Writes its manifest as kubelet reports it when all its containers have ended well, with the address that it had.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn apply_succeeded(&self, node: &Node) -> Result<()> {
        let mut manifest = pod_manifest(&self.spec, &self.identity);
        manifest["status"]["phase"] = "Succeeded".into();
        node.write(&self.file_name(), &manifest)
    }

    /// Removes its manifest, as when it is deleted.
    ///
    /// # Errors
    /// When it is not there.
    pub fn delete(&self, node: &Node) -> Result<()> {
        let file = node.manifests().join(self.file_name());
        fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))
    }

    /// Starts a container of [`IMAGE`] with these arguments.
    ///
    /// # Errors
    /// What the runtime says.
    pub fn start(&self, name: &str, arguments: &[&str]) -> Result<Container> {
        // As if each sandbox had restarted each container: its name and its log are its own.
        let attempt = self.config.metadata.as_ref().map_or(0, |pod| pod.attempt);
        let log = format!("{name}.{attempt}.log");
        let container = self.cri.call(CreateContainerRequest {
            pod_sandbox_id: self.sandbox.clone().context("the pod has no sandbox")?,
            config: Some(ContainerConfig {
                metadata: Some(ContainerMetadata {
                    name: name.to_owned(),
                    attempt,
                }),
                image: Some(ImageSpec {
                    image: IMAGE.to_owned(),
                }),
                args: arguments.iter().map(ToString::to_string).collect(),
                log_path: log.clone(),
            }),
            sandbox_config: Some(self.config.clone()),
        })?;
        let id = container.container_id;
        self.cri.call(StartContainerRequest {
            container_id: id.clone(),
        })?;
        let log = PathBuf::from(&self.config.log_directory).join(log);
        Ok(Container { id, log })
    }

    /// Starts `meshgate-load server` in it and waits until it listens.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn serve(&self, name: &str, arguments: &[&str]) -> Result<Container> {
        let server = self.start(name, &[&["server"], arguments].concat())?;
        match self.line(&server)?.as_str() {
            "ready" => Ok(server),
            other => bail!("the server says {other:?}"),
        }
    }

    /// Runs the load tool to its end in a container of its own, as an init container, and returns the JSON that it
    /// prints.
    ///
    /// # Errors
    /// When it fails or prints something else.
    pub fn load(&self, name: &str, arguments: &[&str]) -> Result<Value> {
        let container = self.start(name, arguments)?;
        let line = self.line(&container)?;
        let code = self.wait(&container)?;
        ensure!(code == 0, "{name} ended with {code} and printed {line:?}");
        serde_json::from_str(&line).with_context(|| format!("{name} printed {line:?}"))
    }

    /// The first line that a container prints, on either output.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn line(&self, container: &Container) -> Result<String> {
        let line = wait::for_file(&container.log, None, "a line of the container", || {
            let text = fs::read_to_string(&container.log).unwrap_or_default();
            let end = text.find('\n');
            Ok(end.and_then(|end| message(&text[..end]).map(ToOwned::to_owned)))
        });
        line.with_context(|| format!("container {:?}", self.state(container)))
    }

    /// Waits for a container's end and returns its exit code.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn wait(&self, container: &Container) -> Result<i32> {
        wait::asking(wait::LIMIT, "the end of a container", || {
            let (state, code) = self.state(container)?;
            Ok((state == EXITED).then_some(code))
        })
    }

    /// State and exit code of a container.
    fn state(&self, container: &Container) -> Result<(i32, i32)> {
        let status = self.cri.call(ContainerStatusRequest {
            container_id: container.id.clone(),
        })?;
        let status = status.status.context("a container without a status")?;
        Ok((status.state, status.exit_code))
    }

    /// Stops its containers and gives its addresses back; the CNI plugins are called meanwhile. Its next sandbox has the
    /// next number, as after a failure that kubelet noticed.
    ///
    /// # Errors
    /// What the runtime says.
    pub fn stop(&mut self) -> Result<(), Status> {
        let pod_sandbox_id = self.id()?;
        self.cri.call(StopPodSandboxRequest {
            pod_sandbox_id: pod_sandbox_id.clone(),
        })?;
        self.sandbox = None;
        self.stopped.push(pod_sandbox_id);
        if let Some(metadata) = &mut self.config.metadata {
            metadata.attempt += 1;
        }
        Ok(())
    }

    /// Removes the sandboxes that were stopped, with their containers.
    ///
    /// # Errors
    /// What the runtime says.
    pub fn remove(&mut self) -> Result<(), Status> {
        for pod_sandbox_id in std::mem::take(&mut self.stopped) {
            self.cri.call(RemovePodSandboxRequest { pod_sandbox_id })?;
        }
        Ok(())
    }

    /// Cookie of its network namespace.
    ///
    /// # Errors
    /// When it is gone.
    pub fn cookie(&self) -> Result<u64> {
        let netns = format!("/proc/{}/ns/net", self.pause_pid()?);
        let netns = File::open(&netns).with_context(|| format!("opening {netns}"))?;
        netns::run_within(&netns.into(), || {
            Ok(sys::netns_cookie(std::net::TcpListener::bind("127.0.0.1:0")?)?)
        })?
    }

    /// Process id of the sandbox's pause, which containerd tells beside the interface.
    ///
    /// # Errors
    /// When the sandbox does not run.
    pub fn pause_pid(&self) -> Result<u64> {
        let info = self.status()?.info;
        let info: Value = serde_json::from_str(info.get("info").context("the sandbox has no info")?)?;
        info["pid"].as_u64().with_context(|| format!("no pid in {info}"))
    }

    fn status(&self) -> Result<PodSandboxStatusResponse, Status> {
        self.cri.call(PodSandboxStatusRequest {
            pod_sandbox_id: self.id()?,
            verbose: true,
        })
    }

    fn id(&self) -> Result<String, Status> {
        let none = || Status::failed_precondition("the pod has no sandbox");
        self.sandbox.clone().ok_or_else(none)
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

    /// Its addresses, IPv4 first.
    #[must_use]
    pub fn ips(&self) -> &[IpAddr] {
        &self.identity.ips
    }

    fn file_name(&self) -> String {
        format!("pod-{}-{}.yaml", self.spec.namespace, self.spec.name)
    }
}

/// What a line of a container's log says: `<time> stdout|stderr F|P <message>` (CRI logging format).
fn message(line: &str) -> Option<&str> {
    line.splitn(4, ' ').nth(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_log_is_told_from_what_the_runtime_writes_before_it() {
        assert_eq!(
            message("2026-01-01T00:00:00.1Z stdout F {\"a\": 1}"),
            Some("{\"a\": 1}")
        );
        assert_eq!(message("2026-01-01T00:00:00.1Z stderr F "), Some(""));
        assert_eq!(message("2026-01-01T00:00:00.1Z"), None);
    }
}
