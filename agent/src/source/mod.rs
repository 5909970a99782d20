//! Where facts come from: a Kubernetes API server or manifests in files. A source turns objects into
//! [`agent_core::facts::Fact`]s and sends them through a channel; it knows nothing of eBPF or enrolment.
//! In reading order:

pub mod convert;
mod told;

mod backoff;
pub mod connection;
mod health;
pub mod kube;
mod telling;
mod own_node;
mod teller;
mod list_watch;
pub mod problem;
pub mod owner;
pub mod status;
pub mod events;

pub mod file;
mod manifest;
mod reading;
mod watched_path;

#[cfg(test)]
mod tests;
