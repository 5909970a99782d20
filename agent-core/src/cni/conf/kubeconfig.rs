//! The kubeconfig that Istio's plugin reads on the node. Ours needs none.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

/// Name of its file in the agent's run folder.
pub const FILE: &str = "istio-cni-kubeconfig";
/// The first line: what begins otherwise is not ours to remove.
pub const MARK: &str = "# Written by meshgate for the CNI plugin; it is replaced when the token changes.";

/// What it says.
#[derive(Clone, PartialEq, Eq)]
pub struct Kubeconfig {
    /// Address of the API server.
    pub server: String,
    /// Its certificate authority, PEM; `None`: the plugin does not check the server.
    pub ca: Option<Vec<u8>>,
    /// The service account's token.
    pub token: String,
}

/// Address of the API server, from the variables that Kubernetes gives to each pod.
#[must_use]
pub fn server(protocol: &str, host: &str, port: &str) -> String {
    if host.contains(':') {
        format!("{protocol}://[{host}]:{port}")
    } else {
        format!("{protocol}://{host}:{port}")
    }
}

impl Kubeconfig {
    /// The text of the file: YAML, written as JSON, which is YAML too.
    #[must_use]
    pub fn text(&self) -> String {
        let mut cluster = json!({"server": self.server});
        match &self.ca {
            Some(ca) => cluster["certificate-authority-data"] = STANDARD.encode(ca).into(),
            None => cluster["insecure-skip-tls-verify"] = true.into(),
        }
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": "istio-cni", "user": {"token": self.token}}],
            "contexts": [{"name": "istio-cni-context", "context": {"cluster": "local", "user": "istio-cni"}}],
            "current-context": "istio-cni-context",
        });
        format!("{MARK}\n{config:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> serde_json::Value {
        let (mark, config) = text.split_once('\n').unwrap();
        assert_eq!(mark, MARK);
        serde_json::from_str(config).unwrap()
    }

    #[test]
    fn addresses_of_both_families_make_a_server() {
        assert_eq!(server("https", "10.96.0.1", "443"), "https://10.96.0.1:443");
        assert_eq!(server("https", "fd00::1", "443"), "https://[fd00::1]:443");
    }

    #[test]
    fn the_certificate_is_in_it_unless_the_server_is_not_checked() {
        let with = |ca: Option<&str>| {
            let ca = ca.map(|ca| ca.as_bytes().to_vec());
            parsed(
                &Kubeconfig {
                    server: "https://50.76.2.1:443".into(),
                    ca,
                    token: "foo".into(),
                }
                .text(),
            )
        };
        let checked = with(Some("ca\n"));
        let cluster = &checked["clusters"][0]["cluster"];
        assert_eq!(
            *cluster,
            json!({"server": "https://50.76.2.1:443", "certificate-authority-data": "Y2EK"})
        );
        assert_eq!(checked["current-context"], checked["contexts"][0]["name"]);
        assert_eq!(checked["users"][0]["user"]["token"], "foo");
        let unchecked = with(None);
        let cluster = &unchecked["clusters"][0]["cluster"];
        assert_eq!(
            *cluster,
            json!({"server": "https://50.76.2.1:443", "insecure-skip-tls-verify": true})
        );
    }
}
