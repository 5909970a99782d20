//! Tells a pod's owner what the mesh does with the pod: Kubernetes events, which `kubectl describe pod` shows.

use std::time::Duration;

use agent_core::announce::Announcement;
use agent_core::ids::PodUid;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::timeout;

use super::connection::Connection;
use super::problem::Problem;
use crate::ports::{PodEvents, PortError};

/// Who tells, in `reportingController`.
const CONTROLLER: &str = "meshgate";
/// What was being done, in `action`.
const ACTION: &str = "Capture";
/// Longest note, in bytes (validation of events.k8s.io/v1).
const NOTE: usize = 1024;
/// Longest part of an event's name that names the pod, in bytes: the whole name may have 253.
const NAME: usize = 200;
/// How long a write may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The resource, as RBAC calls it.
const EVENTS: &str = "events";

/// Writes to the API server.
#[derive(Clone)]
pub struct KubeEvents {
    connection: Connection,
    node: String,
}

impl KubeEvents {
    /// Writes through this connection, in the name of this node.
    #[must_use]
    pub fn new(connection: Connection, node: String) -> Self {
        Self { connection, node }
    }

    async fn write(&self, announcement: &Announcement) -> Result<(), Problem> {
        let client = self
            .connection
            .client()
            .await
            .map_err(|error| Problem::NoAccess(error.to_string()))?;
        let events: Api<Event> = Api::namespaced(client, &announcement.pod.namespace);
        let event = event(announcement, &self.node, Timestamp::now());
        if announcement.count > 1 && self.repeat(&events, &event, announcement.count).await? {
            return Ok(());
        }
        match events.create(&PostParams::default(), &event).await {
            Ok(_) => Ok(()),
            // An earlier agent told the same.
            Err(kube::Error::Api(status)) if status.is_already_exists() => self
                .repeat(&events, &event, announcement.count.max(2))
                .await
                .map(drop),
            Err(error) if namespace_goes(&error) => Ok(()),
            Err(error) => Err(Problem::of(&error, "create", EVENTS)),
        }
    }

    /// Notes in the event that it happened once more; false if it is not there any more.
    async fn repeat(&self, events: &Api<Event>, event: &Event, count: u32) -> Result<bool, Problem> {
        let series = EventSeries {
            count: i32::try_from(count).unwrap_or(i32::MAX),
            last_observed_time: event.event_time.clone().unwrap_or_else(now),
        };
        let patch = Patch::Merge(json!({ "series": series }));
        let name = event.metadata.name.as_deref().unwrap_or_default();
        match events.patch(name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(false),
            Err(error) => Err(Problem::of(&error, "patch", EVENTS)),
        }
    }
}

impl PodEvents for KubeEvents {
    async fn publish(&self, announcement: &Announcement) -> Result<(), PortError> {
        let written = timeout(PATIENCE, self.write(announcement)).await;
        let written = written.unwrap_or_else(|_| {
            Err(Problem::Unreachable {
                cause: format!("no answer within {} s", PATIENCE.as_secs()),
            })
        });
        written.map_err(|problem| PortError {
            operation: "writing an event",
            object: announcement.pod.to_string(),
            retryable: true,
            cause: problem.to_string(),
        })
    }
}

fn now() -> MicroTime {
    MicroTime(Timestamp::now())
}

/// The namespace is gone or going, and nothing new can be written there.
fn namespace_goes(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    status.is_not_found() || (status.code == 403 && status.message.contains("being terminated"))
}

fn event(announcement: &Announcement, node: &str, now: Timestamp) -> Event {
    let pod = &announcement.pod;
    let reason = announcement.reason;
    Event {
        metadata: ObjectMeta {
            name: Some(name(announcement)),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        type_: Some(if reason.is_warning() { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(reason.as_str().to_owned()),
        action: Some(ACTION.to_owned()),
        note: Some(cut(&announcement.note, NOTE).to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.namespace.clone()),
            name: Some(pod.name.clone()),
            uid: Some(pod.uid.0.clone()),
            ..ObjectReference::default()
        }),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(cut(node, 128).to_owned()),
        ..Event::default()
    }
}

/// The same announcement has the same name, so that an agent which was restarted finds what the last one told.
fn name(announcement: &Announcement) -> String {
    let pod = &announcement.pod;
    let told = format!(
        "{} {} {}",
        pod.uid,
        announcement.reason.as_str(),
        announcement.note
    );
    let start = cut(&pod.name, NAME).trim_end_matches(['.', '-']);
    format!("{start}.{:016x}", PodUid(told).generation())
}

/// The beginning of a text, of at most so many bytes.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// For sources without a place for events: files.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl PodEvents for NoEvents {
    async fn publish(&self, _: &Announcement) -> Result<(), PortError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use agent_core::announce::Reason;
    use agent_core::ids::PodRef;

    use super::*;

    fn announcement(name: &str, note: &str) -> Announcement {
        Announcement {
            pod: PodRef {
                uid: "u-1".into(),
                namespace: "shop".to_owned(),
                name: name.to_owned(),
            },
            reason: Reason::CaptureFailed,
            note: note.to_owned(),
            count: 1,
        }
    }

    #[test]
    fn the_same_announcement_has_the_same_name_and_another_one_another() {
        let a = name(&announcement("web", "x"));
        assert_eq!(a, name(&announcement("web", "x")));
        assert_ne!(a, name(&announcement("web", "y")));
        assert!(a.starts_with("web.") && a.len() == "web.".len() + 16, "{a}");
    }

    #[test]
    fn long_names_and_notes_are_cut_to_what_the_api_server_takes() {
        let long = format!("{}.{}", "a".repeat(NAME - 1), "b".repeat(52));
        let event = event(
            &announcement(&long, &"ö".repeat(600)),
            &"n".repeat(253),
            Timestamp::UNIX_EPOCH,
        );
        let name = event.metadata.name.unwrap();
        assert!(
            name.len() <= 253 && name.starts_with("aa") && !name.contains(".."),
            "{name}"
        );
        assert_eq!(event.note.unwrap().len(), NOTE);
        assert_eq!(event.reporting_instance.unwrap().len(), 128);
        assert_eq!(event.type_.as_deref(), Some("Warning"));
    }
}
