//! Label selectors with Kubernetes' exact meaning, and the enablement selectors that say which pods are captured.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::facts::StringMap;
use crate::labels::{DATAPLANE_MODE, DATAPLANE_MODE_AMBIENT, DATAPLANE_MODE_NONE};

/// A pair of selectors (`AMBIENT_ENABLEMENT_SELECTOR` is a list of them): a pod is selected when both match. A selector
/// that is left out is empty and so matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnablementSelector {
    /// On the labels of the pod.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub pod_selector: LabelSelector,
    /// On the labels of its namespace.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub namespace_selector: LabelSelector,
}

/// Kubernetes' `metav1.LabelSelector`: all requirements must hold; none means that everything matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels that must be there with exactly these values.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "StringMap::is_empty"
    )]
    pub match_labels: StringMap,
    /// Further requirements.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub match_expressions: Vec<Requirement>,
}

/// One of [`LabelSelector::match_expressions`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// How the label is compared.
    pub operator: Operator,
    /// With what: at least one value for `In` and `NotIn`, none for the others.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub enum Operator {
    /// The label is there with one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

/// An operator that Kubernetes does not know.
#[derive(Debug, thiserror::Error)]
#[error("unknown operator {0:?}: use In, NotIn, Exists or DoesNotExist")]
pub struct UnknownOperator(String);

impl TryFrom<String> for Operator {
    type Error = UnknownOperator;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.as_str() {
            "In" => Ok(Self::In),
            "NotIn" => Ok(Self::NotIn),
            "Exists" => Ok(Self::Exists),
            "DoesNotExist" => Ok(Self::DoesNotExist),
            _ => Err(UnknownOperator(text)),
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl EnablementSelector {
    /// Whether a pod with these labels, in a namespace with those, is selected.
    #[must_use]
    pub fn matches(&self, pod: &StringMap, namespace: &StringMap) -> bool {
        self.pod_selector.matches(pod) && self.namespace_selector.matches(namespace)
    }
}

impl LabelSelector {
    /// Whether all requirements hold.
    #[must_use]
    pub fn matches(&self, labels: &StringMap) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self
                .match_expressions
                .iter()
                .all(|requirement| requirement.holds(labels))
    }
}

impl Requirement {
    fn holds(&self, labels: &StringMap) -> bool {
        let value = labels.get(&self.key);
        let among = value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            Operator::In => among,
            Operator::NotIn => !among,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

/// The selectors of Istio's Helm chart: pods labelled `ambient` anywhere, and in namespaces labelled `ambient` all pods
/// that are not labelled `none`.
#[must_use]
pub fn istio_defaults() -> Vec<EnablementSelector> {
    let ambient = LabelSelector {
        match_labels: [(DATAPLANE_MODE.to_owned(), DATAPLANE_MODE_AMBIENT.to_owned())].into(),
        match_expressions: Vec::new(),
    };
    let not_none = LabelSelector {
        match_labels: StringMap::new(),
        match_expressions: vec![Requirement {
            key: DATAPLANE_MODE.to_owned(),
            operator: Operator::NotIn,
            values: vec![DATAPLANE_MODE_NONE.to_owned()],
        }],
    };
    vec![
        EnablementSelector {
            pod_selector: ambient.clone(),
            namespace_selector: LabelSelector::default(),
        },
        EnablementSelector {
            pod_selector: not_none,
            namespace_selector: ambient,
        },
    ]
}

/// `key:` with nothing behind it is null in YAML; Kubernetes takes that as empty.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A selector that Kubernetes would refuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("enablement selector: item {item}, {field}: {problem}")]
pub struct InvalidSelector {
    /// Index of the item in the list, from 0.
    pub item: usize,
    /// Path of the field within the item.
    pub field: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

/// Checks a list of selectors as the API server would.
///
/// # Errors
/// The first field that Kubernetes would refuse: `In` or `NotIn` without values, `Exists` or `DoesNotExist` with some, a
/// key that is no label key, a value that no label can have.
pub fn validate(selectors: &[EnablementSelector]) -> Result<(), InvalidSelector> {
    for (item, selector) in selectors.iter().enumerate() {
        let parts = [
            ("podSelector", &selector.pod_selector),
            ("namespaceSelector", &selector.namespace_selector),
        ];
        for (name, selector) in parts {
            check_selector(selector).map_err(|(field, problem)| InvalidSelector {
                item,
                field: format!("{name}.{field}"),
                problem,
            })?;
        }
    }
    Ok(())
}

/// A field, relative to what was checked, and its problem.
type FieldProblem = (String, String);

fn check_selector(selector: &LabelSelector) -> Result<(), FieldProblem> {
    for (key, value) in &selector.match_labels {
        let at = |problem| (format!("matchLabels[{key:?}]"), problem);
        check_key(key).map_err(at)?;
        check_value(value).map_err(at)?;
    }
    for (index, requirement) in selector.match_expressions.iter().enumerate() {
        check_requirement(requirement)
            .map_err(|(field, problem)| (format!("matchExpressions[{index}].{field}"), problem))?;
    }
    Ok(())
}

fn check_requirement(requirement: &Requirement) -> Result<(), FieldProblem> {
    check_key(&requirement.key).map_err(|problem| ("key".to_owned(), problem))?;
    let operator = requirement.operator;
    let needs_values = matches!(operator, Operator::In | Operator::NotIn);
    if needs_values == requirement.values.is_empty() {
        let problem = if needs_values {
            "needs at least one value"
        } else {
            "takes no values"
        };
        return Err(("values".to_owned(), format!("operator {operator} {problem}")));
    }
    for (index, value) in requirement.values.iter().enumerate() {
        check_value(value).map_err(|problem| (format!("values[{index}]"), problem))?;
    }
    Ok(())
}

/// A label key is a name of at most 63 characters, perhaps behind a DNS name of at most 253 and a slash.
fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key
        .split_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_is_good = prefix.is_none_or(is_dns_subdomain);
    if prefix_is_good && !name.is_empty() && is_label_text(name) {
        Ok(())
    } else {
        Err(format!("{key:?} is no label key: write name or example.org/name"))
    }
}

fn check_value(value: &str) -> Result<(), String> {
    if is_label_text(value) {
        Ok(())
    } else {
        Err(format!(
            "{value:?} can be no label's value: at most 63 letters, digits, '-', '_' and '.', a letter or digit first and last"
        ))
    }
}

/// Kubernetes' rule for values, and with at least one character for names.
fn is_label_text(text: &str) -> bool {
    let alphanumeric = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && alphanumeric(bytes.first())
        && alphanumeric(bytes.last())
}

/// RFC 1123 subdomain, as Kubernetes checks it.
fn is_dns_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests;
