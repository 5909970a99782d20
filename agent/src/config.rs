//! The agent's settings: flags, with the environment variables of the `istio-cni` DaemonSet as their defaults.

mod ops;

use std::path::{Path, PathBuf};

use agent_core::facts::Place;
use agent_core::ids::{ClusterId, NetworkName, NodeRef};
use clap::Args;
use clap::builder::BoolishValueParser;

mod cni;
mod install;
mod lifecycle;

pub use cni::CniArgs;
pub use install::{InstallArgs, PluginPlaceArgs};
pub use lifecycle::LifecycleArgs;
pub use ops::{OpsArgs, PortError};

/// Where the proxy looks for its socket, if it is not told otherwise.
pub const ZDS_SOCKET: &str = "/var/run/ztunnel/ztunnel.sock";

/// Where things are on this node: the same for the agent and for commands that read.
#[derive(Args, Clone, Debug)]
pub struct Paths {
    /// bpffs (or a folder within one) for the pins; mounted when missing
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        default_value = "/sys/fs/bpf",
        env = "MESHGATE_BPFFS"
    )]
    pub bpffs: PathBuf,
    /// Folder for the agent's lock and state
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        default_value = "/run/meshgate",
        env = "MESHGATE_RUN_DIR"
    )]
    pub run_dir: PathBuf,
    /// The node's root cgroup (v2); default: where it is mounted
    #[arg(long, global = true, value_name = "DIR", env = "MESHGATE_CGROUP_ROOT")]
    pub cgroup_root: Option<PathBuf>,
    /// The node's own network namespace; default: /host/proc/1/ns/net, else /proc/1/ns/net
    #[arg(long, global = true, value_name = "FILE", env = "MESHGATE_HOST_NETNS")]
    pub host_netns: Option<PathBuf>,
}

impl Paths {
    /// The node's own network namespace.
    #[must_use]
    pub fn host_netns(&self) -> PathBuf {
        let mounted = Path::new("/host/proc/1/ns/net");
        match &self.host_netns {
            Some(given) => given.clone(),
            None if mounted.exists() => mounted.to_owned(),
            None => PathBuf::from("/proc/1/ns/net"),
        }
    }

    /// The node's root cgroup: as given, else the first mount of cgroup v2.
    ///
    /// # Errors
    /// When none is mounted; says how to mount it.
    pub fn cgroup_root(&self) -> Result<PathBuf, ConfigError> {
        match &self.cgroup_root {
            Some(given) => Ok(given.clone()),
            None => cgroup2_mount(&std::fs::read_to_string("/proc/self/mounts").unwrap_or_default())
                .ok_or(ConfigError::NoCgroup2),
        }
    }
}

/// The first mount of cgroup v2 in the text of `/proc/self/mounts`.
#[must_use]
pub fn cgroup2_mount(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, path, kind) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(path))
    })
}

/// The mount of cgroup v2 that a folder lies on, in the text of `/proc/self/mounts`. In a container there are two: its own,
/// and that of the node.
#[must_use]
pub fn cgroup2_mount_of(mounts: &str, folder: &Path) -> Option<PathBuf> {
    let all = mounts.lines().filter_map(cgroup2_mount);
    all.filter(|mount| folder.starts_with(mount))
        .max_by_key(|mount| mount.components().count())
}

