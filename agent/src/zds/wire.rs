//! The messages of ZDS (package `istio.workload.zds`), one per packet, and nothing of how they travel.
//!
//! The numbers are those of ztunnel's `proto/zds.proto`; it is written by hand so that a build needs no `protoc`.

use agent_core::ids::PodUid;
use prost::Message as _;

use crate::ports::Workload;

/// Size of the proxy's receive buffer: it answers a longer packet with an error and leaves (ztunnel
/// `src/inpod/protocol.rs`).
pub(super) const LONGEST_REQUEST: usize = 1024;

/// Size of our receive buffer. An [`Ack`] carries the text of an error, which may be longer than what we send.
pub(super) const LONGEST_RESPONSE: usize = 16 * 1024;

/// The only version of the protocol so far.
pub(super) const V1: i32 = 1;

/// First message of a proxy.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ZdsHello {
    /// [`V1`]; 0 is never sent.
    #[prost(int32, tag = "1")]
    pub version: i32,
}

/// What names a pod in logs, and selects its workload in XDS.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WorkloadInfo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub namespace: String,
    #[prost(string, tag = "3")]
    pub service_account: String,
}

/// Serve this pod; the packet carries the descriptor of its network namespace.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AddWorkload {
    #[prost(string, tag = "1")]
    pub uid: String,
    /// A proxy takes a missing one for another protocol, and ends.
    #[prost(message, optional, tag = "2")]
    pub workload_info: Option<WorkloadInfo>,
}

/// Go on with this pod if it is served. Legal before [`SnapshotSent`] only.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct KeepWorkload {
    #[prost(string, tag = "1")]
    pub uid: String,
}

/// Serve this pod no more. The number of its field is two, unlike the others.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DelWorkload {
    #[prost(string, tag = "2")]
    pub uid: String,
}

/// Everything was named; drain all other pods. Once per connection.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SnapshotSent {}

/// From the agent to the proxy.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WorkloadRequest {
    #[prost(oneof = "Request", tags = "1, 2, 3, 5")]
    pub payload: Option<Request>,
}

/// The choices of [`WorkloadRequest`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Request {
    #[prost(message, tag = "1")]
    Add(AddWorkload),
    #[prost(message, tag = "2")]
    Del(DelWorkload),
    #[prost(message, tag = "3")]
    SnapshotSent(SnapshotSent),
    #[prost(message, tag = "5")]
    Keep(KeepWorkload),
}

/// From the proxy to the agent: one for each request, in the same order.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WorkloadResponse {
    #[prost(oneof = "Response", tags = "1")]
    pub payload: Option<Response>,
}

/// The choices of [`WorkloadResponse`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Response {
    #[prost(message, tag = "1")]
    Ack(Ack),
}

/// The request was carried out, unless `error` says why not.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Ack {
    #[prost(string, tag = "1")]
    pub error: String,
}

impl Request {
    /// Asks to serve a pod.
    pub(super) fn add(workload: &Workload) -> Self {
        Self::Add(AddWorkload {
            uid: workload.pod.uid.0.clone(),
            workload_info: Some(WorkloadInfo {
                name: workload.pod.name.clone(),
                namespace: workload.pod.namespace.clone(),
                service_account: workload.service_account.clone(),
            }),
        })
    }

    /// Asks to go on with a pod.
    pub(super) fn keep(uid: &PodUid) -> Self {
        Self::Keep(KeepWorkload { uid: uid.0.clone() })
    }

    /// Asks to let a pod go.
    pub(super) fn del(uid: &PodUid) -> Self {
        Self::Del(DelWorkload { uid: uid.0.clone() })
    }

    /// Ends the snapshot.
    pub(super) fn snapshot_sent() -> Self {
        Self::SnapshotSent(SnapshotSent {})
    }

    /// The bytes of the packet.
    pub(super) fn into_packet(self) -> Vec<u8> {
        WorkloadRequest { payload: Some(self) }.encode_to_vec()
    }
}

/// Why a packet of a proxy makes no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    /// Not protobuf, or a field of another type.
    #[error("{bytes} bytes that are no {expected}: {cause}")]
    Undecodable {
        /// Which message was due.
        expected: &'static str,
        /// Length of the packet.
        bytes: usize,
        /// What the decoder says.
        cause: String,
    },
    /// Decodes, but the field that matters is missing.
    #[error("{bytes} bytes without the {missing} of a {expected}")]
    Incomplete {
        /// Which message was due.
        expected: &'static str,
        /// Length of the packet.
        bytes: usize,
        /// The field.
        missing: &'static str,
    },
}

