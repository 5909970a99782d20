//! All maps. Layouts are in agent-common; docs/bpftool.md shows how to read each.

use agent_common::address::{AddressKey, AddressOwner};
use agent_common::counters::PodCounters;
use agent_common::dns::Asked;
use agent_common::flow::{Flow, Handover, Socket, Trusted};
use agent_common::limits;
use agent_common::pod::{NetnsKey, NetworkName, Pod, PodName, Settings};
use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::btf_maps::{Array, HashMap, PerCpuHashMap, SkStorage};
use aya_ebpf::macros::btf_map;

use crate::listeners::Listeners;

/// Entries cost memory only while they exist.
const ON_DEMAND: usize = BPF_F_NO_PREALLOC as usize;

/// Enrolled pods by network namespace: the one question that every hook asks first.
#[btf_map]
pub(crate) static PODS: HashMap<NetnsKey, Pod, { limits::PODS }, ON_DEMAND> = HashMap::new();

/// Addresses of enrolled pods.
#[btf_map]
pub(crate) static ADDRESSES: HashMap<AddressKey, AddressOwner, { limits::ADDRESSES }, ON_DEMAND> =
    HashMap::new();

/// Names of enrolled pods, for people; no program reads it.
#[btf_map]
pub(crate) static NAMES: HashMap<NetnsKey, PodName, { limits::PODS }, ON_DEMAND> = HashMap::new();

/// Names of networks by id, for people and for a restarted agent; no program reads it.
#[btf_map]
pub(crate) static NETWORKS: HashMap<u32, NetworkName, { limits::NETWORKS }, ON_DEMAND> = HashMap::new();

/// The node itself.
#[btf_map]
pub(crate) static SETTINGS: Array<Settings, 1> = Array::new();

/// The proxy's listeners for inbound connections.
#[btf_map]
pub(crate) static LISTENERS: Listeners = Listeners::new();

/// From connect to accept: what one socket tells the other.
#[btf_map]
pub(crate) static HANDOVER: HashMap<Flow, Handover, { limits::HANDOVERS }, ON_DEMAND> = HashMap::new();

/// Connections that `inbound` lets pass.
#[btf_map]
pub(crate) static TRUSTED: HashMap<Flow, Trusted, { limits::TRUSTED }, ON_DEMAND> = HashMap::new();

/// What each socket is to us.
#[btf_map]
pub(crate) static SOCKETS: SkStorage<Socket> = SkStorage::new();

/// Name servers that each unconnected socket has asked.
#[btf_map]
pub(crate) static ASKED: SkStorage<Asked> = SkStorage::new();

/// Decisions by pod, of the node itself, and of pods that are gone.
#[btf_map]
pub(crate) static COUNTERS: PerCpuHashMap<NetnsKey, PodCounters, { limits::PODS + 2 }, ON_DEMAND> =
    PerCpuHashMap::new();
