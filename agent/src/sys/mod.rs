//! System calls that no library offers in a safe way: the only unsafe code of the agent.

pub mod bpf;
pub mod memory;
pub mod socket;
pub mod xtables;