/// Settings of `meshgate run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Where pods and namespaces come from: kube, or file:PATH (a manifest or a folder of them); default: kube within a
    /// cluster, else file:/etc/meshgate/manifests
    #[arg(long, value_name = "SOURCE", env = "MESHGATE_SOURCE")]
    pub source: Option<Source>,
    /// Kubeconfig of the kube source; default: in-cluster, then $KUBECONFIG, then ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Name of this node; default: the host's name
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node: Option<String>,
    /// Name of this cluster, as istiod knows it
    #[arg(long, value_name = "NAME", env = "CLUSTER_ID", default_value = "Kubernetes")]
    pub cluster: String,
    /// Network of pods, where neither the pod nor the system namespace has a label topology.istio.io/network
    #[arg(long, value_name = "NAME", env = "NETWORK", default_value = "")]
    pub network: String,
    /// Namespace whose label topology.istio.io/network names the cluster's network
    #[arg(
        long,
        value_name = "NAME",
        env = "SYSTEM_NAMESPACE",
        default_value = "istio-system"
    )]
    pub system_namespace: String,
    /// Namespaces whose pods are never enrolled, comma-separated
    #[arg(
        long,
        value_name = "NAMES",
        env = "EXCLUDE_NAMESPACES",
        default_value = "kube-system"
    )]
    pub exclude_namespaces: String,
    /// Which pods are enrolled: a YAML list of {podSelector, namespaceSelector}; default: as Istio's chart
    #[arg(long, value_name = "YAML", env = "AMBIENT_ENABLEMENT_SELECTOR")]
    pub enablement_selector: Option<String>,
    /// Whether DNS of enrolled pods goes to the proxy, where the pod does not say otherwise
    #[arg(long, value_name = "BOOL", env = "AMBIENT_DNS_CAPTURE", default_value_t = false, action = clap::ArgAction::Set,
          value_parser = BoolishValueParser::new())]
    pub dns_capture: bool,
    /// Socket that the proxy connects to (ZDS)
    #[arg(
        long,
        value_name = "FILE",
        env = "ZTUNNEL_UDS_ADDRESS",
        default_value = ZDS_SOCKET
    )]
    pub zds_socket: PathBuf,
    /// That socket; default: pluginevent.sock in --cni-agent-run-dir
    #[arg(long, value_name = "FILE", env = "MESHGATE_PLUGIN_SOCKET")]
    pub plugin_socket: Option<PathBuf>,
    /// Where the node's files are, as this process sees them: before the paths of network namespaces that the plugin
    /// tells
    #[arg(long, value_name = "DIR", env = "MESHGATE_HOST_ROOT", default_value = "/")]
    pub host_root: PathBuf,
    /// Mount a bpffs if there is none. Not within a container: the mount would go with it
    #[arg(long, value_name = "BOOL", env = "MESHGATE_MOUNT_BPFFS", default_value_t = true, action = clap::ArgAction::Set,
          value_parser = BoolishValueParser::new())]
    pub mount_bpffs: bool,
    /// Where the node's /proc is, as this process sees its process ids
    #[arg(long, value_name = "DIR", env = "MESHGATE_PROC")]
    pub proc_root: Option<PathBuf>,
    /// The installer
    #[command(flatten)]
    pub install: InstallArgs,
    /// What the CNI plugin is answered
    #[command(flatten)]
    pub cni: CniArgs,
    /// Health, metrics, log
    #[command(flatten)]
    pub ops: OpsArgs,
    /// The agent's end
    #[command(flatten)]
    pub lifecycle: LifecycleArgs,
}

impl RunArgs {
    /// Where this agent is.
    #[must_use]
    pub fn place(&self) -> Place {
        let name = self
            .node
            .clone()
            .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
        Place {
            node: NodeRef {
                cluster: ClusterId(self.cluster.clone()),
                name,
            },
            default_network: NetworkName(self.network.clone()),
            system_namespace: self.system_namespace.clone(),
        }
    }

    /// The namespaces that are never enrolled.
    #[must_use]
    pub fn excluded_namespaces(&self) -> Vec<String> {
        self.exclude_namespaces
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Where pods and namespaces come from.
    #[must_use]
    pub fn source(&self) -> Source {
        match &self.source {
            Some(given) => given.clone(),
            None if self.kubeconfig.is_some() || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
                Source::Kube
            }
            None => Source::File(PathBuf::from("/etc/meshgate/manifests")),
        }
    }

    /// The socket that the CNI plugin calls.
    #[must_use]
    pub fn plugin_socket(&self) -> PathBuf {
        let default = || {
            self.install
                .place
                .cni_agent_run_dir
                .join(agent_core::cni::config::SOCKET)
        };
        self.plugin_socket.clone().unwrap_or_else(default)
    }

    /// The socket that takes the CNI plugin's log: the plugin looks for it beside the other.
    #[must_use]
    pub fn log_socket(&self) -> PathBuf {
        self.plugin_socket()
            .with_file_name(agent_core::cni::config::LOG_SOCKET)
    }

