//! Facts from the API server: the pods of this node and all namespaces. What was told stays while the server is away.

use agent_core::facts::{BadObject, Fact, NamespaceFacts, PodFacts};
use agent_core::ids::{ClusterId, NodeRef};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::{Api, Resource};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::backoff::Backoff;
use super::connection::Connection;
use super::convert;
use super::health::Health;
use super::list_watch::{Event, ListWatch};
use super::problem::Problem;
use super::told::{Subject, Told, Troubles};

/// Objects between the watches and the one who tells.
const ON_THE_WAY: usize = 16;

const PODS: &str = "pods";
const NAMESPACES: &str = "namespaces";

/// A pod as it comes, also one that does not decode: it must not hide the others of a list.
type PodObject = DeserializeGuard<Pod>;
/// Of namespaces only the metadata is asked for.
type NamespaceObject = PartialObjectMeta<Namespace>;

/// The source `kube`.
pub struct KubeSource {
    connection: Connection,
    node: NodeRef,
}

impl KubeSource {
    /// Facts about this node from the API server behind `connection`.
    #[must_use]
    pub fn new(connection: Connection, node: NodeRef) -> Self {
        Self { connection, node }
    }

    /// Tells facts until nobody listens. Every problem becomes [`Fact::SourceState`] and is tried again, also the lack
    /// of a kubeconfig.
    pub async fn run(self, facts: mpsc::Sender<Fact>) {
        let mut health = Health::of(&[PODS, NAMESPACES]);
        let Some(client) = self.connect(&mut health, &facts).await else {
            return;
        };
        let (pod_events, pods) = mpsc::channel(ON_THE_WAY);
        let (namespace_events, namespaces) = mpsc::channel(ON_THE_WAY);
        let fields = Some(format!("spec.nodeName={}", self.node.name));
        let pod_watch = ListWatch {
            api: Api::all(client.clone()),
            resource: PODS,
            fields,
        };
        let namespace_watch = ListWatch {
            api: Api::all(client),
            resource: NAMESPACES,
            fields: None,
        };
        tokio::select! {
            () = pod_watch.run(pod_events) => {}
            () = namespace_watch.run(namespace_events) => {}
            () = self.tell(health, pods, namespaces, &facts) => {}
            () = facts.closed() => {}
        }
    }

    /// Turns what the watches see into facts until nobody listens.
    async fn tell(
        &self,
        mut health: Health,
        mut pods: mpsc::Receiver<Event<PodObject>>,
        mut namespaces: mpsc::Receiver<Event<NamespaceObject>>,
        facts: &mpsc::Sender<Fact>,
    ) {
        let cluster = &self.node.cluster;
        let mut pod_teller = Teller::<PodFacts>::default();
        let mut namespace_teller = Teller::<NamespaceFacts>::default();
        loop {
            let news = tokio::select! {
                Some(event) = pods.recv() => pod_teller
                    .told(event, |pod| pod_of(cluster, pod))
                    .unwrap_or_else(|problem| state(&mut health, PODS, problem)),
                Some(event) = namespaces.recv() => namespace_teller
                    .told(event, |namespace| namespace_of(cluster, namespace))
                    .unwrap_or_else(|problem| state(&mut health, NAMESPACES, problem)),
                else => return,
            };
            if send(facts, news).await.is_err() {
                return;
            }
        }
    }

    /// The client, once there is one; `None` when nobody listens any more.
    async fn connect(&self, health: &mut Health, facts: &mpsc::Sender<Fact>) -> Option<kube::Client> {
        let mut backoff = Backoff::default();
        loop {
            let error = match self.connection.client().await {
                Ok(client) => return Some(client),
                Err(error) => error,
            };
            send(
                facts,
                state(health, PODS, Some(Problem::NoAccess(error.to_string()))),
            )
            .await
            .ok()?;
            tokio::select! {
                () = sleep(backoff.failed()) => {}
                () = facts.closed() => return None,
            }
        }
    }
}

fn state(health: &mut Health, watched: &'static str, problem: Option<Problem>) -> Vec<Fact> {
    health
        .report(watched, problem)
        .map(Fact::SourceState)
        .into_iter()
        .collect()
}

async fn send(facts: &mpsc::Sender<Fact>, news: Vec<Fact>) -> Result<(), mpsc::error::SendError<Fact>> {
    for fact in news {
        facts.send(fact).await?;
    }
    Ok(())
}

/// An object as facts, or why not.
#[derive(Debug, PartialEq)]
struct Converted<S> {
    /// What it is called in messages.
    object: String,
    /// Its key among its kind, also when it is bad.
    key: String,
    facts: Result<S, BadObject>,
}

fn pod_of(cluster: &ClusterId, object: &PodObject) -> Converted<PodFacts> {
    let name = convert::pod_object(object.meta());
    let facts = match &object.0 {
        Ok(pod) => convert::pod(cluster, pod),
        Err(invalid) => Err(BadObject {
            object: name.clone(),
            problem: format!("does not decode: {}", invalid.error),
            fix: "look at it with kubectl get pod -o yaml; the agent may be too old for this API server"
                .into(),
        }),
    };
    Converted {
        object: name,
        key: object.meta().uid.clone().unwrap_or_default(),
        facts,
    }
}

fn namespace_of(cluster: &ClusterId, object: &NamespaceObject) -> Converted<NamespaceFacts> {
    Converted {
        object: convert::namespace_object(&object.metadata),
        key: object.metadata.name.clone().unwrap_or_default(),
        facts: convert::namespace(cluster, &object.metadata),
    }
}

/// Turns the events of one kind of objects into facts.
struct Teller<S> {
    told: Told<S>,
    troubles: Troubles,
}

impl<S> Default for Teller<S> {
    fn default() -> Self {
        Self {
            told: Told::default(),
            troubles: Troubles::default(),
        }
    }
}

impl<S: Subject> Teller<S> {
    /// The facts of an event; an event about the server itself comes back as the error.
    fn told<K>(
        &mut self,
        event: Event<K>,
        convert: impl Fn(&K) -> Converted<S>,
    ) -> Result<Vec<Fact>, Option<Problem>> {
        match event {
            Event::All(objects) => Ok(self.all(objects.iter().map(convert))),
            Event::There(object) => Ok(self.there(convert(&object))),
            Event::Gone(object) => Ok(self.gone(&convert(&object))),
            Event::Problem(problem) => Err(problem),
        }
    }

    /// A bad object that was good once keeps the facts that were told last.
    fn all(&mut self, objects: impl Iterator<Item = Converted<S>>) -> Vec<Fact> {
        let mut subjects = Vec::new();
        let mut bad = Vec::new();
        for object in objects {
            match object.facts {
                Ok(subject) => subjects.push(subject),
                Err(problem) => {
                    bad.push(problem);
                    subjects.extend(self.told.last(&object.key).cloned());
                }
            }
        }
        let mut facts = self.told.list(subjects);
        facts.extend(self.troubles.only(bad));
        facts
    }

    fn there(&mut self, object: Converted<S>) -> Vec<Fact> {
        match object.facts {
            Ok(subject) => self
                .told
                .there(subject)
                .into_iter()
                .chain(self.troubles.over(&object.object))
                .collect(),
            Err(bad) => self.troubles.bad(bad).into_iter().collect(),
        }
    }

    fn gone(&mut self, object: &Converted<S>) -> Vec<Fact> {
        self.told
            .gone(&object.key)
            .into_iter()
            .chain(self.troubles.over(&object.object))
            .collect()
    }
}
