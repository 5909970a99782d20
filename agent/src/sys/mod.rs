//! The only unsafe code of the agent: system calls that no library offers.

pub mod bpf;
