//! A real control plane, etcd and kube-apiserver, as processes of a node (as kubeadm runs them): in the node's own
//! network and on the usual ports, so that clusters stand side by side, and it is gone with the node. No controllers and
//! no kubelet: a test says itself what they would say, with [`objects`] and [`pods`]; [`one_node`] has the real ones.

pub mod helm;
pub mod kubectl;
pub mod objects;
pub mod one_node;
pub mod pods;
mod users;

use std::fs::{self, OpenOptions};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube::api::GetParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use kube::{Client, Config};
use tokio::runtime::{self, Runtime};

use crate::cgroup;
use crate::netns::run_within;
use crate::node::Node;
use crate::process::Process;
use crate::sys;

pub use users::User;

/// Where the API server answers, within the node's network namespace.
pub const SERVER: &str = "https://127.0.0.1:6443";
/// The agent's rights, as they are delivered.
pub const RBAC: &str = include_str!("../../deploy/rbac.yaml");

const ETCD: &str = "http://127.0.0.1:2379";
const ETCD_PEERS: &str = "http://127.0.0.1:2380";
/// How long the API server may take to start on a busy machine; usually 3 seconds.
const START: Duration = Duration::from_secs(90);

/// Admission plugins (kube-apiserver --help) that refuse or change what no controller would make good: without one,
/// pods have no service account, and new nodes keep their taint.
const NEEDS_CONTROLLERS: &str = "ServiceAccount,TaintNodesByCondition";

/// A control plane. Drop it before its node.
#[derive(Debug)]
pub struct Cluster {
    api_server: Option<Process>,
    etcd: Option<Process>,
    assets: PathBuf,
    /// Admission plugins that are left out.
    without: &'static str,
    /// The node's IPv4 address.
    address: String,
    /// Certificates, tokens, kubeconfigs, logs and the store.
    folder: PathBuf,
    /// The node's network namespace.
    netns: OwnedFd,
    cgroup: PathBuf,
    runtime: Runtime,
}

impl Cluster {
    /// Starts the programs of `assets` (see [`crate::requires::control_plane`]) on a node, with the Node object, the
    /// namespaces `default` and `istio-system`, and the agent's rights from deploy/rbac.yaml.
    ///
    /// # Errors
    /// When they do not start; the API server's log is in the error.
    pub fn start(node: &Node, assets: &Path) -> Result<Self> {
        let cluster = Self::start_without(node, assets, NEEDS_CONTROLLERS)?;
        cluster.node_object(node.name())?;
        Ok(cluster)
    }

    /// Like [`Cluster::start`] without these admission plugins, and without the Node object.
    fn start_without(node: &Node, assets: &Path, without: &'static str) -> Result<Self> {
        let folder = node.run_dir().join("cluster");
        fs::create_dir_all(&folder)?;
        users::write_tokens(&folder, node.name())?;
        let mut cluster = Self {
            api_server: None,
            etcd: None,
            assets: assets.to_owned(),
            without,
            address: format!("10.{}.0.1", node.subnet()),
            folder,
            netns: node.netns().open()?,
            cgroup: cgroup::create(node.cgroup().join("node/control-plane"))?,
            runtime: runtime::Builder::new_current_thread().enable_all().build()?,
        };
        cluster.write_kubeconfig(User::Admin, users::ADMIN_TOKEN)?;
        cluster.write_kubeconfig(User::Nobody, users::NOBODY_TOKEN)?;
        cluster.write_kubeconfig(User::Kubelet, users::KUBELET_TOKEN)?;
        cluster.restart()?;
        cluster.namespace("default", &[])?;
        cluster.namespace("istio-system", &[])?;
        cluster.apply_all(RBAC)?;
        let token = cluster.agent_token()?;
        cluster.write_kubeconfig(User::Agent, &token)?;
        Ok(cluster)
    }

    /// The kubeconfig of a user, for processes of the node.
    #[must_use]
    pub fn kubeconfig(&self, user: User) -> PathBuf {
        self.folder.join(user.name()).with_extension("kubeconfig")
    }

    /// Kills both programs with SIGKILL. What was stored stays.
    pub fn kill9(&mut self) {
        self.api_server = None;
        self.etcd = None;
    }

