//! The enrolment rule: whether a pod is captured, and how its annotations want it.

use std::collections::BTreeSet;
use std::fmt;

use crate::facts::{BadObject, NamespaceFacts, Phase, PodFacts};
use crate::labels::{
    BYPASS_INBOUND_CAPTURE, CLIENT_ADDRESS, CLIENT_ADDRESS_SOCKET, CLIENT_ADDRESS_WIRE, DNS_CAPTURE,
    REROUTE_VIRTUAL_INTERFACES, SIDECAR_STATUS,
};
use crate::selector::{EnablementSelector, istio_defaults};

/// Characters of a value that means nothing which are told: anybody may write 256 KiB there.
const MOST_TOLD: usize = 60;

/// What the node's configuration says about enrolment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A pod is captured when one of these selects it (`AMBIENT_ENABLEMENT_SELECTOR`).
    pub selectors: Vec<EnablementSelector>,
    /// Namespaces whose pods are never captured (`EXCLUDE_NAMESPACES`).
    pub excluded_namespaces: BTreeSet<String>,
    /// Whether DNS is captured in pods that do not say (`AMBIENT_DNS_CAPTURE`).
    pub dns_capture: bool,
}

impl Default for Rules {
    /// What Istio's Helm chart sets.
    fn default() -> Self {
        Self {
            selectors: istio_defaults(),
            excluded_namespaces: ["kube-system".to_owned()].into(),
            dns_capture: true,
        }
    }
}

/// Whether a pod is captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Yes, and how.
    Capture(Options),
    /// No, and why.
    Outside(Reason),
}

/// How a pod is captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Connections from outside are captured.
    pub inbound: bool,
    /// DNS questions go to the proxy.
    pub dns_capture: bool,
    /// Interfaces in the pod whose connections are outbound ones, because other machines live behind them.
    pub virtual_interfaces: Vec<String>,
    /// The application sees the client's address in the packets (`wire` mode).
    pub wire: bool,
    /// Annotations that were ignored.
    pub warnings: Vec<BadObject>,
}

/// Why a pod is not captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// It has no network namespace of its own.
    HostNetwork,
    /// Its namespace is excluded by the node's configuration.
    ExcludedNamespace,
    /// A sidecar captures it already.
    HasSidecar,
    /// Its containers have ended; its address may belong to another pod.
    Terminal,
    /// The labels of its namespace have not been told yet.
    NamespaceUnknown,
    /// Neither its labels nor those of its namespace ask for it.
    NoSelectorMatches,
    /// It would be captured, but has no address yet.
    NoAddress,
}

impl Reason {
    /// A name that does not change between versions, for JSON and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HostNetwork => "host_network",
            Self::ExcludedNamespace => "excluded_namespace",
            Self::HasSidecar => "has_sidecar",
            Self::Terminal => "terminal",
            Self::NamespaceUnknown => "namespace_unknown",
            Self::NoSelectorMatches => "no_selector_matches",
            Self::NoAddress => "no_address",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HostNetwork => "uses the node's network (hostNetwork), which is never captured",
            Self::ExcludedNamespace => "is in a namespace that this node's configuration excludes",
            Self::HasSidecar => "has a sidecar (annotation sidecar.istio.io/status), which captures it",
            Self::Terminal => "has ended (phase Succeeded or Failed)",
            Self::NamespaceUnknown => "waits for the labels of its namespace, which are not known yet",
            Self::NoSelectorMatches => {
                "no enablement selector matches: its labels or those of its namespace do not ask for it, or its own say none \
                 (istio.io/dataplane-mode)"
            }
            Self::NoAddress => "waits for an address",
        })
    }
}

/// Decides whether and how a pod is captured. The first rule that applies decides, from what can never be captured over
/// what is configured to what may change soon; [`Reason`] lists them in this order.
#[must_use]
pub fn decide(pod: &PodFacts, namespace: Option<&NamespaceFacts>, rules: &Rules) -> Decision {
    match why_outside(pod, namespace, rules) {
        Some(reason) => Decision::Outside(reason),
        None => Decision::Capture(options(pod, rules)),
    }
}

fn why_outside(pod: &PodFacts, namespace: Option<&NamespaceFacts>, rules: &Rules) -> Option<Reason> {
    if pod.host_network {
        return Some(Reason::HostNetwork);
    }
    if rules.excluded_namespaces.contains(&pod.pod.namespace) {
        return Some(Reason::ExcludedNamespace);
    }
    if pod.annotations.contains_key(SIDECAR_STATUS) {
        return Some(Reason::HasSidecar);
    }
    if pod.phase == Phase::Terminal {
        return Some(Reason::Terminal);
    }
    let Some(namespace) = namespace else {
        return Some(Reason::NamespaceUnknown);
    };
    if !rules
        .selectors
        .iter()
        .any(|selector| selector.matches(&pod.labels, &namespace.labels))
    {
        return Some(Reason::NoSelectorMatches);
    }
    pod.ips.is_empty().then_some(Reason::NoAddress)
}

fn options(pod: &PodFacts, rules: &Rules) -> Options {
    let mut annotations = Annotations {
        pod,
        warnings: Vec::new(),
    };
    Options {
        inbound: !annotations.boolean(BYPASS_INBOUND_CAPTURE, false),
        dns_capture: annotations.boolean(DNS_CAPTURE, rules.dns_capture),
        virtual_interfaces: annotations.list(REROUTE_VIRTUAL_INTERFACES),
        wire: annotations.wire(),
        warnings: annotations.warnings,
    }
}

/// Reads annotations of one pod; those that mean nothing are ignored with a warning, as in Istio.
struct Annotations<'a> {
    pod: &'a PodFacts,
    warnings: Vec<BadObject>,
}

impl Annotations<'_> {
    fn boolean(&mut self, name: &str, default: bool) -> bool {
        let Some(text) = self.pod.annotations.get(name) else {
            return default;
        };
        parse_bool(text).unwrap_or_else(|| {
            self.warn(
                name,
                text,
                "is not a boolean",
                format!("write true or false; {default} holds until then"),
            );
            default
        })
    }

    fn list(&self, name: &str) -> Vec<String> {
        let text = self.pod.annotations.get(name).map_or("", String::as_str);
        text.split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(str::to_owned)
            .collect()
    }

    fn wire(&mut self) -> bool {
        match self.pod.annotations.get(CLIENT_ADDRESS).map(String::as_str) {
            None | Some(CLIENT_ADDRESS_SOCKET) => false,
            Some(CLIENT_ADDRESS_WIRE) => true,
            Some(text) => {
                let fix = "write socket or wire; socket holds until then".to_owned();
                self.warn(CLIENT_ADDRESS, text, "is neither socket nor wire", fix);
                false
            }
        }
    }

    fn warn(&mut self, name: &str, text: &str, problem: &str, fix: String) {
        self.warnings.push(BadObject {
            object: format!("pod {}/{}", self.pod.pod.namespace, self.pod.pod.name),
            problem: format!("annotation {name} is ignored: {:?} {problem}", shortened(text)),
            fix,
        });
    }
}

/// A value to be told: its beginning says enough of one that means nothing.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_TOLD) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// What Go's `strconv.ParseBool` takes, which Istio uses for annotations.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Some(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
