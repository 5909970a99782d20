//! What is attached where, as data: the same table drives loading, adoption, status and cleanup.

use crate::sys::bpf::AttachType;

/// A cgroup program and its hook.
#[derive(Clone, Copy, Debug)]
pub struct CgroupProgram {
    /// Name of the program in the object, of its link's pin, and in `bpftool prog`.
    pub name: &'static str,
    /// Its hook.
    pub hook: AttachType,
}

const fn program(name: &'static str, hook: AttachType) -> CgroupProgram {
    CgroupProgram { name, hook }
}

/// At the node's root cgroup, once. `app_sendmsg*` and `app_connect*` come last: while they are missing nothing is
/// captured, and when they are there everything that they rely on is.
pub const NODE: &[CgroupProgram] = &[
    program("node_sockets", AttachType::BPF_CGROUP_SOCK_OPS),
    program("app_peername4", AttachType::BPF_CGROUP_INET4_GETPEERNAME),
    program("app_peername6", AttachType::BPF_CGROUP_INET6_GETPEERNAME),
    program("app_sockname4", AttachType::BPF_CGROUP_INET4_GETSOCKNAME),
    program("app_sockname6", AttachType::BPF_CGROUP_INET6_GETSOCKNAME),
    program("app_recvmsg4", AttachType::BPF_CGROUP_UDP4_RECVMSG),
    program("app_recvmsg6", AttachType::BPF_CGROUP_UDP6_RECVMSG),
    program("app_bind4", AttachType::BPF_CGROUP_INET4_BIND),
    program("app_bind6", AttachType::BPF_CGROUP_INET6_BIND),
    program("app_sendmsg4", AttachType::BPF_CGROUP_UDP4_SENDMSG),
    program("app_sendmsg6", AttachType::BPF_CGROUP_UDP6_SENDMSG),
    program("app_connect4", AttachType::BPF_CGROUP_INET4_CONNECT),
    program("app_connect6", AttachType::BPF_CGROUP_INET6_CONNECT),
];

/// At the cgroup of each proxy.
pub const PROXY: &[CgroupProgram] = &[
    program("proxy_connect4", AttachType::BPF_CGROUP_INET4_CONNECT),
    program("proxy_connect6", AttachType::BPF_CGROUP_INET6_CONNECT),
    program("proxy_sendmsg4", AttachType::BPF_CGROUP_UDP4_SENDMSG),
    program("proxy_sendmsg6", AttachType::BPF_CGROUP_UDP6_SENDMSG),
    program("proxy_bind4", AttachType::BPF_CGROUP_INET4_BIND),
    program("proxy_bind6", AttachType::BPF_CGROUP_INET6_BIND),
    program("proxy_setopt", AttachType::BPF_CGROUP_SETSOCKOPT),
    program("proxy_getopt", AttachType::BPF_CGROUP_GETSOCKOPT),
    program("proxy_sockets", AttachType::BPF_CGROUP_SOCK_OPS),
];

/// In the network namespace of each pod, one copy for each.
pub const INBOUND: &str = "inbound";

/// All maps, in the order in which the CLI shows them.
pub const MAPS: &[&str] = &[
    "PODS",
    "ADDRESSES",
    "NAMES",
    "NETWORKS",
    "SETTINGS",
    "LISTENERS",
    "HANDOVER",
    "TRUSTED",
    "SOCKETS",
    "ASKED",
    "COUNTERS",
];
