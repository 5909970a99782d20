//! Asks the API server for the DaemonSet that this agent belongs to, and for the node as the scheduler sees it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_core::departure::{Node, NodeSelector, Owner, Scheduling};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1;
use kube::Api;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use tokio::time::{sleep, timeout};

use super::connection::Connection;
use super::problem::Problem;

/// How long an answer may take. With all attempts and pauses well below the 30 s that Kubernetes gives a pod to end.
const PATIENCE: Duration = Duration::from_secs(3);
/// Attempts, when there is no answer.
const ATTEMPTS: usize = 3;
/// Pause between them.
const PAUSE: Duration = Duration::from_secs(1);

/// The agent's DaemonSet at the API server.
pub struct OwnDaemonSet {
    connection: Connection,
    namespace: String,
    name: String,
    node: String,
    /// It was answered once: a refusal later means that the agent's role was taken away.
    could_ask: AtomicBool,
}

impl OwnDaemonSet {
    /// The DaemonSet with this name, which runs on this node.
    #[must_use]
    pub fn new(connection: Connection, namespace: &str, name: &str, node: &str) -> Self {
        Self {
            connection,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            node: node.to_owned(),
            could_ask: AtomicBool::new(false),
        }
    }

    /// Finds out whether the agent may ask at all, while there is time to tell somebody.
    pub async fn may_ask(&self) -> Result<(), Problem> {
        match timeout(PATIENCE, self.once()).await {
            Ok(Err(problem)) => Err(problem),
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    }

    /// Asks, again if there is no answer.
    pub async fn ask(&self) -> Owner {
        let mut cause = String::new();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                sleep(PAUSE).await;
            }
            match timeout(PATIENCE, self.once()).await {
                Ok(Ok(owner)) => return owner,
                Ok(Err(Problem::Unauthorized { .. })) => return Owner::Unauthorized,
                Ok(Err(Problem::Forbidden { .. })) if self.could_ask.load(Ordering::Relaxed) => {
                    return Owner::RoleGone;
                }
                Ok(Err(problem @ Problem::Forbidden { .. })) => return Owner::Unknown(problem.to_string()),
                Ok(Err(problem)) => cause = problem.to_string(),
                Err(_) => cause = format!("no answer within {} s", PATIENCE.as_secs()),
            }
        }
        Owner::Unknown(cause)
    }

    async fn once(&self) -> Result<Owner, Problem> {
        let client = self.connection.client().await;
        let client = client.map_err(|error| Problem::NoAccess(error.to_string()))?;
        let sets: Api<DaemonSet> = Api::namespaced(client.clone(), &self.namespace);
        let found = sets.get_opt(&self.name).await;
        let found = found.map_err(|error| Problem::of(&error, "get", "daemonsets"))?;
        self.could_ask.store(true, Ordering::Relaxed);
        match found {
            None => Ok(Owner::NotFound),
            Some(set) if set.metadata.deletion_timestamp.is_some() => Ok(Owner::Deleting),
            Some(set) => Ok(Owner::Present(
                Box::new(scheduling(set)),
                self.node(client).await?,
            )),
        }
    }

    /// The node, by a list: the agent has that right already.
    async fn node(&self, client: kube::Client) -> Result<Option<Node>, Problem> {
        let nodes: Api<PartialObjectMeta<v1::Node>> = Api::all(client);
        let only = ListParams::default().fields(&format!("metadata.name={}", self.node));
        let found = nodes.list(&only).await;
        let found = found.map_err(|error| Problem::of(&error, "list", "nodes"))?;
        Ok(found.items.into_iter().next().map(|node| Node {
            name: self.node.clone(),
            labels: node.metadata.labels.unwrap_or_default(),
        }))
    }
}

/// Where the pods of a DaemonSet may run. An affinity that cannot be read wants every node: the plugin stays.
fn scheduling(set: DaemonSet) -> Scheduling {
    let pod = set.spec.and_then(|spec| spec.template.spec).unwrap_or_default();
    let node_affinity = pod.affinity.and_then(|affinity| affinity.node_affinity);
    let required =
        node_affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution);
    let read = |selector| serde_json::from_value::<NodeSelector>(serde_json::to_value(selector).ok()?).ok();
    Scheduling {
        node_selector: pod.node_selector.unwrap_or_default(),
        required: required.and_then(read),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selector_and_required_affinity_are_read() {
        let set = json!({"metadata": {"name": "istio-cni-node"}, "spec": {
            "selector": {}, "template": {"spec": {
                "containers": [],
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "mesh", "operator": "In", "values": ["yes"]}]}
                ]}}}
            }}
        }});
        let scheduling = scheduling(serde_json::from_value(set).expect("a DaemonSet"));
        let node = |mesh: &str| Node {
            name: "node-a".to_owned(),
            labels: [("kubernetes.io/os", "linux"), ("mesh", mesh)]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        };
        assert!(scheduling.wants(&node("yes")));
        assert!(!scheduling.wants(&node("no")));
    }
}
