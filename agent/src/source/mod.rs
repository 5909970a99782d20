//! Where facts come from: a Kubernetes API server or manifests in files. A source turns objects into
//! [`agent_core::facts::Fact`]s and sends them through a channel; it knows nothing of eBPF or enrolment.
//! In reading order:

pub mod convert;
mod told;

pub mod connection;
pub mod problem;
mod backoff;
mod health;
mod list_watch;
pub mod kube;
pub mod status;

pub mod file;
mod manifest;
mod reading;
mod watched_path;

#[cfg(test)]
mod view;
#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod kube_tests;
#[cfg(test)]
mod real_api_tests;