    /// Kills both programs, if they run, starts them on what was stored, and waits until the API server is ready.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn restart(&mut self) -> Result<()> {
        self.kill9();
        self.etcd = Some(self.launch("etcd", &self.etcd_flags())?);
        self.api_server = Some(self.launch("kube-apiserver", &self.api_server_flags())?);
        let deadline = Instant::now() + START;
        loop {
            if self.ended() {
                bail!("the control plane ended; {}", self.logs());
            }
            match self.ready() {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(error.context(format!("kube-apiserver is not ready; {}", self.logs())));
                }
                // It can only be asked: nothing else changes when the API server becomes ready.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Lets the programs run on every processor, also when what measures is bound to one: elsewhere they have machines of
    /// their own.
    ///
    /// # Errors
    /// When one does not run.
    pub fn unpin(&self) -> Result<()> {
        let mut programs = [&self.etcd, &self.api_server].into_iter().flatten();
        programs.try_for_each(|program| crate::tuning::unpin(program.id()))
    }

    /// Whether one of the programs that were started runs no more.
    fn ended(&mut self) -> bool {
        let mut programs = [&mut self.etcd, &mut self.api_server].into_iter().flatten();
        programs.any(|program| !matches!(program.ended(), Ok(None)))
    }

    fn ready(&self) -> Result<()> {
        self.call(async |client| {
            let request = Request::new("").get("readyz", &GetParams::default())?;
            client
                .request_text(request)
                .await
                .map(drop)
                .context("GET /readyz")
        })
    }

    /// Lets `work` talk to the API server as `admin`, from a thread in the node's network namespace.
    ///
    /// # Errors
    /// What `work` returns.
    pub fn call<T: Send>(&self, work: impl AsyncFnOnce(Client) -> Result<T> + Send) -> Result<T> {
        let kubeconfig = self.kubeconfig(User::Admin);
        self.block_on(async move || work(client(&kubeconfig).await?).await)?
    }

    /// Runs `work` on a thread in the node's network namespace, from which the API server can be reached. Tasks that it
    /// spawns go on in the next call only.
    ///
    /// # Errors
    /// When the namespace is gone.
    pub fn block_on<T: Send>(&self, work: impl AsyncFnOnce() -> T + Send) -> Result<T> {
        run_within(&self.netns, || self.runtime.block_on(work()))
    }

    fn launch(&self, program: &str, flags: &[String]) -> Result<Process> {
        self.start_logged(program, self.command(program)?.args(flags))
    }

    /// A command that runs one of the programs on the node.
    fn command(&self, program: &str) -> Result<Command> {
        let mut command = Command::new(self.assets.join(program));
        let group = cgroup::entrance(&self.cgroup)?;
        sys::enter_on_exec(&mut command, self.netns.try_clone()?, Some(group));
        Ok(command)
    }

    /// Starts a program whose output goes into a log of this name.
    fn start_logged(&self, name: &str, command: &mut Command) -> Result<Process> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log(name))?;
        Process::start(name, command.stdout(log.try_clone()?).stderr(log))
    }

    fn log(&self, program: &str) -> PathBuf {
        self.folder.join(program).with_extension("log")
    }

    /// The end of both logs.
    fn logs(&self) -> String {
        format!("{}\n{}", self.tail("etcd"), self.tail("kube-apiserver"))
    }

    /// The end of a program's log.
    fn tail(&self, program: &str) -> String {
        let text = fs::read_to_string(self.log(program)).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(20).collect();
        let lines: Vec<_> = lines.into_iter().rev().collect();
        format!("log of {program}:\n{}", lines.join("\n"))
    }

    fn etcd_flags(&self) -> Vec<String> {
        let data = self.folder.join("etcd").display().to_string();
        flags(&[
            ("name", "test"),
            ("log-level", "warn"),
            ("data-dir", &data),
            ("unsafe-no-fsync", "true"),
            ("listen-client-urls", ETCD),
            ("advertise-client-urls", ETCD),
            ("listen-peer-urls", ETCD_PEERS),
            ("initial-advertise-peer-urls", ETCD_PEERS),
            ("initial-cluster", &format!("test={ETCD_PEERS}")),
        ])
    }

    fn api_server_flags(&self) -> Vec<String> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let (certificate, key) = (file(users::CERTIFICATE), file(users::KEY));
        let certificates = self.folder.display().to_string();
        flags(&[
            ("etcd-servers", ETCD),
            ("advertise-address", &self.address),
            // It asks kubelets by address: nobody resolves the node's name.
            ("kubelet-preferred-address-types", "InternalIP"),
            ("allow-privileged", "true"),
            // Here it makes a certificate that it signs itself, with its key, when there is none yet.
            ("cert-dir", &certificates),
            ("token-auth-file", &file(users::TOKENS)),
            ("authorization-mode", "Node,RBAC"),
            ("service-cluster-ip-range", "10.96.0.0/16,fd00:10:96::/112"),
            ("service-account-issuer", "https://kubernetes.default.svc"),
            // The same key does for service accounts' tokens.
            ("service-account-signing-key-file", &key),
            ("service-account-key-file", &certificate),
            ("disable-admission-plugins", self.without),
        ])
    }
}

/// A client by a kubeconfig; it lives on the runtime that it is made on.
///
/// # Errors
/// When the kubeconfig cannot be used.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?;
    Ok(Client::try_from(config)?)
}

fn flags(flags: &[(&str, &str)]) -> Vec<String> {
    flags
        .iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect()
}
