//! The plugin's configuration, as the runtime gives it on standard input: the keys of Istio's plugin and one of ours.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::error::{CniError, Code};
use super::log::Level;
use super::policy::FailurePolicy;
use super::version::SpecVersion;

/// Where the agent's socket is, when the configuration does not say.
pub const DEFAULT_RUN_DIR: &str = "/var/run/istio-cni";
/// Name of the agent's socket in that folder.
pub const SOCKET: &str = "pluginevent.sock";
/// Name of the socket on which the agent takes the plugin's log, in the same folder.
pub const LOG_SOCKET: &str = "log.sock";
/// Name of the plugin's own log file, in the same folder. It is Istio's, for both names of the plugin: who collects a
/// node's logs by that path finds ours there too, and after a switch from one to the other the story goes on in one file.
pub const LOG_FILE: &str = "istio-cni.log";
/// How long an `ADD` waits for the agent, when the configuration does not say: longer than an agent takes to restart,
/// shorter than the minutes that kubelet gives a sandbox.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// More waiting than any runtime does.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// What the plugin is told by its configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `cniVersion`.
    pub version: SpecVersion,
    /// `prevResult`: what the plugin before this one in the chain has said.
    pub previous: Option<Value>,
    /// `cni_agent_run_dir`: the folder of the agent's socket.
    pub run_dir: PathBuf,
    /// `plugin_log_level`: the least important lines that are written; `None` for no log at all.
    pub log_level: Option<Level>,
    /// `exclude_namespaces`: their pods are let through without the agent.
    pub excluded_namespaces: BTreeSet<String>,
    /// `pod_namespace`: where the agent itself runs.
    pub agent_namespace: String,
    /// `agent_timeout_seconds`, ours: how long to wait for the agent.
    pub timeout: Duration,
    /// `failure_policy`, ours: what becomes of a pod about which no agent says anything.
    pub failure_policy: FailurePolicy,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not JSON, not an object, or a field of the wrong type.
    #[error("the network configuration on standard input is not as it should be: {0}")]
    Undecodable(#[from] serde_json::Error),
    /// The version.
    #[error(
        "cniVersion {0:?} is not one of those that meshgate-cni speaks (0.1.0 to 1.1.0): correct the configuration, or \
         update the plugin"
    )]
    Version(String),
    /// The name of the network.
    #[error(
        "the network's name {0:?} is missing or wrong: it begins with a letter or digit and goes on with letters, digits, \
         _, . and -"
    )]
    Name(String),
    /// The failure policy.
    #[error("failure_policy: {0}")]
    FailurePolicy(String),
}

impl From<ConfigError> for CniError {
    fn from(error: ConfigError) -> Self {
        let code = match error {
            ConfigError::Undecodable(_) => Code::Undecodable,
            ConfigError::Version(_) => Code::IncompatibleVersion,
            ConfigError::Name(_) | ConfigError::FailurePolicy(_) => Code::InvalidConfig,
        };
        Self::new(code, "reading the network configuration", error.to_string())
    }
}

/// The keys that are read; all others belong to the installer, to Istio's plugin or to the runtime.
#[derive(Deserialize)]
struct Keys {
    #[serde(rename = "cniVersion", default, deserialize_with = "null_is_default")]
    cni_version: String,
    #[serde(default, deserialize_with = "null_is_default")]
    name: String,
    #[serde(rename = "prevResult")]
    previous: Option<Value>,
    #[serde(default, deserialize_with = "null_is_default")]
    cni_agent_run_dir: String,
    #[serde(default, deserialize_with = "null_is_default")]
    plugin_log_level: String,
    #[serde(default, deserialize_with = "null_is_default")]
    exclude_namespaces: BTreeSet<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    pod_namespace: String,
    agent_timeout_seconds: Option<u64>,
    #[serde(default, deserialize_with = "null_is_default")]
    failure_policy: String,
}

