//! What should be true of one pod: the catalog's answer, which the plan compares with what is.

use std::net::IpAddr;

use crate::enrolment::{Options, Reason};
use crate::ids::{NetworkName, PodRef};

/// What should be true of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "most pods of a mesh are captured, and a node has few"
)]
pub enum Wish {
    /// There is no such pod on this node: nothing of it may be left.
    Gone,
    /// The pod is here and not captured.
    Outside(Reason),
    /// The pod is captured.
    Captured(Capture),
}

/// A pod that should be captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// UID, namespace, name.
    pub pod: PodRef,
    /// Its service account.
    pub service_account: String,
    /// The network of its addresses.
    pub network: NetworkName,
    /// Its addresses, in the order of its status, without those that a newer pod has. May be empty.
    pub addresses: Vec<IpAddr>,
    /// Its addresses that a newer pod has, and that pod.
    pub lost: Vec<(IpAddr, PodRef)>,
    /// How it is captured.
    pub options: Options,
}
