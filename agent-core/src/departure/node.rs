//! Whether a pod's node selector and required node affinity want a node, as the scheduler decides it
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/>). Preferences and taints do not count.

use serde::Deserialize;

use crate::facts::StringMap;

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: StringMap,
}

/// Where pods may run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// `nodeSelector`: labels that the node must have.
    pub node_selector: StringMap,
    /// `affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution`.
    pub required: Option<NodeSelector>,
}

/// Terms of which one must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelector {
    /// The terms; none match nothing.
    #[serde(default)]
    pub node_selector_terms: Vec<Term>,
}

/// Requirements that must all be met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Term {
    /// Of labels.
    #[serde(default)]
    pub match_expressions: Vec<Requirement>,
    /// Of fields; `metadata.name` is the only one.
    #[serde(default)]
    pub match_fields: Vec<Requirement>,
}

/// One requirement.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Requirement {
    /// Label or field.
    pub key: String,
    /// How it is compared.
    pub operator: Operator,
    /// With what.
    #[serde(default)]
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Operator {
    /// It is one of the values.
    In,
    /// It is none of the values, or is missing.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
    /// It is a number greater than the value.
    Gt,
    /// It is a number less than the value.
    Lt,
}

impl Scheduling {
    /// Whether pods may run on this node.
    #[must_use]
    pub fn wants(&self, node: &Node) -> bool {
        let has = |(key, value): (&String, &String)| node.labels.get(key) == Some(value);
        self.node_selector.iter().all(has)
            && self
                .required
                .as_ref()
                .is_none_or(|required| required.node_selector_terms.iter().any(|term| term.matches(node)))
    }
}

impl Term {
    /// An empty term matches nothing.
    fn matches(&self, node: &Node) -> bool {
        let is_empty = self.match_expressions.is_empty() && self.match_fields.is_empty();
        let label = |requirement: &Requirement| {
            requirement.is_met_by(node.labels.get(&requirement.key).map(String::as_str))
        };
        let field = |requirement: &Requirement| {
            requirement.is_met_by((requirement.key == "metadata.name").then_some(node.name.as_str()))
        };
        !is_empty && self.match_expressions.iter().all(label) && self.match_fields.iter().all(field)
    }
}

impl Requirement {
    fn is_met_by(&self, value: Option<&str>) -> bool {
        let is_listed = value.is_some_and(|value| self.values.iter().any(|wanted| wanted == value));
        match self.operator {
            Operator::In => is_listed,
            Operator::NotIn => !is_listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => self.compare(value, |is, bound| is > bound),
            Operator::Lt => self.compare(value, |is, bound| is < bound),
        }
    }

    fn compare(&self, value: Option<&str>, holds: fn(i64, i64) -> bool) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let bound = self.values.first().and_then(|bound| number(bound));
        value
            .and_then(number)
            .zip(bound)
            .is_some_and(|(is, bound)| holds(is, bound))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node() -> Node {
        Node {
            name: "node-a".to_owned(),
            labels: [("zone", "east"), ("cpus", "8")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        }
    }

    fn wants(terms: &Value) -> bool {
        let required = serde_json::from_value(json!({ "nodeSelectorTerms": terms })).unwrap();
        let scheduling = Scheduling {
            required: Some(required),
            ..Scheduling::default()
        };
        scheduling.wants(&node())
    }

    #[test]
    fn requirements_are_met_as_the_scheduler_says() {
        for (key, operator, values, met) in [
            ("zone", "In", &["west", "east"][..], true),
            ("zone", "In", &["west"], false),
            ("none", "In", &["west"], false),
            ("zone", "NotIn", &["west"], true),
            ("zone", "NotIn", &["east"], false),
            ("none", "NotIn", &["east"], true),
            ("zone", "Exists", &[], true),
            ("none", "Exists", &[], false),
            ("zone", "DoesNotExist", &[], false),
            ("none", "DoesNotExist", &[], true),
            ("cpus", "Gt", &["4"], true),
            ("cpus", "Gt", &["8"], false),
            ("cpus", "Lt", &["16"], true),
            ("zone", "Lt", &["16"], false),
            ("none", "Gt", &["0"], false),
        ] {
            let term = json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]);
            assert_eq!(wants(&term), met, "{term}");
        }
    }

    #[test]
    fn one_term_is_enough_and_all_its_requirements_must_be_met() {
        let (yes, no) = (
            json!({"key": "zone", "operator": "Exists"}),
            json!({"key": "none", "operator": "Exists"}),
        );
        let named = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        for (terms, wanted) in [
            (
                json!([{"matchExpressions": [yes]}, {"matchExpressions": [no]}]),
                true,
            ),
            (json!([{"matchExpressions": [yes, no]}]), false),
            (json!([named("node-a")]), true),
            (json!([named("node-b")]), false),
            (json!([]), false),
            (json!([{}]), false),
        ] {
            assert_eq!(wants(&terms), wanted, "{terms}");
        }
    }

    #[test]
    fn labels_of_the_selector_must_all_be_there() {
        for (labels, wanted) in [
            (&[("zone", "east")][..], true),
            (&[("zone", "east"), ("cpus", "4")], false),
            (&[], true),
        ] {
            let node_selector = labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let scheduling = Scheduling {
                node_selector: node_selector.collect(),
                required: None,
            };
            assert_eq!(scheduling.wants(&node()), wanted, "{labels:?}");
        }
    }
}
