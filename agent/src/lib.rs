//! The node agent `meshgate`. In reading order:

pub mod ports;
pub mod chain;
mod blocking;
mod pod_log;
pub mod sys;
pub mod cgroup_ns;
pub mod socket_file;
pub mod inotify;
pub mod kept_socket;
mod http;
pub mod netns;
pub mod predecessor;
pub mod datapath;
pub mod zds;
pub mod source;
pub mod enrol;
pub mod cni;
pub mod install;
pub mod ops;
pub mod config;
pub mod report;
pub mod lock;
pub mod app;
pub mod cli;
