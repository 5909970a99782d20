//! Who may talk to the API server: the users' tokens and kubeconfigs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use super::{Cluster, SERVER};
use crate::wait::LIMIT;

/// Who a kubeconfig is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// May do everything.
    Admin,
    /// The service account of deploy/rbac.yaml.
    Agent,
    /// The kubelet of the node.
    Kubelet,
    /// Is known and may do nothing.
    Nobody,
}

impl User {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Agent => "agent",
            Self::Kubelet => "kubelet",
            Self::Nobody => "nobody",
        }
    }
}

pub(super) const ADMIN_TOKEN: &str = "admin-token";
pub(super) const KUBELET_TOKEN: &str = "kubelet-token";
pub(super) const NOBODY_TOKEN: &str = "nobody-token";

/// The API server's certificate, which it makes and signs itself.
pub(super) const CERTIFICATE: &str = "apiserver.crt";
/// The certificate's key.
pub(super) const KEY: &str = "apiserver.key";
/// Token, user, its id, its groups.
pub(super) const TOKENS: &str = "tokens.csv";

/// How long the agent's token is good, in seconds.
const TOKEN_LIFE: i64 = 24 * 3600;

/// Writes the tokens of the users that are no service account.
///
/// A kubelet is known by its node's name, and its rights end there (Node authorization).
pub(super) fn write_tokens(folder: &Path, node: &str) -> Result<()> {
    let tokens = format!(
        "{ADMIN_TOKEN},admin,1,\"system:masters\"\n\
         {NOBODY_TOKEN},nobody,2,\"nobodies\"\n\
         {KUBELET_TOKEN},system:node:{node},3,\"system:nodes\"\n"
    );
    fs::write(folder.join(TOKENS), tokens)?;
    Ok(())
}

impl Cluster {
    pub(super) fn write_kubeconfig(&self, user: User, token: &str) -> Result<()> {
        let text = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": user.name() } }],
            "clusters": [{ "name": "test", "cluster": {
                "server": SERVER,
                // The certificate is made for the node's address, and for the names within the cluster.
                "tls-server-name": "kubernetes.default.svc",
                "certificate-authority": self.folder.join(CERTIFICATE),
            }}],
            "users": [{ "name": user.name(), "user": { "token": token } }],
        });
        let path = self.kubeconfig(user);
        fs::write(&path, text.to_string()).with_context(|| format!("writing {}", path.display()))
    }

    /// A token of the agent's service account, as a pod would find it mounted.
    pub(super) fn agent_token(&self) -> Result<String> {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(TOKEN_LIFE),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        self.call(async |client| {
            let accounts = Api::<ServiceAccount>::namespaced(client, "istio-system");
            let made = accounts
                .create_token_request("meshgate", &PostParams::default(), &request)
                .await
                .context("requesting a token of service account istio-system/meshgate")?;
            Ok(made.status.context("a token request without an answer")?.token)
        })
    }

    /// Asks until the API server has seen a change of the agent's rights; it tells nobody when it has. `attributes` are the
    /// `resourceAttributes` of a `SubjectAccessReview`.
    ///
    /// # Errors
    /// When the answer is not the expected one within [`LIMIT`].
    pub fn wait_until_agent_may(&self, attributes: &Value, expected: bool) -> Result<()> {
        let question: SubjectAccessReview = serde_json::from_value(json!({"spec": {
            "user": "system:serviceaccount:istio-system:meshgate",
            "resourceAttributes": attributes,
        }}))?;
        self.call(async |client| {
            let reviews = Api::<SubjectAccessReview>::all(client);
            let deadline = Instant::now() + LIMIT;
            let mut again = interval(Duration::from_millis(10));
            while Instant::now() < deadline {
                again.tick().await;
                let answer = reviews.create(&PostParams::default(), &question).await?;
                if answer.status.is_some_and(|status| status.allowed == expected) {
                    return Ok(());
                }
            }
            bail!("{attributes} is not {expected} for the agent after {LIMIT:?}")
        })
    }
}
