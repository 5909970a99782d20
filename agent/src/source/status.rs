//! Writes the state of a pod where istiod reads it: annotation `ambient.istio.io/redirection` on the pod's status
//! subresource.

use std::time::Duration;

use agent_core::ids::PodRef;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::connection::Connection;
use super::problem::Problem;
use crate::ports::{PodStatus, PortError, Redirection};

/// Annotation that istiod reads to tell which pods speak HBONE.
pub const REDIRECTION: &str = "ambient.istio.io/redirection";
/// How long a write may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Who wrote it, in `managedFields`.
const FIELD_MANAGER: &str = "meshgate";

/// Writes to the API server.
#[derive(Clone)]
pub struct KubeStatus {
    connection: Connection,
}

impl KubeStatus {
    /// Writes through this connection.
    #[must_use]
    pub fn new(connection: Connection) -> Self {
        Self { connection }
    }

    async fn patch(&self, pod: &PodRef, state: Redirection) -> Result<(), Problem> {
        let client = self
            .connection
            .client()
            .await
            .map_err(|error| Problem::NoAccess(error.to_string()))?;
        let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client, &pod.namespace);
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(annotation(pod, state));
        match timeout(PATIENCE, pods.patch_status(&pod.name, &params, &patch)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) if pod_is_gone(&error) => Ok(()),
            Ok(Err(error)) => Err(Problem::of(&error, "patch", "pods/status")),
            Err(_) => Err(Problem::Unreachable {
                cause: format!("no answer within {} s", PATIENCE.as_secs()),
            }),
        }
    }
}

impl PodStatus for KubeStatus {
    async fn write(&self, pod: &PodRef, state: Redirection) -> Result<(), PortError> {
        self.patch(pod, state).await.map_err(|problem| PortError {
            operation: "writing the redirection annotation",
            object: pod.to_string(),
            retryable: true,
            cause: problem.to_string(),
        })
    }
}

/// The merge patch. Its UID is a precondition: the API server refuses it for a pod of the same name that came later.
fn annotation(pod: &PodRef, state: Redirection) -> Value {
    let value = match state {
        Redirection::Enabled => json!("enabled"),
        Redirection::Pending => json!("pending"),
        Redirection::Absent => Value::Null,
    };
    json!({"metadata": {"uid": pod.uid, "annotations": {REDIRECTION: value}}})
}

/// Not found, replaced by another pod (the UID cannot be patched: HTTP 422), or deleted while the server was writing
/// (HTTP 409 that speaks of the UID).
fn pod_is_gone(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_not_found()
        || (status.code == 422 && causes.into_iter().any(|cause| cause.field == "metadata.uid"))
        || (status.is_conflict() && status.message.contains("UID in precondition"))
}

/// For sources without a place for states: files.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStatus;

impl PodStatus for NoStatus {
    async fn write(&self, _: &PodRef, _: Redirection) -> Result<(), PortError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_become_merge_patches_with_the_uid_as_precondition() {
        let pod = PodRef {
            uid: "u-1".into(),
            namespace: "shop".into(),
            name: "web".into(),
        };
        let table = [
            (Redirection::Enabled, json!("enabled")),
            (Redirection::Pending, json!("pending")),
            (Redirection::Absent, Value::Null),
        ];
        for (state, value) in table {
            let expected =
                json!({"metadata": {"uid": "u-1", "annotations": {"ambient.istio.io/redirection": value}}});
            assert_eq!(annotation(&pod, state), expected, "{state:?}");
        }
    }

    #[test]
    fn only_a_pod_that_is_gone_or_replaced_is_success() {
        let answer = |code: u16, reason: &str, message: &str, field: &str| {
            let status = json!({"code": code, "reason": reason, "message": message,
                                "details": {"causes": [{"field": field, "message": message}]}});
            kube::Error::Api(serde_json::from_value(status).expect("a status"))
        };
        let deleted = "Precondition failed: UID in precondition: a, UID in object meta: ";
        let table = [
            (answer(404, "NotFound", "pods \"web\" not found", ""), true),
            (answer(422, "Invalid", "field is immutable", "metadata.uid"), true),
            (answer(422, "Invalid", "too long", "metadata.annotations"), false),
            (answer(409, "Conflict", deleted, ""), true),
            (answer(409, "Conflict", "the object has been modified", ""), false),
            (answer(403, "Forbidden", "no", ""), false),
            (answer(500, "InternalError", "no", ""), false),
        ];
        for (error, expected) in table {
            assert_eq!(pod_is_gone(&error), expected, "{error}");
        }
    }
}
