//! The feature table: what the datapath needs of the kernel, since which version, how to find out, what is lost
//! without it. One table for `preflight`, for tests and for docs/kernels.md.

use aya_obj::generated::bpf_insn;

use crate::sys::bpf::{AttachType, ProgramType, refusal};

/// Something that the kernel must offer.
pub struct Feature {
    /// In the kernel's words.
    pub name: &'static str,
    /// First Linux with it.
    pub since: (u32, u32),
    /// How to find out.
    probe: Probe,
    /// What does not work without it.
    pub without: &'static str,
    /// The agent cannot start without it.
    pub needed: bool,
}

/// How to find out whether a feature is there.
enum Probe {
    /// The kernel takes a program of this type for this hook.
    Hook(ProgramType, AttachType),
    /// Such a program may call this helper (number as in uapi/linux/bpf.h).
    Helper(ProgramType, AttachType, i32),
    /// A file is there.
    File(&'static str),
    /// The version decides: the kernel does not tell before it is used.
    Version,
}

const SOCK_ADDR: ProgramType = ProgramType::BPF_PROG_TYPE_CGROUP_SOCK_ADDR;
const SOCK_OPS: ProgramType = ProgramType::BPF_PROG_TYPE_SOCK_OPS;
const SOCKOPT: ProgramType = ProgramType::BPF_PROG_TYPE_CGROUP_SOCKOPT;
const CONNECT4: AttachType = AttachType::BPF_CGROUP_INET4_CONNECT;
const SENDMSG4: AttachType = AttachType::BPF_CGROUP_UDP4_SENDMSG;

/// `bpf_sk_storage_get`.
const SK_STORAGE_GET: i32 = 107;
/// `bpf_setsockopt`.
const SETSOCKOPT: i32 = 49;
/// `bpf_sk_lookup_udp`.
const SK_LOOKUP_UDP: i32 = 85;
/// `bpf_bind`.
const BIND: i32 = 64;
/// `bpf_get_netns_cookie`.
const GET_NETNS_COOKIE: i32 = 122;
/// `bpf_set_retval`.
const SET_RETVAL: i32 = 187;

/// `bpf_skc_to_mptcp_sock`.
const SKC_TO_MPTCP_SOCK: i32 = 196;

/// All features, oldest first.
pub const FEATURES: &[Feature] = &[
    needed(
        "kernel BTF (CONFIG_DEBUG_INFO_BTF)",
        (5, 2),
        Probe::File("/sys/kernel/btf/vmlinux"),
        "maps are not readable by name",
    ),
    needed(
        "connect hooks in cgroups",
        (4, 17),
        Probe::Hook(SOCK_ADDR, CONNECT4),
        "no outbound capture",
    ),
    needed(
        "bpf_bind in connect hooks",
        (4, 17),
        Probe::Helper(SOCK_ADDR, CONNECT4, BIND),
        "the proxy does not see the pod's address",
    ),
    needed(
        "sendmsg hooks in cgroups",
        (4, 18),
        Probe::Hook(SOCK_ADDR, SENDMSG4),
        "no DNS capture",
    ),
    needed(
        "look-up of UDP sockets in connect hooks (bpf_sk_lookup_udp)",
        (5, 0),
        Probe::Helper(SOCK_ADDR, CONNECT4, SK_LOOKUP_UDP),
        "no DNS capture where lo has no IPv6",
    ),
    needed(
        "recvmsg hooks in cgroups",
        (5, 2),
        Probe::Hook(SOCK_ADDR, AttachType::BPF_CGROUP_UDP4_RECVMSG),
        "answers to DNS questions come from the proxy in place of the name server",
    ),
    needed(
        "getsockopt hooks in cgroups",
        (5, 3),
        Probe::Hook(SOCKOPT, AttachType::BPF_CGROUP_GETSOCKOPT),
        "the proxy cannot learn original destinations",
    ),
    needed(
        "getpeername hooks in cgroups",
        (5, 8),
        Probe::Hook(SOCK_ADDR, AttachType::BPF_CGROUP_INET4_GETPEERNAME),
        "applications see the proxy in place of their peers",
    ),
    needed(
        "socket storage in connect hooks",
        (5, 8),
        Probe::Helper(SOCK_ADDR, CONNECT4, SK_STORAGE_GET),
        "no outbound capture",
    ),
    needed(
        "sk_lookup in network namespaces",
        (5, 9),
        Probe::Hook(ProgramType::BPF_PROG_TYPE_SK_LOOKUP, AttachType::BPF_SK_LOOKUP),
        "no inbound capture",
    ),
    needed(
        "bpf_setsockopt in sendmsg hooks",
        (5, 12),
        Probe::Helper(SOCK_ADDR, SENDMSG4, SETSOCKOPT),
        "no DNS from sockets that are bound to a device",
    ),
    needed(
        "SO_NETNS_COOKIE",
        (5, 14),
        Probe::Version,
        "pods cannot be told apart",
    ),
    needed(
        "netns cookie in sock_ops",
        (5, 15),
        Probe::Helper(SOCK_OPS, AttachType::BPF_CGROUP_SOCK_OPS, GET_NETNS_COOKIE),
        "no hand-over of original destinations",
    ),
    needed(
        "result of a system call from a hook (bpf_set_retval)",
        (5, 18),
        Probe::Helper(SOCK_ADDR, CONNECT4, SET_RETVAL),
        "a pod without IPv6 gets EPERM in place of ENETUNREACH",
    ),
    needed(
        "multipath sockets in connect hooks",
        (5, 19),
        Probe::Helper(SOCK_ADDR, CONNECT4, SKC_TO_MPTCP_SOCK),
        "no outbound capture",
    ),
    Feature {
        name: "SO_REUSEADDR from programs (bpf_setsockopt)",
        since: (6, 1),
        probe: Probe::Version,
        without: "an application that starts again while it has connections may get EADDRINUSE",
        needed: false,
    },
];

const fn needed(name: &'static str, since: (u32, u32), probe: Probe, without: &'static str) -> Feature {
    Feature {
        name,
        since,
        probe,
        without,
        needed: true,
    }
}

impl Feature {
    /// Whether this kernel has it; `None` when this process may not ask, for want of CAP_BPF or CAP_NET_ADMIN.
    #[must_use]
    pub fn is_present(&self, kernel: (u32, u32)) -> Option<bool> {
        match self.probe {
            Probe::Hook(kind, hook) => {
                answer(refusal((kind, hook), &[set_result(1), exit()]).as_deref(), |_| {
                    false
                })
            }
            Probe::Helper(kind, hook, helper) => answer(
                refusal((kind, hook), &[call(helper), set_result(1), exit()]).as_deref(),
                knows_helper,
            ),
            Probe::File(path) => Some(std::path::Path::new(path).exists()),
            Probe::Version => Some(kernel >= self.since),
        }
    }
}

/// What a probe tells: without a refusal the feature is there, else its log decides.
fn answer(refusal: Option<&str>, decide: impl FnOnce(&str) -> bool) -> Option<bool> {
    match refusal {
        None => Some(true),
        Some(log) if log.starts_with("Operation not permitted") => None,
        Some(log) => Some(decide(log)),
    }
}

/// The probes call helpers without arguments: a kernel that has the helper complains of those, not of the helper.
fn knows_helper(log: &str) -> bool {
    let unknown = [
        "unknown func",
        "invalid func",
        "cannot use helper",
        "cannot call",
        "Invalid argument (os error 22)\n\n",
    ];
    !unknown.iter().any(|text| log.contains(text))
}

/// Version of the running kernel, from its release text (`uname -r`).
#[must_use]
pub fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn instruction(code: u8, imm: i32) -> bpf_insn {
    bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: aya_obj::generated::__BindgenBitfieldUnit::new([0]),
        off: 0,
        imm,
    }
}

