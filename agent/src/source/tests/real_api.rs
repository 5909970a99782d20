//! A real kube-apiserver with etcd, which ends with the test.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent_core::ids::NodeRef;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::view::View;
use crate::source::connection::Connection;
use crate::source::kube::KubeSource;

const TOKENS: &str = "admin-token,admin,1,\"system:masters\"\nnobody-token,nobody,2,\"nobodies\"\n";

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An API server and its store, with two users: `admin` may do everything, `nobody` nothing.
pub(super) struct Server {
    api: Option<Running>,
    _etcd: Running,
    folder: TempDir,
    port: u16,
    etcd_url: String,
}

impl Server {
    pub(super) async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("tokens"), TOKENS).unwrap();
        let key = folder.path().join("sa.key");
        run(Command::new("openssl")
            .args(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out"])
            .arg(&key));
        run(Command::new("openssl")
            .args(["ec", "-pubout", "-in"])
            .arg(&key)
            .arg("-out")
            .arg(folder.path().join("sa.pub")));
        let (client, peer) = (
            format!("http://127.0.0.1:{}", free_port()),
            format!("http://127.0.0.1:{}", free_port()),
        );
        let etcd = spawn(
            "etcd",
            folder.path(),
            &[
                ("data-dir", path(&folder, "etcd")),
                ("unsafe-no-fsync", "true".into()),
                ("listen-client-urls", client.clone()),
                ("advertise-client-urls", client.clone()),
                ("listen-peer-urls", peer.clone()),
                ("initial-advertise-peer-urls", peer.clone()),
                ("initial-cluster", format!("test={peer}")),
                ("name", "test".into()),
            ],
        );
        let mut server = Self {
            api: None,
            _etcd: etcd,
            folder,
            port: free_port(),
            etcd_url: client,
        };
        server.restart().await;
        server
    }

    /// Kills the API server, if there is one, without leave-taking.
    pub(super) fn kill(&mut self) {
        self.api = None;
    }

    /// Starts the API server, on the same port and store as before, and waits until it is ready.
    pub(super) async fn restart(&mut self) {
        self.api = Some(spawn(
            "kube-apiserver",
            self.folder.path(),
            &[
                ("etcd-servers", self.etcd_url.clone()),
                ("bind-address", "127.0.0.1".into()),
                ("advertise-address", "127.0.0.1".into()),
                ("endpoint-reconciler-type", "none".into()),
                ("secure-port", self.port.to_string()),
                ("cert-dir", path(&self.folder, "certificates")),
                ("token-auth-file", path(&self.folder, "tokens")),
                ("authorization-mode", "RBAC".into()),
                ("service-cluster-ip-range", "10.96.0.0/16".into()),
                ("service-account-issuer", "https://kubernetes.default.svc".into()),
                ("service-account-signing-key-file", path(&self.folder, "sa.key")),
                ("service-account-key-file", path(&self.folder, "sa.pub")),
                (
                    "disable-admission-plugins",
                    "ServiceAccount,TaintNodesByCondition".into(),
                ),
            ],
        ));
        let namespaces = Api::<Namespace>::all(self.admin().await);
        let limit = Instant::now() + Duration::from_secs(60);
        while namespaces.get("default").await.is_err() {
            assert!(
                Instant::now() < limit,
                "kube-apiserver is not ready:\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("kube-apiserver.log")).unwrap_or_default()
    }

    pub(super) fn connection(&self, user: &str) -> Connection {
        let kubeconfig = self.folder.path().join(format!("{user}.kubeconfig"));
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.port), "insecure-skip-tls-verify": true,
            }}],
            "users": [{"name": "u", "user": {"token": format!("{user}-token")}}],
        });
        fs::write(&kubeconfig, text.to_string()).unwrap();
        Connection::new(Some(kubeconfig))
    }

    pub(super) async fn admin(&self) -> Client {
        self.connection("admin").client().await.unwrap()
    }

    /// Follows node n1 as a user.
    pub(super) fn follow(&self, user: &str) -> View {
        let (facts, view) = mpsc::channel(1024);
        let node = NodeRef {
            cluster: "Kubernetes".into(),
            name: "n1".into(),
        };
        tokio::spawn(KubeSource::new(self.connection(user), node).run(facts));
        View::new(view)
    }
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn run(command: &mut Command) {
    let output = command.output().expect("openssl is installed");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn spawn(program: &str, folder: &Path, flags: &[(&str, String)]) -> Running {
    let assets = env::var_os("KUBEBUILDER_ASSETS")
        .expect("KUBEBUILDER_ASSETS names a folder with etcd and kube-apiserver");
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join(format!("{program}.log")))
        .unwrap();
    let child = Command::new(PathBuf::from(assets).join(program))
        .args(flags.iter().map(|(name, value)| format!("--{name}={value}")))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    Running(child)
}
