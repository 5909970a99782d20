//! Pods that come by the CNI plugin, before they have a process.

use agent_core::enrolment::Reason;
use agent_core::facts::SourceState;
use agent_core::ids::SandboxPod;
use tokio::time::Instant;

use super::*;
use crate::enrol::fake::netns;
use crate::enrol::{Admission, AdmissionError, Patience, Sandbox};

const PATIENCE: Patience = Patience {
    known: Duration::from_secs(2),
    served: Duration::from_secs(4),
};

/// The sandbox of a pod, with the pod's addresses.
fn sandbox(facts: &PodFacts, cookie: u64) -> Sandbox {
    Sandbox {
        pod: SandboxPod {
            namespace: facts.pod.namespace.clone(),
            name: facts.pod.name.clone(),
            uid: None,
        },
        addresses: facts.ips.clone(),
        netns: netns(cookie),
    }
}

/// The pod as the source knows it while its sandbox is made.
fn without_addresses(facts: PodFacts) -> PodFacts {
    PodFacts {
        phase: Phase::Pending,
        ips: Vec::new(),
        ..facts
    }
}

impl Node {
    async fn admit(&self, sandbox: Sandbox) -> Result<Admission, AdmissionError> {
        self.handle.admit(sandbox, PATIENCE).await
    }

    /// The source knows a pod, and its sandbox comes.
    async fn tell_and_admit(&self, facts: PodFacts, cookie: u64) -> Result<Admission, AdmissionError> {
        let sandbox = sandbox(&facts, cookie);
        self.tell_pod(without_addresses(facts)).await;
        self.admit(sandbox).await
    }

