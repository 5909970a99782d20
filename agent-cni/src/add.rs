//! `ADD`: which sandboxes the agent is asked about, and what its answer means to the runtime.

use std::time::{Duration, Instant};

use agent_core::cni::args;
use agent_core::cni::config::Config;
use agent_core::cni::error::{CniError, Code};
use agent_core::cni::event;
use agent_core::cni::result::NetworkResult;
use agent_core::ids::SandboxPod;
use serde_json::Value;

use crate::http::Response;
use crate::invocation::Invocation;
use crate::notify;

/// Names of node agents begin so: Istio's DaemonSet, whose name Helm charts keep, and ours.
const AGENTS: [&str; 2] = ["istio-cni-node-", "meshgate-"];

/// Carries out `ADD`; returns the result of the plugins before, to which we add nothing.
///
/// # Errors
/// When the pod is not to start now: the agent does not answer, or says so.
pub(crate) fn add(invocation: &Invocation, config: &Config) -> Result<Value, CniError> {
    let start = Instant::now();
    let previous = config.previous.as_ref().map(NetworkResult::parse).transpose()?;
    let previous = previous.unwrap_or_default();
    let pod = args::parse(&invocation.args)?;
    let outcome = match pod_to_ask_about(config, pod.as_ref()) {
        None => "let through without the agent",
        Some(pod) => {
            let body = event::encode(pod, &invocation.netns, &previous.ips);
            let answer = notify::post(&config.socket(), config.timeout, event::PATH, &body)
                .map_err(|error| try_again(pod, error.to_string()))?;
            judge(pod, answer)?;
            "let through by the agent"
        }
    };
    if config.debug {
        report(pod.as_ref(), outcome, start.elapsed());
    }
    Ok(previous.print(config.version))
}

/// The pod, unless it passes without the agent: what is no pod, what is configured to pass, and the agent itself, which
/// could never start if it were asked about its own pod.
fn pod_to_ask_about<'a>(config: &Config, pod: Option<&'a SandboxPod>) -> Option<&'a SandboxPod> {
    let pod = pod?;
    let is_agent =
        pod.namespace == config.agent_namespace && AGENTS.iter().any(|prefix| pod.name.starts_with(prefix));
    let passes = is_agent || config.excluded_namespaces.contains(&pod.namespace);
    (!passes).then_some(pod)
}

/// What the agent's answer means.
fn judge(pod: &SandboxPod, answer: Response) -> Result<(), CniError> {
    match answer.status {
        200 => Ok(()),
        500.. => Err(try_again(pod, answer.text)),
        status => Err(CniError::new(
            Code::AgentRefuses,
            message(pod),
            format!(
                "the node agent refuses the plugin's event with status {status} ({}): are both of the same version?",
                answer.text
            ),
        )),
    }
}

fn try_again(pod: &SandboxPod, details: String) -> CniError {
    CniError::new(Code::TryAgainLater, message(pod), details)
}

fn message(pod: &SandboxPod) -> String {
    format!("pod {pod} cannot join the mesh now")
}

/// One line for the runtime's log, which takes standard error.
fn report(pod: Option<&SandboxPod>, outcome: &str, took: Duration) {
    let pod = pod.map_or_else(|| "a sandbox of no pod".to_owned(), ToString::to_string);
    eprintln!("meshgate-cni: {pod}: {outcome} in {} ms", took.as_millis());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let text =
            br#"{"name": "n", "pod_namespace": "istio-system", "exclude_namespaces": ["kube-system"]}"#;
        Config::parse(text).unwrap()
    }

    fn pod(namespace: &str, name: &str) -> SandboxPod {
        SandboxPod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: None,
        }
    }

    #[test]
    fn the_agent_is_asked_about_all_pods_but_its_own_and_those_of_excluded_namespaces() {
        for (namespace, name, is_asked) in [
            ("shop", "web-0", true),
            ("kube-system", "coredns-1", false),
            ("istio-system", "istio-cni-node-x2", false),
            ("istio-system", "meshgate-x2", false),
            ("istio-system", "ztunnel-x2", true),
            ("shop", "istio-cni-node-x2", true),
            ("shop", "meshgate-x2", true),
        ] {
            let pod = pod(namespace, name);
            assert_eq!(
                pod_to_ask_about(&config(), Some(&pod)).is_some(),
                is_asked,
                "{pod}"
            );
        }
        assert_eq!(pod_to_ask_about(&config(), None), None);
    }

    #[test]
    fn only_200_lets_the_pod_go_on() {
        for (status, code) in [
            (200, None),
            (204, Some(Code::AgentRefuses)),
            (400, Some(Code::AgentRefuses)),
            (404, Some(Code::AgentRefuses)),
            (500, Some(Code::TryAgainLater)),
            (503, Some(Code::TryAgainLater)),
        ] {
            let text = "why".to_owned();
            let judged = judge(&pod("shop", "web"), Response { status, text });
            assert_eq!(judged.as_ref().err().map(|error| error.code), code, "{status}");
            if let Err(error) = judged {
                assert!(error.to_string().contains("why"), "{error}");
            }
        }
    }
}
