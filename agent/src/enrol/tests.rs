//! The worker with fakes at its ports: which calls it makes, in which order, in each course of events. Time is virtual:
//! it goes on only when nothing is left to do.

use std::time::Duration;

use agent_core::catalog::Catalog;
use agent_core::enrolment::Rules;
use agent_core::entry::{NetnsCookie, PodEntry};
use agent_core::facts::{Fact, NamespaceFacts, Phase, Place, PodFacts, StringMap};
use agent_core::ids::{NamespaceRef, NodeRef, PodRef, PodUid};
use agent_core::labels::{DATAPLANE_MODE, DATAPLANE_MODE_AMBIENT, REDIRECTION, REDIRECTION_ENABLED};
use agent_core::plan::State;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::fake::{Fake, ProxyMode};
use super::{Enrolment, Handle, Ports, Report};
use crate::ports::{PortError, ProxyPeer};

mod admission;
mod enrol;
mod leave;
mod many;
mod restart;
mod rules;
mod trouble;

fn this_node() -> NodeRef {
    NodeRef {
        cluster: "Kubernetes".into(),
        name: "node-1".to_owned(),
    }
}

/// A running pod of the mesh; its UID is its name, and its address 10.0.0.1.
fn pod(name: &str) -> PodFacts {
    PodFacts {
        pod: PodRef {
            uid: name.into(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
        },
        node: this_node(),
        service_account: "default".to_owned(),
        labels: StringMap::from([(DATAPLANE_MODE.to_owned(), DATAPLANE_MODE_AMBIENT.to_owned())]),
        annotations: StringMap::new(),
        host_network: false,
        phase: Phase::Running,
        ips: vec!["10.0.0.1".parse().unwrap()],
        containers: Vec::new(),
        created: 100,
    }
}

/// The same pod with the annotation `enabled`.
fn carrying_enabled(mut pod: PodFacts) -> PodFacts {
    pod.annotations
        .insert(REDIRECTION.to_owned(), REDIRECTION_ENABLED.to_owned());
    pod
}

/// What the maps hold of [`pod`].
fn entry(name: &str, cookie: u64, enabled: bool) -> PodEntry {
    let pod = pod(name);
    PodEntry {
        pod: pod.pod,
        netns: NetnsCookie(cookie),
        network: "".into(),
        source4: pod.ips.first().copied(),
        source6: None,
        addresses: pod.ips,
        wire: false,
        dns: true,
        inbound: true,
        enabled,
    }
}

fn peer(pid: u32) -> ProxyPeer {
    ProxyPeer {
        pid,
        cgroup: format!("/kubepods/ztunnel-{pid}").into(),
    }
}

/// A node with a worker.
struct Node {
    fake: Fake,
    facts: mpsc::Sender<Fact>,
    handle: Handle,
    worker: JoinHandle<Result<(), PortError>>,
}

impl Node {
    /// The worker has started and heard nothing yet.
    fn start(fake: Fake) -> Self {
        let place = Place {
            node: this_node(),
            default_network: "".into(),
            system_namespace: "istio-system".to_owned(),
        };
        let ports = Ports {
            datapath: fake.clone(),
            proxy: fake.clone().into(),
            status: fake.clone().into(),
            finder: fake.clone(),
        };
        let (facts, receiver) = mpsc::channel(1024);
        let (worker, handle) = Enrolment::new(Catalog::new(place, Rules::default()), ports, receiver);
        Self {
            fake,
            facts,
            handle,
            worker: tokio::spawn(worker.run()),
        }
    }

    /// A node whose agent has started without pods, with a proxy that answers like this.
    async fn with_proxy(mode: ProxyMode) -> Self {
        let node = Self::start(Fake::default());
        node.list(&[]).await;
        node.fake.world().proxy = mode;
        if mode != ProxyMode::Absent {
            node.proxy_connects().await;
        }
        node.fake.take_log();
        node
    }

    async fn tell(&self, fact: Fact) {
        self.facts.send(fact).await.unwrap();
    }

    /// The source tells of a pod whose only process is in this namespace.
    async fn tell_pod_in(&self, cookie: u64, pod: PodFacts) {
        self.fake.world().netns.insert(pod.pod.uid.clone(), cookie);
        self.tell_pod(pod).await;
    }

    async fn tell_pod(&self, pod: PodFacts) {
        self.tell(Fact::Pod(Box::new(pod))).await;
        self.quiet().await;
    }

    /// The source lists the namespace and these pods.
    async fn list(&self, pods: &[PodFacts]) {
        self.list_namespaces().await;
        self.tell(Fact::PodsRelist).await;
        for pod in pods {
            self.tell(Fact::Pod(Box::new(pod.clone()))).await;
        }
        self.tell(Fact::PodsListed).await;
        self.quiet().await;
    }

    async fn list_namespaces(&self) {
        let namespace = NamespaceRef {
            cluster: this_node().cluster,
            name: "default".to_owned(),
        };
        self.tell(Fact::NamespacesRelist).await;
        self.tell(Fact::Namespace(NamespaceFacts {
            namespace,
            labels: StringMap::new(),
        }))
        .await;
        self.tell(Fact::NamespacesListed).await;
    }

    /// A proxy connects and gets through its snapshot.
    async fn proxy_connects(&self) {
        self.handle.attach_proxy(peer(1)).await.unwrap();
        self.handle.proxies(vec![peer(1)]).await.unwrap();
        self.handle.snapshot_done(Vec::new()).await.unwrap();
        self.quiet().await;
    }

    /// Waits until nothing is left to do for the moment.
    async fn quiet(&self) {
        self.pass(Duration::from_millis(1)).await;
    }

    /// Lets time pass.
    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
        assert!(!self.worker.is_finished(), "the worker has ended");
    }

    fn report(&self, name: &str) -> Option<Report> {
        self.handle.reports().borrow().get(&PodUid::from(name)).cloned()
    }

    fn state(&self, name: &str) -> Option<State> {
        self.report(name).map(|report| report.state)
    }

    /// The calls since the last question.
    #[track_caller]
    fn assert_log<const N: usize>(&self, expected: [&str; N]) {
        assert_eq!(self.fake.take_log(), expected);
    }
}