    /// The node's /proc. Process ids in it are those of the agent's own PID namespace only with `hostPID`.
    #[must_use]
    pub fn proc_root(&self) -> PathBuf {
        self.proc_root.clone().unwrap_or_else(|| PathBuf::from("/proc"))
    }
}

/// Where pods and namespaces come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The Kubernetes API.
    Kube,
    /// Manifests.
    File(PathBuf),
}

impl std::str::FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "kube" => Ok(Self::Kube),
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(PathBuf::from(path))),
            _ => Err(format!("{text:?} is neither \"kube\" nor \"file:PATH\"")),
        }
    }
}

/// What is wrong with the settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No cgroup v2.
    #[error("cgroup v2 is not mounted: mount -t cgroup2 none /sys/fs/cgroup/unified, or give --cgroup-root")]
    NoCgroup2,
    /// The selectors.
    #[error(
        "AMBIENT_ENABLEMENT_SELECTOR (--enablement-selector): {0}; expected a YAML list of podSelector and namespaceSelector"
    )]
    Selector(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_kube_or_a_path() {
        assert_eq!("kube".parse(), Ok(Source::Kube));
        assert_eq!("file:/m".parse(), Ok(Source::File("/m".into())));
        for bad in ["", "file:", "xds", "kube:x"] {
            assert!(bad.parse::<Source>().is_err(), "{bad}");
        }
    }

    /// The command line of `meshgate run`.
    #[derive(clap::Parser)]
    struct Run {
        #[command(flatten)]
        args: RunArgs,
    }

    #[test]
    fn the_plugins_socket_is_in_its_folder_unless_it_is_given() {
        for (flags, socket) in [
            (&[][..], "/var/run/istio-cni/pluginevent.sock"),
            (
                &["--cni-agent-run-dir", "/run/mesh"],
                "/run/mesh/pluginevent.sock",
            ),
            (
                &["--cni-agent-run-dir", "/run/mesh", "--plugin-socket", "/s"],
                "/s",
            ),
        ] {
            let run = <Run as clap::Parser>::parse_from([&["meshgate"], flags].concat());
            assert_eq!(run.args.plugin_socket(), PathBuf::from(socket), "{flags:?}");
            let log = PathBuf::from(socket).with_file_name("log.sock");
            assert_eq!(run.args.log_socket(), log, "{flags:?}");
        }
    }

    #[test]
    fn booleans_are_taken_in_all_spellings_that_istio_takes() {
        for flag in [
            "dns-capture",
            "mount-bpffs",
            "disable-safe-upgrade",
            "chained-cni-plugin",
        ] {
            for (text, wanted) in [
                ("1", true),
                ("t", true),
                ("TRUE", true),
                ("True", true),
                ("0", false),
                ("F", false),
                ("False", false),
            ] {
                let flags = ["meshgate".to_owned(), format!("--{flag}={text}")];
                let run = <Run as clap::Parser>::parse_from(flags).args;
                let taken = match flag {
                    "dns-capture" => run.dns_capture,
                    "mount-bpffs" => run.mount_bpffs,
                    "disable-safe-upgrade" => run.lifecycle.disable_safe_upgrade,
                    _ => run.install.place.chained_cni_plugin,
                };
                assert_eq!(taken, wanted, "--{flag}={text}");
            }
        }
    }

    #[test]
    fn the_mount_of_cgroup2_is_found_beside_version_1() {
        let mounts =
            "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(cgroup2_mount(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(cgroup2_mount("proc /proc proc rw 0 0\n"), None);
        let mounts = "cgroup /sys/fs/cgroup cgroup2 ro 0 0\ncgroup2 /host/sys/fs/cgroup cgroup2 ro 0 0\n";
        for (folder, mount) in [
            ("/host/sys/fs/cgroup", Some("/host/sys/fs/cgroup")),
            ("/sys/fs/cgroup/kubepods", Some("/sys/fs/cgroup")),
            ("/sys/fs", None),
        ] {
            assert_eq!(
                cgroup2_mount_of(mounts, folder.as_ref()),
                mount.map(PathBuf::from),
                "{folder}"
            );
        }
    }
}