/// Go, in which other plugins and runtimes are written, prints empty lists and texts as null at times.
fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// When it is not JSON, of a version that is not spoken, without a valid name, or with an unknown failure policy.
    pub fn parse(text: &[u8]) -> Result<Self, ConfigError> {
        let keys: Keys = serde_json::from_slice(text)?;
        let version = SpecVersion::of(&keys.cni_version)
            .ok_or_else(|| ConfigError::Version(keys.cni_version.clone()))?;
        if !is_name(&keys.name) {
            return Err(ConfigError::Name(keys.name));
        }
        let run_dir = match keys.cni_agent_run_dir.as_str() {
            "" => DEFAULT_RUN_DIR,
            given => given,
        };
        let timeout = keys.agent_timeout_seconds.map(Duration::from_secs);
        Ok(Self {
            version,
            previous: keys.previous,
            run_dir: PathBuf::from(run_dir),
            log_level: log_level(&keys.plugin_log_level),
            excluded_namespaces: keys.exclude_namespaces,
            agent_namespace: keys.pod_namespace,
            timeout: timeout.unwrap_or(DEFAULT_TIMEOUT).min(LONGEST_TIMEOUT),
            failure_policy: match keys.failure_policy.as_str() {
                "" => FailurePolicy::default(),
                given => given.parse().map_err(ConfigError::FailurePolicy)?,
            },
        })
    }

    /// The agent's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.run_dir.join(SOCKET)
    }
}

/// A level that is not known is no reason to let a pod fail.
fn log_level(name: &str) -> Option<Level> {
    match name {
        "none" | "off" => None,
        name => Some(Level::of(name).unwrap_or(Level::Info)),
    }
}

/// What libcni takes as the name of a network.
fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_keys_of_istio_are_read_and_those_of_others_ignored() {
        let text = br#"{
            "cniVersion": "0.3.1", "name": "k8s-pod-network", "type": "istio-cni",
            "plugin_log_level": "debug", "ambient_enabled": true, "enable_ambient_detection_retry": true,
            "kubernetes": {"kubeconfig": "/k"}, "cni_agent_run_dir": "/run/mesh",
            "exclude_namespaces": ["kube-system", "istio-system"], "pod_namespace": "istio-system",
            "agent_timeout_seconds": 5, "failure_policy": "Ignore", "prevResult": {"ips": []}
        }"#;
        let expected = Config {
            version: SpecVersion::V0_3_1,
            previous: Some(json!({"ips": []})),
            run_dir: "/run/mesh".into(),
            log_level: Some(Level::Debug),
            excluded_namespaces: ["istio-system".to_owned(), "kube-system".to_owned()].into(),
            agent_namespace: "istio-system".to_owned(),
            timeout: Duration::from_secs(5),
            failure_policy: FailurePolicy::Ignore,
        };
        assert_eq!(Config::parse(text).unwrap(), expected);
        assert_eq!(expected.socket(), PathBuf::from("/run/mesh/pluginevent.sock"));
    }

    #[test]
    fn what_is_missing_or_null_has_a_default() {
        let expected = Config {
            version: SpecVersion::V0_1_0,
            previous: None,
            run_dir: "/var/run/istio-cni".into(),
            log_level: Some(Level::Info),
            excluded_namespaces: BTreeSet::new(),
            agent_namespace: String::new(),
            timeout: Duration::from_secs(30),
            failure_policy: FailurePolicy::Fail,
        };
        for text in [
            r#"{"name": "n"}"#,
            r#"{"name": "n", "cniVersion": "", "exclude_namespaces": null, "pod_namespace": null, "prevResult": null,
                "failure_policy": null, "plugin_log_level": "loud"}"#,
        ] {
            assert_eq!(Config::parse(text.as_bytes()).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_code_of_the_specification() {
        for (text, code) in [
            ("", Code::Undecodable),
            ("[]", Code::Undecodable),
            (r#"{"name": 1}"#, Code::Undecodable),
            (
                r#"{"name": "n", "exclude_namespaces": "kube-system"}"#,
                Code::Undecodable,
            ),
            (
                r#"{"name": "n", "cniVersion": "2.0.0"}"#,
                Code::IncompatibleVersion,
            ),
            (r#"{"cniVersion": "1.0.0"}"#, Code::InvalidConfig),
            (r#"{"cniVersion": "1.0.0", "name": "-n"}"#, Code::InvalidConfig),
            (r#"{"cniVersion": "1.0.0", "name": "n/m"}"#, Code::InvalidConfig),
            (
                r#"{"name": "n", "failure_policy": "ignore"}"#,
                Code::InvalidConfig,
            ),
        ] {
            let error = CniError::from(Config::parse(text.as_bytes()).unwrap_err());
            assert_eq!(error.code, code, "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn garbage_is_refused_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Config::parse(&text).is_err());
        }
    }
}
