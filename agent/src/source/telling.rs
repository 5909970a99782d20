//! What the watches of the kube source say together: facts, in an order that lets no pod go by mistake. Pure.

use agent_core::facts::{BadObject, Fact, NamespaceFacts, PodFacts};
use agent_core::ids::{ClusterId, NodeRef};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Resource;
use kube::core::{DeserializeGuard, PartialObjectMeta};

use super::convert;
use super::health::Health;
use super::list_watch::Event;
use super::own_node::{NodeObject, OwnNode};
use super::problem::Problem;
use super::teller::{Converted, Teller};

/// Names of what is watched, as RBAC calls it.
pub(super) const PODS: &str = "pods";
pub(super) const NAMESPACES: &str = "namespaces";
pub(super) const NODES: &str = "nodes";

/// A pod as it comes, also one that does not decode: it must not hide the others of a list.
pub(super) type PodObject = DeserializeGuard<Pod>;
/// Of namespaces only the metadata is asked for.
pub(super) type NamespaceObject = PartialObjectMeta<Namespace>;

/// What was seen and told so far.
pub(super) struct Telling {
    cluster: ClusterId,
    health: Health,
    pods: Teller<PodFacts>,
    namespaces: Teller<NamespaceFacts>,
    node: OwnNode,
    /// What was seen of pods before the own node was. Under a wrong name no pod is listed, and the pods that are captured
    /// would be let go.
    early: Vec<Event<PodObject>>,
}

impl Telling {
    pub(super) fn of(node: NodeRef) -> Self {
        Self {
            health: Health::of(&[PODS, NAMESPACES, NODES]),
            pods: Teller::default(),
            namespaces: Teller::default(),
            node: OwnNode::new(&node.name),
            cluster: node.cluster,
            early: Vec::new(),
        }
    }

    /// There is no way to an API server, so that nothing is watched yet.
    pub(super) fn no_access(&mut self, why: String) -> Vec<Fact> {
        self.state(PODS, Some(Problem::NoAccess(why)))
    }

    pub(super) fn pods(&mut self, event: Event<PodObject>) -> Vec<Fact> {
        match event {
            Event::Problem(problem) => self.state(PODS, problem),
            event if self.node.seen() => self.pods_told(event),
            event => {
                if matches!(event, Event::All(_)) {
                    self.early.clear();
                }
                self.early.push(event);
                Vec::new()
            }
        }
    }

    fn pods_told(&mut self, event: Event<PodObject>) -> Vec<Fact> {
        let cluster = &self.cluster;
        let told = self.pods.told(event, |pod| pod_of(cluster, pod));
        told.unwrap_or_else(|problem| self.state(PODS, problem))
    }

    pub(super) fn namespaces(&mut self, event: Event<NamespaceObject>) -> Vec<Fact> {
        let cluster = &self.cluster;
        let told = self
            .namespaces
            .told(event, |namespace| namespace_of(cluster, namespace));
        told.unwrap_or_else(|problem| self.state(NAMESPACES, problem))
    }

    pub(super) fn node(&mut self, event: Event<NodeObject>) -> Vec<Fact> {
        let mut facts: Vec<Fact> = match self.node.told(event) {
            Ok(fact) => fact.into_iter().collect(),
            Err(problem) => self.state(NODES, problem),
        };
        if self.node.seen() {
            for event in std::mem::take(&mut self.early) {
                facts.extend(self.pods_told(event));
            }
        }
        facts
    }

    fn state(&mut self, watched: &'static str, problem: Option<Problem>) -> Vec<Fact> {
        self.health
            .report(watched, problem)
            .map(Fact::SourceState)
            .into_iter()
            .collect()
    }
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn telling() -> Telling {
        Telling::of(NodeRef {
            cluster: "c".into(),
            name: "n1".into(),
        })
    }

    fn pod(name: &str) -> PodObject {
        let object: Value = json!({"metadata": {"name": name, "namespace": "shop", "uid": name}});
        from_value(object).expect("a pod")
    }

    /// The facts in short.
    fn short(facts: Vec<Fact>) -> Vec<String> {
        let one = |fact| match fact {
            Fact::PodsRelist => "pods(".to_owned(),
            Fact::Pod(pod) => pod.pod.name,
            Fact::PodGone(uid) => format!("-{uid}"),
            Fact::PodsListed => ")".to_owned(),
            Fact::Bad(bad) => format!("bad {}", bad.object),
            Fact::Good { object } => format!("good {object}"),
            other => format!("{other:?}"),
        };
        facts.into_iter().map(one).collect()
    }

    #[test]
    fn pods_are_told_once_the_own_node_is_known() {
        let mut telling = telling();
        assert_eq!(short(telling.pods(Event::All(vec![pod("old")]))), [""; 0]);
        assert_eq!(
            short(telling.node(Event::All(vec![]))),
            ["bad Node n1"],
            "the name may be wrong"
        );
        assert_eq!(short(telling.pods(Event::All(vec![pod("a")]))), [""; 0]);
        assert_eq!(short(telling.pods(Event::There(pod("b")))), [""; 0]);
        assert_eq!(
            short(telling.node(Event::There(NodeObject::default()))),
            ["good Node n1", "pods(", "a", ")", "b"]
        );
        assert_eq!(short(telling.pods(Event::Gone(pod("a")))), ["-a"]);
    }

    #[test]
    fn pods_go_on_when_the_own_node_is_deleted() {
        let mut telling = telling();
        telling.node(Event::All(vec![NodeObject::default()]));
        assert_eq!(
            short(telling.node(Event::Gone(NodeObject::default()))),
            ["bad Node n1"]
        );
        assert_eq!(short(telling.pods(Event::All(vec![]))), ["pods(", ")"]);
    }

    #[test]
    fn a_problem_with_pods_is_told_before_the_own_node_is_known() {
        let problem = Problem::Unauthorized { answer: "no".into() };
        let told = telling().pods(Event::Problem(Some(problem)));
        assert!(matches!(told[..], [Fact::SourceState(_)]), "{told:?}");
    }
}
