//! `ADD`: which sandboxes the agent is asked about, and what its answer, or none, means to the runtime.

use std::time::{Duration, Instant};

use agent_core::cni::args;
use agent_core::cni::config::Config;
use agent_core::cni::error::{CniError, Code};
use agent_core::cni::event;
use agent_core::cni::log::Level;
use agent_core::cni::policy::FailurePolicy;
use agent_core::cni::result::NetworkResult;
use agent_core::ids::SandboxPod;
use serde_json::Value;

use crate::http::Response;
use crate::invocation::Invocation;
use crate::log::Log;
use crate::notify;

/// Names of node agents begin so: Istio's DaemonSet, whose name Helm charts keep, and ours.
const AGENTS: [&str; 2] = ["istio-cni-node-", "meshgate-"];
/// What Istio's agent says of a pod that is not to be captured: an error to it, because its own plugin asks only about
/// others. Ours asks about all, and takes it for what it is.
const OUTSIDE: &str = "is unexpectedly not eligible for ambient enrollment";
/// An answer that takes longer is worth a line in the log.
const LONG: Duration = Duration::from_secs(1);

/// Carries out `ADD`; returns the result of the plugins before, to which we add nothing.
///
/// # Errors
/// When the pod is not to start now: the agent does not answer, or says so.
pub(crate) fn add(invocation: &Invocation, config: &Config, log: &mut Log) -> Result<Value, CniError> {
    let previous = config.previous.as_ref().map(NetworkResult::parse).transpose()?;
    let previous = previous.unwrap_or_default();
    let pod = args::parse(&invocation.args)?;
    if let Some(pod) = &pod {
        log.about(pod);
    }
    match pod_to_ask_about(config, pod.as_ref()) {
        None => log.say(Level::Debug, "the pod passes without the agent"),
        Some(pod) => {
            let body = event::encode(pod, &invocation.netns, &previous.ips);
            ask(config, pod, &body, log)?;
        }
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

/// Asks the agent, and says in the log how that went.
fn ask(config: &Config, pod: &SandboxPod, body: &str, log: &mut Log) -> Result<(), CniError> {
    let start = Instant::now();
    let answer = notify::post(&config.socket(), config.timeout, event::PATH, body);
    let verdict = match answer {
        Ok(answer) => judge(pod, answer),
        Err(error) => Verdict::Undecided(try_again(pod, format!("{error} {}", closed(config)))),
    };
    let took = start.elapsed();
    match verdict {
        Verdict::Passes => {
            let level = if took < LONG { Level::Debug } else { Level::Info };
            log.say(
                level,
                format!("the agent lets the pod through after {} ms", took.as_millis()),
            );
            Ok(())
        }
        Verdict::Undecided(error) if config.failure_policy == FailurePolicy::Ignore => {
            log.say(
                Level::Warn,
                format!(
                    "the pod starts OUTSIDE THE MESH, because failure_policy is Ignore: {}",
                    error.details
                ),
            );
            Ok(())
        }
        Verdict::Undecided(error) | Verdict::Fails(error) => Err(error),
    }
}

/// What the failure policy has to do with an agent that does not answer.
fn closed(config: &Config) -> &'static str {
    match config.failure_policy {
        FailurePolicy::Fail => {
            "Until it is, no pod starts here, so that none runs outside the mesh unseen (failure_policy Fail)"
        }
        FailurePolicy::Ignore => "The agent captures the pod when it hears of it",
    }
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// The pod starts.
    Passes,
    /// The agent says that it must not start now.
    Fails(CniError),
    /// The agent did not say anything about the pod: the failure policy decides.
    Undecided(CniError),
}

/// What the agent's answer means.
fn judge(pod: &SandboxPod, answer: Response) -> Verdict {
    match answer.status {
        200 => Verdict::Passes,
        500 if answer.text.contains(OUTSIDE) => Verdict::Passes,
        500.. => Verdict::Fails(try_again(pod, answer.text)),
        status => Verdict::Undecided(CniError::new(
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
    fn each_answer_has_its_meaning() {
        for (status, text, meaning) in [
            (200, "", "passes"),
            (204, "why", "undecided 100"),
            (400, "why", "undecided 100"),
            (404, "why", "undecided 100"),
            (500, "why", "fails 11"),
            (503, "why", "fails 11"),
            (
                500,
                "pod shop/web is unexpectedly not eligible for ambient enrollment",
                "passes",
            ),
            (500, "failed to get pod shop/web: why", "fails 11"),
        ] {
            let text = text.to_owned();
            let verdict = judge(&pod("shop", "web"), Response { status, text });
            let (said, error) = match verdict {
                Verdict::Passes => ("passes".to_owned(), None),
                Verdict::Fails(error) => (format!("fails {}", error.code as u32), Some(error)),
                Verdict::Undecided(error) => (format!("undecided {}", error.code as u32), Some(error)),
            };
            assert_eq!(said, meaning, "{status}");
            assert!(
                error.is_none_or(|error| error.to_string().contains("why")),
                "{status}"
            );
        }
    }
}
