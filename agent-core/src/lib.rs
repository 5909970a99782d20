//! The rules of the agent, pure: no I/O, no clock, no kernel, no Kubernetes client. In reading order:

pub mod entry;
pub mod facts;
pub mod ids;
