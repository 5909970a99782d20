//! The rules of the agent, pure: no I/O, no clock, no kernel, no Kubernetes client.
//!
//! In reading order: [`ids`], [`facts`], [`labels`], [`selector`], [`enrolment`],
//! [`cgroup_path`], [`entry`].

pub mod cgroup_path;
pub mod enrolment;
pub mod entry;
pub mod facts;
pub mod ids;
pub mod labels;
pub mod selector;

#[cfg(test)]
mod samples;
