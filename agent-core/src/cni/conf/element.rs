//! Our plugin's own part of a configuration, with the keys of Istio's plugin (and one of ours).

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};

use crate::cni::policy::FailurePolicy;
use crate::selector::EnablementSelector;

/// Network name of a configuration that is ours alone. Multus finds it by this name, from a NetworkAttachmentDefinition
/// of Istio's chart.
const NAME: &str = "istio-cni";
/// Version of a configuration that we begin.
pub(super) const VERSION: &str = "0.3.1";

/// The `type` that our plugin is called by: the name of its binary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PluginType {
    /// `meshgate-cni`.
    #[default]
    Meshgate,
    /// `istio-cni`: Istio's agent, put back in our place, finds its plugin in the configuration already.
    Istio,
}

impl PluginType {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Meshgate, Self::Istio];

    /// The type, which is also the name of the binary.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Meshgate => "meshgate-cni",
            Self::Istio => "istio-cni",
        }
    }

    /// Whether a plugin of this type is ours: of either name, since we are there in Istio's place.
    #[must_use]
    pub fn is_ours(name: &str) -> bool {
        Self::ALL.iter().any(|plugin| plugin.as_str() == name)
    }
}

/// What the plugin is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Element {
    /// Under which type.
    pub plugin: PluginType,
    /// `plugin_log_level`.
    pub log_level: String,
    /// `cni_agent_run_dir`: folder of the agent's socket, as the node sees it.
    pub run_dir: PathBuf,
    /// `exclude_namespaces`.
    pub excluded_namespaces: Vec<String>,
    /// `pod_namespace`: where the agent runs.
    pub pod_namespace: String,
    /// `failure_policy`.
    pub failure_policy: FailurePolicy,
    /// `enablement_selectors`, which only Istio's plugin reads.
    pub selectors: Vec<EnablementSelector>,
    /// `native_nftables`, which only Istio's plugin reads.
    pub native_nftables: bool,
}

/// The keys in the order of Istio's agent.
#[derive(Serialize)]
struct Keys<'a> {
    #[serde(rename = "cniVersion", skip_serializing_if = "Option::is_none")]
    cni_version: Option<&'static str>,
    name: &'static str,
    r#type: &'static str,
    ipam: Value,
    dns: Value,
    plugin_log_level: &'a str,
    cni_agent_run_dir: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ambient_enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enablement_selectors: Option<&'a [EnablementSelector]>,
    /// null if there are none, as Go prints it.
    exclude_namespaces: Option<&'a [String]>,
    pod_namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    native_nftables: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enable_ambient_detection_retry: Option<bool>,
    failure_policy: &'static str,
}

impl Element {
    fn keys(&self, cni_version: Option<&'static str>) -> Keys<'_> {
        let only_istio = self.plugin == PluginType::Istio;
        let excluded = self.excluded_namespaces.as_slice();
        Keys {
            cni_version,
            name: NAME,
            r#type: self.plugin.as_str(),
            ipam: json!({}),
            dns: json!({}),
            plugin_log_level: &self.log_level,
            cni_agent_run_dir: self.run_dir.display().to_string(),
            ambient_enabled: only_istio.then_some(true),
            enablement_selectors: only_istio.then_some(&self.selectors),
            exclude_namespaces: (!excluded.is_empty()).then_some(excluded),
            pod_namespace: &self.pod_namespace,
            native_nftables: only_istio.then_some(self.native_nftables),
            // Istio's plugin then fails closed, as ours does.
            enable_ambient_detection_retry: only_istio.then_some(true),
            failure_policy: self.failure_policy.as_str(),
        }
    }

    /// As one of the plugins of a list.
    #[must_use]
    pub fn in_list(&self) -> Value {
        json!(self.keys(None))
    }

    /// As a configuration of its own.
    #[must_use]
    pub fn alone(&self) -> Value {
        json!(self.keys(Some(VERSION)))
    }

    /// The text of a configuration of its own.
    #[must_use]
    pub fn alone_text(&self) -> String {
        pretty(&self.keys(Some(VERSION)))
    }
}

/// Indented by two spaces, with a last end of line.
fn pretty(value: &impl Serialize) -> String {
    // Texts, numbers and maps with texts as keys: nothing here can fail to be JSON.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}
