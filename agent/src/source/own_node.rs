//! Whether the node that this agent calls its own is one of the cluster: a wrong name looks like a node without pods
//! otherwise. Pure.

use agent_core::facts::{BadObject, Fact};
use k8s_openapi::api::core::v1::Node;
use kube::core::PartialObjectMeta;

use super::list_watch::Event;
use super::problem::Problem;
use super::told::Troubles;

/// Of the node only the metadata is asked for.
pub(super) type NodeObject = PartialObjectMeta<Node>;

/// The own node, as a watch of objects with its name tells of it.
#[derive(Debug)]
pub(super) struct OwnNode {
    name: String,
    seen: bool,
    troubles: Troubles,
}

impl OwnNode {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            seen: false,
            troubles: Troubles::default(),
        }
    }

    /// Whether it was there once since the agent started. A node that is deleted later was right nevertheless.
    pub(super) fn seen(&self) -> bool {
        self.seen
    }

    /// The fact of an event, if it is news; an event about the server itself comes back as the error.
    pub(super) fn told(&mut self, event: Event<NodeObject>) -> Result<Option<Fact>, Option<Problem>> {
        let is_there = match event {
            Event::All(nodes) => !nodes.is_empty(),
            Event::There(_) => true,
            Event::Gone(_) => false,
            Event::Problem(problem) => return Err(problem),
        };
        Ok(if is_there {
            self.seen = true;
            self.troubles.over(&self.object())
        } else {
            self.troubles.bad(self.missing())
        })
    }

    fn object(&self) -> String {
        format!("Node {}", self.name)
    }

    fn missing(&self) -> BadObject {
        let (problem, fix) = if self.seen {
            (
                "this node was deleted from the cluster",
                "if that was meant, remove the agent from it too; its pods are captured as long as they exist",
            )
        } else {
            (
                "there is no such node in this cluster",
                "check NODE_NAME (--node) against `kubectl get nodes`; until then no pod is enrolled, and those that \
                 are captured stay so",
            )
        };
        BadObject {
            object: self.object(),
            problem: problem.to_owned(),
            fix: fix.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bad node by a word of its problem, a good one, or no news.
    #[derive(Debug, PartialEq)]
    enum News {
        Bad(&'static str),
        Good,
        None,
    }

    fn news(fact: Option<Fact>) -> News {
        match fact {
            Some(Fact::Bad(bad)) if bad.object == "Node n1" && bad.problem.contains("no such node") => {
                News::Bad("no such node")
            }
            Some(Fact::Bad(bad)) if bad.object == "Node n1" && bad.problem.contains("deleted") => {
                News::Bad("deleted")
            }
            Some(Fact::Good { object }) if object == "Node n1" => News::Good,
            None => News::None,
            other => panic!("unexpected {other:?}"),
        }
    }

    #[test]
    fn a_missing_node_is_told_once_until_it_appears() {
        let node = NodeObject::default;
        let mut own = OwnNode::new("n1");
        let table = [
            (Event::All(vec![]), News::Bad("no such node"), false),
            (Event::All(vec![]), News::None, false),
            (Event::There(node()), News::Good, true),
            (Event::There(node()), News::None, true),
            (Event::All(vec![node()]), News::None, true),
            (Event::Gone(node()), News::Bad("deleted"), true),
            (Event::All(vec![node()]), News::Good, true),
        ];
        for (event, expected, seen) in table {
            let about = format!("{event:?}");
            let told = own.told(event).expect("the server is fine");
            assert_eq!((news(told), own.seen()), (expected, seen), "{about}");
        }
    }

    #[test]
    fn a_problem_of_the_server_says_nothing_of_the_node() {
        let mut own = OwnNode::new("n1");
        assert_eq!(
            own.told(Event::Problem(Some(Problem::NotYet))),
            Err(Some(Problem::NotYet))
        );
        assert!(!own.seen());
    }
}