/// `r0 = value`.
fn set_result(value: i32) -> bpf_insn {
    instruction(0xb7, value)
}

/// `call helper`.
fn call(helper: i32) -> bpf_insn {
    instruction(0x85, helper)
}

/// `exit`.
fn exit() -> bpf_insn {
    instruction(0x95, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_all_kinds_are_understood() {
        assert_eq!(kernel_version("6.18.44-generic"), Some((6, 18)));
        assert_eq!(kernel_version("5.14.0-427.el9.x86_64"), Some((5, 14)));
        assert_eq!(kernel_version("weird"), None);
    }

    #[test]
    fn who_may_not_ask_does_not_know() {
        assert_eq!(answer(None, |_| false), Some(true));
        assert_eq!(
            answer(Some("Operation not permitted (os error 1)\n"), |_| true),
            None
        );
        assert_eq!(
            answer(Some("Invalid argument (os error 22)\n"), |_| false),
            Some(false)
        );
    }

    #[test]
    fn a_complaint_of_arguments_means_that_the_helper_is_there() {
        assert!(knows_helper(
            "Permission denied (os error 13)\n0: (85) call bpf_bind#64\nR1 type=scalar expected=ctx"
        ));
        assert!(!knows_helper(
            "Invalid argument (os error 22)\nunknown func bpf_set_retval#187"
        ));
        assert!(!knows_helper(
            "Invalid argument (os error 22)\nprogram of this type cannot use helper bpf_bind#64"
        ));
    }
}