/// Reads a [`ZdsHello`] and returns its version, which is not 0.
pub(super) fn decode_hello(packet: &[u8]) -> Result<i32, WireError> {
    let hello: ZdsHello = decode("ZdsHello", packet)?;
    match hello.version {
        0 => Err(WireError::Incomplete {
            expected: "ZdsHello",
            bytes: packet.len(),
            missing: "version",
        }),
        version => Ok(version),
    }
}

/// Reads the [`Ack`] within a [`WorkloadResponse`] and returns its error text; `None` is success.
pub(super) fn decode_ack(packet: &[u8]) -> Result<Option<String>, WireError> {
    let response: WorkloadResponse = decode("WorkloadResponse", packet)?;
    match response.payload {
        Some(Response::Ack(Ack { error })) => Ok((!error.is_empty()).then_some(error)),
        None => Err(WireError::Incomplete {
            expected: "WorkloadResponse",
            bytes: packet.len(),
            missing: "ack",
        }),
    }
}

/// Decodes a message, with its name in the error.
fn decode<M: prost::Message + Default>(expected: &'static str, packet: &[u8]) -> Result<M, WireError> {
    M::decode(packet).map_err(|error| WireError::Undecodable {
        expected,
        bytes: packet.len(),
        cause: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use agent_core::ids::PodRef;
    use proptest::prelude::*;

    use super::*;

    fn workload() -> Workload {
        let pod = PodRef {
            uid: PodUid::from("u1"),
            namespace: "ns".to_owned(),
            name: "po".to_owned(),
        };
        Workload {
            pod,
            service_account: "sa".to_owned(),
        }
    }

    #[test]
    fn requests_have_the_bytes_that_ztunnel_reads() {
        // Outer field (number << 3 | 2), length, then the inner fields.
        let add = b"\x0a\x12\x0a\x02u1\x12\x0c\x0a\x02po\x12\x02ns\x1a\x02sa";
        assert_eq!(Request::add(&workload()).into_packet(), add);
        assert_eq!(
            Request::del(&PodUid::from("u1")).into_packet(),
            b"\x12\x04\x12\x02u1"
        );
        assert_eq!(Request::snapshot_sent().into_packet(), b"\x1a\x00");
        assert_eq!(
            Request::keep(&PodUid::from("u1")).into_packet(),
            b"\x2a\x04\x0a\x02u1"
        );
    }

    #[test]
    fn hello_is_read_with_its_version() {
        assert_eq!(decode_hello(b"\x08\x01"), Ok(1));
        assert_eq!(
            decode_hello(b"\x08\x02"),
            Ok(2),
            "a later version is for the caller to judge"
        );
        assert_eq!(
            decode_hello(b"\x08\x01\x12\x01x"),
            Ok(1),
            "fields of later versions are skipped"
        );
        for no_hello in [&b"\x08\x00"[..], b"\x0a\x00", b"\x08", b"GET / HTTP/1.1\r\n"] {
            decode_hello(no_hello).expect_err("no hello");
        }
    }

    #[test]
    fn acks_are_read_with_their_error_text() {
        assert_eq!(decode_ack(b"\x0a\x00"), Ok(None));
        assert_eq!(decode_ack(b"\x0a\x04\x0a\x02no"), Ok(Some("no".to_owned())));
        for no_ack in [
            &b"\x08\x01"[..],
            b"\x12\x00",
            b"\x0a\x09",
            b"\x0a\x03\x0a\x01\xff",
        ] {
            decode_ack(no_ack).expect_err("no ack");
        }
    }

    #[test]
    fn the_longest_names_of_kubernetes_fit_into_the_buffer_of_the_proxy() {
        let pod = PodRef {
            uid: PodUid("u".repeat(36)),
            namespace: "n".repeat(63),
            name: "p".repeat(253),
        };
        let longest = Workload {
            pod,
            service_account: "s".repeat(253),
        };
        assert!(Request::add(&longest).into_packet().len() <= LONGEST_REQUEST);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(packet in proptest::collection::vec(any::<u8>(), 0..1200)) {
            let _ = decode_hello(&packet);
            let _ = decode_ack(&packet);
        }

        #[test]
        fn every_error_text_survives(error in ".{0,400}") {
            let packet = WorkloadResponse { payload: Some(Response::Ack(Ack { error: error.clone() })) };
            let expected = (!error.is_empty()).then_some(error);
            prop_assert_eq!(decode_ack(&packet.encode_to_vec()), Ok(expected));
        }
    }
}
