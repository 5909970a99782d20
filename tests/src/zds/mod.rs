//! ZDS, the protocol by which a proxy is told of pods: messages (package `istio.workload.zds`), packets, and a small
//! server for tests which have no agent. Written on its own, not with the agent's code: each checks the other.

mod packet;
mod server;

pub use packet::{Packet, receive, send};
pub use server::{Peer, ZdsServer};

use prost::{Message, Oneof};

/// `ZdsHello.version` of the only version there is.
pub const VERSION: i32 = 1;

/// First packet of a proxy.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Hello {
    /// Always [`VERSION`].
    #[prost(int32, tag = "1")]
    pub version: i32,
}

/// From the agent to the proxy.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Request {
    /// What to do.
    #[prost(oneof = "Payload", tags = "1, 2, 3, 5")]
    pub payload: Option<Payload>,
}

/// What a proxy is asked to do.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum Payload {
    /// Serve this pod; the packet carries its network namespace.
    #[prost(message, tag = "1")]
    Add(Add),
    /// Serve it no more.
    #[prost(message, tag = "2")]
    Del(Del),
    /// All pods have been named; others are gone.
    #[prost(message, tag = "3")]
    SnapshotSent(SnapshotSent),
    /// Go on serving this pod, whose namespace the agent does not hold.
    #[prost(message, tag = "5")]
    Keep(Keep),
}

/// A pod to serve.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Add {
    /// Kubernetes UID.
    #[prost(string, tag = "1")]
    pub uid: String,
    /// Who it is.
    #[prost(message, optional, tag = "2")]
    pub workload: Option<WorkloadInfo>,
}

/// Who a pod is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WorkloadInfo {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Kubernetes namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Service account.
    #[prost(string, tag = "3")]
    pub service_account: String,
}

/// A pod to go on serving.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Keep {
    /// Kubernetes UID.
    #[prost(string, tag = "1")]
    pub uid: String,
}

/// A pod to serve no more.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Del {
    /// Kubernetes UID. Its tag is 2, unlike in the other messages.
    #[prost(string, tag = "2")]
    pub uid: String,
}

/// The end of the snapshot.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SnapshotSent {}

/// From the proxy to the agent: one for each request, in order.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Response {
    /// The only kind.
    #[prost(message, optional, tag = "1")]
    pub ack: Option<Ack>,
}

/// Outcome of a request.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Ack {
    /// Empty on success.
    #[prost(string, tag = "1")]
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_those_of_the_real_proxy() {
        let ack = Response {
            ack: Some(Ack::default()),
        };
        assert_eq!(ack.encode_to_vec(), [0x0a, 0]);
        let del = Request {
            payload: Some(Payload::Del(Del { uid: "u".into() })),
        };
        assert_eq!(del.encode_to_vec(), [0x12, 3, 0x12, 1, b'u']);
        let snapshot = Request {
            payload: Some(Payload::SnapshotSent(SnapshotSent {})),
        };
        assert_eq!(snapshot.encode_to_vec(), [0x1a, 0]);
        let keep = Request {
            payload: Some(Payload::Keep(Keep { uid: "u".into() })),
        };
        assert_eq!(keep.encode_to_vec(), [0x2a, 3, 0x0a, 1, b'u']);
        assert_eq!(Hello { version: VERSION }.encode_to_vec(), [0x08, 1]);
    }
}
