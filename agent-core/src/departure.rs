//! What an agent that is told to stop leaves on the node: everything, because another one follows (upgrade, reboot, crash
//! loop), or all but the hold on new pods, because it is being removed from this node. Pure.

mod node;

pub use node::{Node, NodeSelector, Operator, Requirement, Scheduling, Term};

/// The agent's DaemonSet, as the API server tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It is there and stays. Where it wants its pods, and the node as it is; no node: there is none of this name.
    Present(Box<Scheduling>, Option<Node>),
    /// It is there and is being deleted.
    Deleting,
    /// It is not there.
    NotFound,
    /// The agent's credentials do not count any more (HTTP 401).
    Unauthorized,
    /// The agent may not ask (HTTP 403), although it could when it started: its role was deleted.
    RoleGone,
    /// The agent could never ask, or has no answer: the cause.
    Unknown(String),
}

/// What is left on the node. Captured pods stay captured in both cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The plugin stays in the CNI configuration: new pods wait for the next agent.
    Stays {
        /// Why.
        why: String,
    },
    /// The plugin goes from the CNI configuration, so that new pods start without the agent.
    Removed {
        /// Why.
        why: String,
    },
}

/// Decides. As Istio's agent, but for what it does not know: an unanswered question leaves the node closed.
///
/// `forced` is `AMBIENT_DISABLE_SAFE_UPGRADE`: the plugin goes at each stop.
#[must_use]
pub fn decide(forced: bool, owner: &Owner) -> Departure {
    let removed = |why: &str| Departure::Removed { why: why.to_owned() };
    let stays = |why: String| Departure::Stays { why };
    if forced {
        return removed("AMBIENT_DISABLE_SAFE_UPGRADE is set");
    }
    match owner {
        Owner::Deleting => removed("the DaemonSet is being deleted"),
        Owner::NotFound => removed("the DaemonSet is gone"),
        Owner::Unauthorized => removed("the service account is gone"),
        Owner::RoleGone => removed("the agent's role is gone"),
        Owner::Unknown(cause) => stays(format!(
            "whether the DaemonSet is there cannot be told: {cause}; if it was removed, run `meshgate cleanup`"
        )),
        Owner::Present(_, None) => stays("the DaemonSet is there, and the node is not known".to_owned()),
        Owner::Present(scheduling, Some(node)) if scheduling.wants(node) => {
            stays("the DaemonSet is there: another agent follows".to_owned())
        }
        Owner::Present(..) => removed("the DaemonSet does not want this node any more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: &[(&str, &str)]) -> Node {
        Node {
            name: "node-a".to_owned(),
            labels: labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    fn linux() -> Box<Scheduling> {
        Box::new(Scheduling {
            node_selector: [("kubernetes.io/os".to_owned(), "linux".to_owned())].into(),
            required: None,
        })
    }

    #[test]
    fn only_a_removal_takes_the_plugin_away() {
        let (here, elsewhere) = (node(&[("kubernetes.io/os", "linux")]), node(&[]));
        let table = [
            (Owner::Present(linux(), Some(here.clone())), false),
            (Owner::Present(linux(), Some(elsewhere)), true),
            (Owner::Present(linux(), None), false),
            (Owner::Present(Box::default(), Some(here)), false),
            (Owner::Deleting, true),
            (Owner::NotFound, true),
            (Owner::Unauthorized, true),
            (Owner::RoleGone, true),
            (Owner::Unknown("no route to host".to_owned()), false),
        ];
        for (owner, removed) in table {
            let is_removed = |forced| matches!(decide(forced, &owner), Departure::Removed { .. });
            assert_eq!(is_removed(false), removed, "{owner:?}");
            assert!(is_removed(true), "{owner:?}");
        }
    }

    #[test]
    fn an_unanswered_question_says_what_to_do() {
        let Departure::Stays { why } = decide(false, &Owner::Unknown("timed out".to_owned())) else {
            panic!("the node is open")
        };
        assert!(
            why.contains("timed out") && why.contains("meshgate cleanup"),
            "{why}"
        );
    }
}
