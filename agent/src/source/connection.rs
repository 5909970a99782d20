//! The way to the API server: a kubeconfig that was named, the pod's service account, or a kubeconfig of the user.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use thiserror::Error;
use tokio::sync::OnceCell;

/// How long a connection may take to come up.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a connection may be silent. Longer than a watch lives (see `list_watch`), so that only a dead one is cut.
const SILENCE: Duration = Duration::from_secs(300);

/// Why there is no client.
#[derive(Debug, Error)]
pub enum AccessError {
    /// A kubeconfig that was named or found cannot be used.
    #[error("kubeconfig {path}: {cause}; correct the file or name another one with --kubeconfig")]
    Kubeconfig {
        /// The file or files.
        path: String,
        /// What is wrong with it.
        cause: Box<KubeconfigError>,
    },
    /// In a pod, but its service account cannot be used.
    #[error(
        "service account in /var/run/secrets/kubernetes.io/serviceaccount: {0}; set automountServiceAccountToken, or \
         name a file with --kubeconfig"
    )]
    ServiceAccount(Box<InClusterError>),
    /// There is nothing to try.
    #[error(
        "no way to an API server: KUBERNETES_SERVICE_HOST is not set (not in a pod), KUBECONFIG is not set, {default} \
         does not exist; name a file with --kubeconfig, or use --source file:PATH"
    )]
    Nothing {
        /// The default kubeconfig that was looked for.
        default: String,
    },
    /// The client cannot be built from the configuration.
    #[error("client for the API server: {0}; check certificates and keys of the kubeconfig")]
    Client(Box<kube::Error>),
}

/// Where the configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Named(PathBuf),
    InCluster,
    Environment(OsString),
    Home(PathBuf),
    Nowhere { default: String },
}

/// What the choice depends on.
#[derive(Clone, Debug, Default)]
struct Surroundings {
    service_host: Option<OsString>,
    kubeconfig: Option<OsString>,
    home: Option<PathBuf>,
    home_config_exists: bool,
}

/// A client that is made when it is first needed and shared by its clones.
#[derive(Clone, Default)]
pub struct Connection {
    kubeconfig: Option<PathBuf>,
    client: Arc<OnceCell<Client>>,
}

impl Connection {
    /// With the kubeconfig that the user named, if any. Nothing is read yet.
    #[must_use]
    pub fn new(kubeconfig: Option<PathBuf>) -> Self {
        Self {
            kubeconfig,
            client: Arc::default(),
        }
    }

    /// The client. An error is not remembered: the next call tries again, so that a kubeconfig may come later.
    ///
    /// # Errors
    /// When there is no configuration or it cannot be used. Whether the server answers is not tried.
    pub async fn client(&self) -> Result<Client, AccessError> {
        self.client.get_or_try_init(|| self.connect()).await.cloned()
    }

    async fn connect(&self) -> Result<Client, AccessError> {
        let mut config = configuration(choose(self.kubeconfig.as_deref(), &Surroundings::now())).await?;
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(SILENCE);
        config.reset_reader_on_write = true;
        // The callers retry themselves and want to tell of a problem at once.
        config.default_retry = false;
        Client::try_from(config).map_err(|error| AccessError::Client(Box::new(error)))
    }
}

impl Surroundings {
    fn now() -> Self {
        let home = env::home_dir();
        let home_config_exists = home.as_deref().is_some_and(|home| home_config(home).exists());
        Self {
            service_host: env::var_os("KUBERNETES_SERVICE_HOST"),
            kubeconfig: env::var_os("KUBECONFIG").filter(|value| !value.is_empty()),
            home,
            home_config_exists,
        }
    }
}

fn home_config(home: &Path) -> PathBuf {
    home.join(".kube/config")
}

/// A named file wins, then the pod's own account: on a node `KUBECONFIG` may well be somebody else's.
fn choose(named: Option<&Path>, around: &Surroundings) -> Place {
    if let Some(path) = named {
        return Place::Named(path.to_owned());
    }
    if around.service_host.is_some() {
        return Place::InCluster;
    }
    if let Some(value) = &around.kubeconfig {
        return Place::Environment(value.clone());
    }
    match around.home.as_deref().map(home_config) {
        Some(path) if around.home_config_exists => Place::Home(path),
        Some(path) => Place::Nowhere {
            default: path.display().to_string(),
        },
        None => Place::Nowhere {
            default: "~/.kube/config (HOME is not set)".to_owned(),
        },
    }
}

async fn configuration(place: Place) -> Result<Config, AccessError> {
    match place {
        Place::Named(path) | Place::Home(path) => {
            loaded(path.display().to_string(), Kubeconfig::read_from(&path)).await
        }
        Place::Environment(value) => {
            let path = format!("{} (from KUBECONFIG)", value.display());
            loaded(path, Kubeconfig::read()).await
        }
        Place::InCluster => Config::incluster().map_err(|error| AccessError::ServiceAccount(Box::new(error))),
        Place::Nowhere { default } => Err(AccessError::Nothing { default }),
    }
}

async fn loaded(
    path: String,
    kubeconfig: Result<Kubeconfig, KubeconfigError>,
) -> Result<Config, AccessError> {
    let config = match kubeconfig {
        Ok(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await,
        Err(cause) => Err(cause),
    };
    config.map_err(|cause| AccessError::Kubeconfig {
        path,
        cause: Box::new(cause),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_configuration_that_applies_is_taken() {
        let all = Surroundings {
            service_host: Some("10.96.0.1".into()),
            kubeconfig: Some("/k1:/k2".into()),
            home: Some("/root".into()),
            home_config_exists: true,
        };
        let outside = Surroundings {
            service_host: None,
            ..all.clone()
        };
        let bare = Surroundings {
            kubeconfig: None,
            ..outside.clone()
        };
        let empty = Surroundings {
            home_config_exists: false,
            ..bare.clone()
        };
        let named = Path::new("/etc/named");
        let table = [
            (Some(named), &all, Place::Named(named.into())),
            (None, &all, Place::InCluster),
            (None, &outside, Place::Environment("/k1:/k2".into())),
            (None, &bare, Place::Home("/root/.kube/config".into())),
            (
                None,
                &empty,
                Place::Nowhere {
                    default: "/root/.kube/config".into(),
                },
            ),
        ];
        for (named, around, expected) in table {
            assert_eq!(choose(named, around), expected, "{around:?}");
        }
    }

    #[test]
    fn when_there_is_nothing_the_error_names_what_was_tried() {
        let text = AccessError::Nothing {
            default: "/root/.kube/config".into(),
        }
        .to_string();
        for part in [
            "KUBERNETES_SERVICE_HOST",
            "KUBECONFIG",
            "/root/.kube/config",
            "--kubeconfig",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named_and_may_come_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let connection = Connection::new(Some(path.clone()));
        let text = connection.client().await.err().unwrap().to_string();
        assert!(
            text.contains(path.to_str().unwrap()) && text.contains("--kubeconfig"),
            "{text}"
        );

        std::fs::write(&path, KUBECONFIG).unwrap();
        assert!(connection.client().await.is_ok());
    }

    const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: u, user: {token: t}}]
";
}
