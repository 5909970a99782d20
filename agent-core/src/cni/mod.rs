//! What the CNI plugin reads and says: its configuration, what the runtime tells of the pod, results, errors, and the
//! event that it posts to the agent. CNI specification 1.1.0; names and wire format of Istio's plugin. In reading order:

pub mod version;
pub mod error;
pub mod policy;
pub mod log;

pub mod config;
pub mod args;
pub mod result;
pub mod event;