    /// An admission that goes on while the test does.
    fn start_admission(&self, sandbox: Sandbox) -> JoinHandle<Result<Admission, AdmissionError>> {
        let handle = self.handle.clone();
        tokio::spawn(async move { handle.admit(sandbox, PATIENCE).await })
    }
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_is_admitted_when_it_is_captured_and_served() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    let admitted = node.tell_and_admit(pod("a"), 7).await;
    assert_eq!(admitted, Ok(Admission::Captured));
    node.quiet().await;
    node.assert_log(["attach a 7", "add a", "capture a enabled", "annotate a Enabled"]);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_fails_without_a_proxy_and_the_next_attempt_succeeds() {
    let node = Node::with_proxy(ProxyMode::Absent).await;
    let start = Instant::now();
    let error = node.tell_and_admit(pod("a"), 7).await.unwrap_err();
    assert!(error.to_string().contains("no proxy is connected"), "{error}");
    assert!(start.elapsed() >= PATIENCE.served, "a proxy may have come");
    node.fake.world().proxy = ProxyMode::Accepts;
    node.proxy_connects().await;
    node.fake.take_log();
    assert_eq!(node.admit(sandbox(&pod("a"), 8)).await, Ok(Admission::Captured));
    node.quiet().await;
    node.assert_log([
        "release a",
        "del a",
        "detach 7",
        "attach a 8",
        "add a",
        "capture a enabled",
        "annotate a Enabled",
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_waits_for_a_proxy_that_restarts() {
    let node = Node::with_proxy(ProxyMode::Absent).await;
    node.tell_pod(without_addresses(pod("a"))).await;
    let admission = node.start_admission(sandbox(&pod("a"), 7));
    node.pass(Duration::from_secs(1)).await;
    assert!(!admission.is_finished());
    node.fake.world().proxy = ProxyMode::Accepts;
    node.proxy_connects().await;
    assert_eq!(admission.await.unwrap(), Ok(Admission::Captured));
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_outside_the_mesh_is_let_through() {
    let node = Node::with_proxy(ProxyMode::Absent).await;
    let outsider = PodFacts {
        labels: StringMap::new(),
        ..pod("a")
    };
    let start = Instant::now();
    let admitted = node.tell_and_admit(outsider, 7).await;
    assert_eq!(admitted, Ok(Admission::Outside(Reason::NoSelectorMatches)));
    assert!(start.elapsed() < PATIENCE.known);
    assert_eq!(node.report("a").unwrap().netns, None, "its namespace is not held");
    node.assert_log([]);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_waits_until_the_source_tells_of_its_pod() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    let admission = node.start_admission(sandbox(&pod("a"), 7));
    node.pass(Duration::from_secs(1)).await;
    assert!(!admission.is_finished());
    node.tell_pod(without_addresses(pod("a"))).await;
    assert_eq!(admission.await.unwrap(), Ok(Admission::Captured));
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_of_a_pod_that_is_not_on_this_node_is_refused_in_time() {
    let node = Node::with_proxy(ProxyMode::Absent).await;
    let mut elsewhere = pod("a");
    elsewhere.node.name = "node-2".to_owned();
    let start = Instant::now();
    let error = node.tell_and_admit(elsewhere, 7).await.unwrap_err();
    assert_undecided(&error, "has not told of the pod");
    assert!(start.elapsed() < PATIENCE.served);
}

#[tokio::test(start_paused = true)]
async fn what_keeps_the_source_from_telling_is_told_to_the_sandbox() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    let problem = "API server cannot be reached: connection refused; check that it runs".to_owned();
    node.tell(Fact::SourceState(SourceState::Stale { problem })).await;
    let error = node.admit(sandbox(&pod("a"), 7)).await.unwrap_err();
    assert_undecided(
        &error,
        "API server cannot be reached: connection refused; check that it runs",
    );
    // What the source told before it became stale still counts.
    assert_eq!(node.tell_and_admit(pod("a"), 7).await, Ok(Admission::Captured));
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_whose_namespace_stays_unknown_is_undecided() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    let mut facts = pod("a");
    facts.pod.namespace = "new".to_owned();
    let error = node.tell_and_admit(facts, 7).await.unwrap_err();
    assert_undecided(&error, "the labels of its namespace");
    node.assert_log([]);
}

fn assert_undecided(error: &AdmissionError, why: &str) {
    assert!(matches!(error, AdmissionError::Undecided { .. }), "{error}");
    assert!(error.to_string().contains(why), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_of_the_mesh_without_an_address_is_refused_at_once() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    let start = Instant::now();
    assert_eq!(
        node.tell_and_admit(without_addresses(pod("a")), 7).await,
        Err(AdmissionError::NoAddress)
    );
    assert!(start.elapsed() < PATIENCE.known);
    node.assert_log([]);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_takes_too_long_is_told_what_it_waits_for() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.fake.world().slow.insert("a".into());
    let error = node.tell_and_admit(pod("a"), 7).await.unwrap_err();
    assert!(matches!(error, AdmissionError::TooSlow { .. }), "{error}");
    assert!(
        error.to_string().contains("the proxy has not answered yet"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_addresses_of_the_sandbox_hold_until_kubelet_reports_them() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.tell_and_admit(pod("a"), 7).await.unwrap();
    node.quiet().await;
    node.fake.take_log();
    let carrying = carrying_enabled(pod("a"));
    let stale = vec!["10.0.0.99".parse().unwrap()];
    for ips in [Vec::new(), stale, carrying.ips.clone()] {
        node.tell_pod(PodFacts {
            ips,
            ..carrying.clone()
        })
        .await;
    }
    node.assert_log([]);
    assert_eq!(node.report("a").unwrap().addresses, carrying.ips);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_waits_for_the_labels_of_its_namespace() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    let mut facts = pod("a");
    facts.pod.namespace = "new".to_owned();
    let sandbox = sandbox(&facts, 7);
    node.tell_pod(without_addresses(facts)).await;
    let admission = node.start_admission(sandbox);
    node.quiet().await;
    assert!(!admission.is_finished());
    let namespace = NamespaceRef {
        cluster: this_node().cluster,
        name: "new".to_owned(),
    };
    node.tell(Fact::Namespace(NamespaceFacts {
        namespace,
        labels: StringMap::new(),
    }))
    .await;
    assert_eq!(admission.await.unwrap(), Ok(Admission::Captured));
}

#[tokio::test(start_paused = true)]
async fn labels_that_change_while_the_sandbox_comes_are_not_forgotten() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    let outsider = PodFacts {
        labels: StringMap::new(),
        ..pod("a")
    };
    node.tell_pod(without_addresses(outsider)).await;
    node.tell(Fact::Pod(Box::new(without_addresses(pod("a"))))).await;
    assert_eq!(node.admit(sandbox(&pod("a"), 7)).await, Ok(Admission::Captured));
}
