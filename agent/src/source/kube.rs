//! Facts from the API server: this node, its pods and all namespaces. What was told stays while the server is away.

use agent_core::facts::Fact;
use agent_core::ids::NodeRef;
use kube::Api;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::backoff::Backoff;
use super::connection::Connection;
use super::list_watch::{Event, ListWatch};
use super::own_node::NodeObject;
use super::telling::{NAMESPACES, NODES, NamespaceObject, PODS, PodObject, Telling};

/// Objects between the watches and the one who tells.
const ON_THE_WAY: usize = 16;

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
        let mut telling = Telling::of(self.node.clone());
        let Some(client) = self.connect(&mut telling, &facts).await else {
            return;
        };
        let (pod_events, pods) = mpsc::channel(ON_THE_WAY);
        let (namespace_events, namespaces) = mpsc::channel(ON_THE_WAY);
        let (node_events, node) = mpsc::channel(ON_THE_WAY);
        let pod_watch = ListWatch {
            api: Api::all(client.clone()),
            resource: PODS,
            fields: Some(format!("spec.nodeName={}", self.node.name)),
        };
        let namespace_watch = ListWatch {
            api: Api::all(client.clone()),
            resource: NAMESPACES,
            fields: None,
        };
        let node_watch = ListWatch {
            api: Api::all(client),
            resource: NODES,
            fields: Some(format!("metadata.name={}", self.node.name)),
        };
        let watches = Watches {
            pods,
            namespaces,
            node,
        };
        tokio::select! {
            () = pod_watch.run(pod_events) => {}
            () = namespace_watch.run(namespace_events) => {}
            () = node_watch.run(node_events) => {}
            () = tell(telling, watches, &facts) => {}
            () = facts.closed() => {}
        }
    }

    /// The client, once there is one; `None` when nobody listens any more.
    async fn connect(&self, telling: &mut Telling, facts: &mpsc::Sender<Fact>) -> Option<kube::Client> {
        let mut backoff = Backoff::default();
        loop {
            let error = match self.connection.client().await {
                Ok(client) => return Some(client),
                Err(error) => error,
            };
            send(facts, telling.no_access(error.to_string())).await.ok()?;
            tokio::select! {
                () = sleep(backoff.failed()) => {}
                () = facts.closed() => return None,
            }
        }
    }
}

/// What the three watches see.
struct Watches {
    pods: mpsc::Receiver<Event<PodObject>>,
    namespaces: mpsc::Receiver<Event<NamespaceObject>>,
    node: mpsc::Receiver<Event<NodeObject>>,
}

/// Turns what the watches see into facts until nobody listens.
async fn tell(mut telling: Telling, mut watches: Watches, facts: &mpsc::Sender<Fact>) {
    loop {
        let news = tokio::select! {
            Some(event) = watches.pods.recv() => telling.pods(event),
            Some(event) = watches.namespaces.recv() => telling.namespaces(event),
            Some(event) = watches.node.recv() => telling.node(event),
            else => return,
        };
        if send(facts, news).await.is_err() {
            return;
        }
    }
}

async fn send(facts: &mpsc::Sender<Fact>, news: Vec<Fact>) -> Result<(), mpsc::error::SendError<Fact>> {
    for fact in news {
        facts.send(fact).await?;
    }
    Ok(())
}
