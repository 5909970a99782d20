//! `CNI_ARGS`: which pod a sandbox is for, as Kubernetes runtimes tell it (`K=V;K=V`).

use crate::ids::{PodUid, SandboxPod};

use super::error::{CniError, Code};

/// Why the arguments cannot be used. The rules are those of libcni's `LoadArgs`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// A pair without exactly one `=`.
    #[error("CNI_ARGS has the pair {0:?}; each must be KEY=VALUE")]
    Pair(String),
    /// Keys that nobody knows.
    #[error("CNI_ARGS has the unknown keys {0:?}; add IgnoreUnknown=1, or let the runtime leave them out")]
    Unknown(Vec<String>),
    /// A value that is no boolean.
    #[error("CNI_ARGS has IgnoreUnknown={0:?}; it must be 1, 0, true or false")]
    Boolean(String),
    /// Half of a pod's name: a pod of Kubernetes, and nobody could tell which.
    #[error("CNI_ARGS has {has} without {lacks}; the runtime must give both")]
    HalfNamed {
        /// What is there.
        has: &'static str,
        /// What is missing.
        lacks: &'static str,
    },
}

impl From<ArgsError> for CniError {
    fn from(error: ArgsError) -> Self {
        Self::new(
            Code::InvalidEnvironment,
            "reading the pod's name",
            error.to_string(),
        )
    }
}

/// The pod that the arguments name; `None` when they do not name one: it is no pod of Kubernetes then.
///
/// # Errors
/// When the arguments break the rules.
pub fn parse(args: &str) -> Result<Option<SandboxPod>, ArgsError> {
    let (mut namespace, mut name, mut uid) = ("", "", "");
    let (mut unknown, mut ignore_unknown) = (Vec::new(), false);
    for pair in args.split(';').filter(|_| !args.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .filter(|(_, value)| !value.contains('='))
            .ok_or_else(|| ArgsError::Pair(pair.to_owned()))?;
        match key {
            "K8S_POD_NAMESPACE" => namespace = value,
            "K8S_POD_NAME" => name = value,
            "K8S_POD_UID" => uid = value,
            "K8S_POD_INFRA_CONTAINER_ID" => {}
            "IgnoreUnknown" => ignore_unknown = boolean(value)?,
            _ => unknown.push(key.to_owned()),
        }
    }
    if !unknown.is_empty() && !ignore_unknown {
        return Err(ArgsError::Unknown(unknown));
    }
    let half = |has, lacks| Err(ArgsError::HalfNamed { has, lacks });
    match (namespace, name) {
        ("", "") => Ok(None),
        ("", _) => half("K8S_POD_NAME", "K8S_POD_NAMESPACE"),
        (_, "") => half("K8S_POD_NAMESPACE", "K8S_POD_NAME"),
        _ => Ok(Some(SandboxPod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: (!uid.is_empty()).then(|| PodUid::from(uid)),
        })),
    }
}

fn boolean(text: &str) -> Result<bool, ArgsError> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(ArgsError::Boolean(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn kubernetes_arguments_name_the_pod() {
        let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=3f;K8S_POD_UID=u-1";
        let mut pod = SandboxPod {
            namespace: "shop".to_owned(),
            name: "web-0".to_owned(),
            uid: Some("u-1".into()),
        };
        assert_eq!(parse(args), Ok(Some(pod.clone())));
        pod.uid = None;
        assert_eq!(parse("K8S_POD_NAME=web-0;K8S_POD_NAMESPACE=shop"), Ok(Some(pod)));
    }

    #[test]
    fn without_a_name_it_is_no_pod_of_kubernetes_and_with_half_of_one_nobody_can_tell() {
        for args in [
            "",
            "K8S_POD_NAMESPACE=;K8S_POD_NAME=",
            "IgnoreUnknown=TRUE;FOO=bar",
        ] {
            assert_eq!(parse(args), Ok(None), "{args}");
        }
        let (namespace, name) = ("K8S_POD_NAMESPACE", "K8S_POD_NAME");
        for (args, has, lacks) in [
            ("K8S_POD_NAME=web-0", name, namespace),
            ("K8S_POD_NAMESPACE=shop", namespace, name),
            ("K8S_POD_NAMESPACE=;K8S_POD_NAME=web-0", name, namespace),
        ] {
            assert_eq!(parse(args), Err(ArgsError::HalfNamed { has, lacks }), "{args}");
        }
    }

    #[test]
    fn what_breaks_the_rules_is_named() {
        let pair = |text: &str| ArgsError::Pair(text.to_owned());
        for (args, error) in [
            ("FOO", pair("FOO")),
            ("K8S_POD_NAME=a=b", pair("K8S_POD_NAME=a=b")),
            ("K8S_POD_NAME=a;", pair("")),
            (
                "FOO=1;BAR=2",
                ArgsError::Unknown(vec!["FOO".to_owned(), "BAR".to_owned()]),
            ),
            (
                "IgnoreUnknown=0;FOO=1",
                ArgsError::Unknown(vec!["FOO".to_owned()]),
            ),
            ("IgnoreUnknown=yes", ArgsError::Boolean("yes".to_owned())),
        ] {
            assert_eq!(parse(args), Err(error), "{args}");
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(args in "([A-Za-z0-9_]{0,8}[=;]?){0,8}|.{0,40}") {
            let _ = parse(&args);
        }
    }
}
