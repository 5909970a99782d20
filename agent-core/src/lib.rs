//! The rules of the agent, pure: no I/O, no clock, no kernel, no Kubernetes client.
//!
//! In reading order: [`ids`], [`facts`], [`labels`], [`selector`], [`enrolment`], [`network`], [`address`], [`wish`],
//! [`catalog`], [`predecessor`], [`plan`], [`problem`], [`cgroup_path`], [`entry`], [`cni`],
//! [`announce`], [`log_level`], [`departure`], [`layout_version`].

pub mod address;
pub mod announce;
pub mod catalog;
pub mod cgroup_path;
pub mod cni;
pub mod departure;
pub mod enrolment;
pub mod entry;
pub mod facts;
pub mod ids;
pub mod labels;
pub mod layout_version;
pub mod log_level;
pub mod network;
pub mod plan;
pub mod predecessor;
pub mod problem;
pub mod selector;
pub mod wish;

#[cfg(test)]
mod samples;
