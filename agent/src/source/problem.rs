//! What is wrong with the API server, in one line with the fix.

use std::error::Error;

use thiserror::Error;

/// Why the API server does not answer as it should.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// Nothing was tried yet.
    #[error("not read yet")]
    NotYet,
    /// There is no way to reach an API server.
    #[error("{0}")]
    NoAccess(String),
    /// No connection, or it broke.
    #[error(
        "API server cannot be reached: {cause}; check that it runs and that its address, certificate and the network \
         to it are right"
    )]
    Unreachable {
        /// The innermost cause.
        cause: String,
    },
    /// HTTP 401, or credentials that cannot be read.
    #[error(
        "API server does not accept the agent's credentials: {answer}; renew the service account's token or the \
         kubeconfig's user"
    )]
    Unauthorized {
        /// What was answered.
        answer: String,
    },
    /// HTTP 403.
    #[error("the agent may not {verb} {resource}: {answer}; add to its role: {}", rule(.resource))]
    Forbidden {
        /// What was tried.
        verb: &'static str,
        /// On which resource, as RBAC calls it.
        resource: &'static str,
        /// What was answered.
        answer: String,
    },
    /// HTTP 410: the version to go on from is too old. Listing again is the cure, so that nobody is told.
    #[error("the resource version to go on from is too old: {answer}")]
    Expired {
        /// What was answered.
        answer: String,
    },
    /// Any other refusal.
    #[error("API server fails to {verb} {resource} (HTTP {code}): {answer}; see its log")]
    Refused {
        /// What was tried.
        verb: &'static str,
        /// On which resource.
        resource: &'static str,
        /// HTTP status.
        code: u16,
        /// What was answered.
        answer: String,
    },
}

impl Problem {
    /// Reads a client's error about `verb` on `resource`.
    #[must_use]
    pub fn of(error: &kube::Error, verb: &'static str, resource: &'static str) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status, verb, resource),
            kube::Error::Auth(_) => Self::Unauthorized {
                answer: innermost(error),
            },
            _ => Self::Unreachable {
                cause: innermost(error),
            },
        }
    }

    /// Reads a status that the API server sent, as an answer or within a watch.
    #[must_use]
    pub fn of_status(status: &kube::core::Status, verb: &'static str, resource: &'static str) -> Self {
        let answer = one_line(&status.message);
        match status.code {
            401 => Self::Unauthorized { answer },
            403 => Self::Forbidden {
                verb,
                resource,
                answer,
            },
            410 => Self::Expired { answer },
            code => Self::Refused {
                verb,
                resource,
                code,
                answer,
            },
        }
    }

    /// What makes this a different problem from another one, whatever the wording.
    pub(super) fn kind(&self) -> String {
        match self {
            Self::NotYet => "not yet".into(),
            Self::NoAccess(text) => text.clone(),
            Self::Unreachable { .. } => "unreachable".into(),
            Self::Unauthorized { .. } => "unauthorized".into(),
            Self::Forbidden { verb, resource, .. } => format!("forbidden {verb} {resource}"),
            Self::Expired { .. } => "expired".into(),
            Self::Refused { code, .. } => format!("refused {code}"),
        }
    }
}

/// The RBAC rule that allows what the agent does with a resource.
fn rule(resource: &str) -> String {
    let (group, verbs) = match resource {
        "pods/status" => ("", r#"["patch"]"#),
        "events" => ("events.k8s.io", r#"["create", "patch"]"#),
        "daemonsets" => ("apps", r#"["get"]"#),
        _ => ("", r#"["list", "watch"]"#),
    };
    format!(r#"{{apiGroups: ["{group}"], resources: ["{resource}"], verbs: {verbs}}}"#)
}

/// The last cause in a chain: client libraries wrap "connection refused" several times.
fn innermost(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    one_line(&last.to_string())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, message: &str) -> kube::core::Status {
        kube::core::Status {
            code,
            message: message.into(),
            ..kube::core::Status::default()
        }
    }

    #[test]
    fn each_answer_is_explained_with_its_fix() {
        let table: [(u16, &str, &[&str]); 4] = [
            (401, "Unauthorized", &["credentials", "Unauthorized", "renew"]),
            (
                403,
                "User \"x\" cannot\nlist",
                &[
                    "may not list pods: User \"x\" cannot list;",
                    r#"resources: ["pods"], verbs: ["list", "watch"]"#,
                ],
            ),
            (410, "too old resource version", &["too old"]),
            (
                500,
                "etcdserver: no leader",
                &["list pods (HTTP 500): etcdserver: no leader", "log"],
            ),
        ];
        for (code, message, parts) in table {
            let text = Problem::of_status(&status(code, message), "list", "pods").to_string();
            for part in parts {
                assert!(text.contains(part), "{code}: {part} in {text}");
            }
            assert!(!text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn writing_the_status_needs_patch_only() {
        let text = Problem::of_status(&status(403, "no"), "patch", "pods/status").to_string();
        assert!(
            text.contains(r#"resources: ["pods/status"], verbs: ["patch"]"#),
            "{text}"
        );
    }

    #[test]
    fn an_unreachable_server_is_explained_by_the_innermost_cause() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = kube::Error::Service(Box::new(std::io::Error::other(refused)));
        let problem = Problem::of(&error, "list", "pods");
        assert_eq!(problem.kind(), "unreachable");
        assert!(problem.to_string().contains("connection refused"), "{problem}");
    }
}
