//! The datapath: loads or adopts everything at start, then captures and releases pods.

use std::collections::HashMap;
use std::fmt::Display;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use agent_common::address::{AddressKey, AddressOwner};
use agent_common::counters::PodCounters;
use agent_common::pod::{NetnsKey, Settings};
use agent_core::entry::{NetnsCookie, PodEntry};
use agent_core::ids::{NetworkName, PodUid};
use aya::maps::{MapError, PerCpuValues};

use super::links::{self, Outcome};
use super::object::Object;
use super::pins::{Pins, names, unpin};
use super::plan::{CgroupProgram, INBOUND, NODE, PROXY};
use super::tables::Tables;
use super::{listeners, rows, wire};
use crate::ports::{Datapath, Netns, PortError, ProxyPeer};
use crate::sys::bpf::AttachType;

/// `BPF_ANY`: make or replace.
const ANY: u64 = 0;

/// Where the datapath works.
#[derive(Clone, Debug)]
pub struct Config {
    /// A bpffs, or a folder within one.
    pub bpffs: PathBuf,
    /// The node's root cgroup (v2): the programs see the processes in and below it.
    pub cgroup_root: PathBuf,
    /// Cookie of the node's own network namespace.
    pub node_netns: NetnsCookie,
    /// Network that the node's own processes are in.
    pub node_network: NetworkName,
    /// Where `/proc` of the node is.
    pub proc_root: PathBuf,
}

/// The kernel side of the agent.
pub struct KernelDatapath {
    config: Config,
    pins: Pins,
    object: Object,
    tables: Tables,
    networks: HashMap<NetworkName, u32>,
    entries: HashMap<PodUid, PodEntry>,
    /// Namespaces that `wire` mode changed, held open so that it can be undone.
    wired: HashMap<NetnsCookie, Netns>,
}

/// What the start found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// A bpffs was mounted.
    pub mounted_bpffs: bool,
    /// Links that were there and have this build's programs now.
    pub adopted: usize,
    /// Links that were made.
    pub attached: usize,
    /// Links that were removed because what they were attached to is gone.
    pub removed: usize,
    /// Pods that the maps hold.
    pub pods: usize,
}

impl KernelDatapath {
    /// Loads the programs, makes or adopts maps and links. What is captured stays captured meanwhile.
    ///
    /// # Errors
    /// When the kernel or the file system refuses; what was there before is left as it was.
    pub fn open(config: Config) -> Result<(Self, Start), PortError> {
        let failed = |error: &dyn Display| error_of("start", "datapath", error, true);
        let pins = Pins::new(&config.bpffs);
        let mut start = Start {
            mounted_bpffs: pins.prepare().map_err(|error| failed(&error))?,
            ..Start::default()
        };
        let object = Object::load(&pins).map_err(|error| failed(&error))?;
        let tables = Tables::open(&pins).map_err(|error| failed(&error))?;
        let networks = tables.network_names().map_err(|error| failed(&error))?;
        let mut datapath = Self {
            networks: networks.into_iter().map(|(id, name)| (name, id)).collect(),
            entries: HashMap::new(),
            wired: HashMap::new(),
            config,
            pins,
            object,
            tables,
        };
        datapath.write_settings()?;
        datapath.attach_node(&mut start)?;
        datapath.adopt_proxies(&mut start)?;
        datapath.adopt_pods(&mut start)?;
        Ok((datapath, start))
    }

    fn write_settings(&mut self) -> Result<(), PortError> {
        let default = self.intern(&NetworkName::default())?;
        debug_assert_eq!(default, 0, "the unnamed network is interned first");
        let node_network = self.intern(&self.config.node_network.clone())?;
        let settings = Settings {
            node_netns: self.config.node_netns.0,
            node_network,
            reserved: 0,
        };
        self.tables
            .settings
            .set(0, settings, ANY)
            .map_err(|error| map_error("SETTINGS", &error))?;
        let node = NetnsKey { netns: 0 };
        if self.tables.counters.get(&node, 0).is_err() {
            let zero = no_counters().map_err(|error| error_of("count", "node", &error, true))?;
            self.tables
                .counters
                .insert(node, zero, ANY)
                .map_err(|error| map_error("COUNTERS", &error))?;
        }
        Ok(())
    }

    fn attach_node(&self, start: &mut Start) -> Result<(), PortError> {
        let root = &self.config.cgroup_root;
        let (cgroup, id) = links::open_cgroup(root).map_err(|error| {
            let cause = format!("{error}; give the mount of cgroup v2 by --cgroup-root");
            error_of("open the root cgroup", root.display(), &cause, false)
        })?;
        for program in NODE {
            self.attach_program(&self.pins.node_links(), *program, &cgroup, id, start)?;
        }
        Ok(())
    }

    fn attach_program(
        &self,
        folder: &Path,
        program: CgroupProgram,
        cgroup: impl AsFd,
        id: u64,
        start: &mut Start,
    ) -> Result<(), PortError> {
        let failed = |error: &dyn Display| error_of("attach", program.name, error, true);
        let fd = self.object.program(program).map_err(|error| failed(&error))?;
        match links::ensure(&folder.join(program.name), fd, cgroup, program.hook, id) {
            Ok(Outcome::Adopted) => start.adopted += 1,
            Ok(Outcome::Attached) => start.attached += 1,
            Err(error) => return Err(failed(&error)),
        }
        Ok(())
    }

    /// Gives the links of proxies this build's programs; removes those whose cgroup is gone.
    fn adopt_proxies(&self, start: &mut Start) -> Result<(), PortError> {
        for name in names(&self.pins.proxies()).map_err(|error| pins_error(&error))? {
            let folder = self.pins.proxies().join(&name);
            for program in PROXY {
                let pin = folder.join(program.name);
                let fd = self
                    .object
                    .program(*program)
                    .map_err(|error| error_of("adopt", program.name, &error, true))?;
                if links::update(&pin, fd).unwrap_or(false) {
                    start.adopted += 1;
                }
            }
        }
        start.removed += self.remove_dead_proxies()?;
        Ok(())
    }

    fn remove_dead_proxies(&self) -> Result<usize, PortError> {
        let mut removed = 0;
        for name in names(&self.pins.proxies()).map_err(|error| pins_error(&error))? {
            let folder = self.pins.proxies().join(&name);
            let pinned = names(&folder).map_err(|error| pins_error(&error))?;
            if pinned
                .iter()
                .any(|program| !links::is_dead(&folder.join(program)))
            {
                continue;
            }
            for program in &pinned {
                unpin(&folder.join(program)).map_err(|error| pins_error(&error))?;
            }
            std::fs::remove_dir(&folder)
                .map_err(|error| error_of("remove", folder.display(), &error, true))?;
            removed += pinned.len();
        }
        Ok(removed)
    }

    /// Gives the links of pods this build's program; removes those whose network namespace is gone.
    fn adopt_pods(&mut self, start: &mut Start) -> Result<(), PortError> {
        for name in names(&self.pins.pod_links()).map_err(|error| pins_error(&error))? {
            let pin = self.pins.pod_links().join(&name);
            let adopted = match name.parse() {
                Ok(cookie) if !links::is_dead(&pin) => {
                    let program = self.object.inbound_for(NetnsCookie(cookie));
                    let program = program.map_err(|error| error_of("load", INBOUND, &error, true))?;
                    links::update(&pin, program).unwrap_or(false)
                }
                _ => false,
            };
            if adopted {
                start.adopted += 1;
            } else {
                unpin(&pin).map_err(|error| pins_error(&error))?;
                start.removed += 1;
            }
        }
        let entries = self
            .tables
            .entries()
            .map_err(|error| error_of("read", "maps", &error, true))?;
        start.pods = entries.len();
        self.entries = entries
            .into_iter()
            .map(|entry| (entry.pod.uid.clone(), entry))
            .collect();
        Ok(())
    }

    /// The id of a network; a new one gets the lowest free id.
    fn intern(&mut self, network: &NetworkName) -> Result<u32, PortError> {
        if let Some(id) = self.networks.get(network) {
            return Ok(*id);
        }
        let taken: std::collections::BTreeSet<u32> = self.networks.values().copied().collect();
        let id = (0..).find(|id| !taken.contains(id)).unwrap_or(u32::MAX);
        self.tables
            .networks
            .insert(id, rows::network(network), ANY)
            .map_err(|error| map_error("NETWORKS", &error))?;
        self.networks.insert(network.clone(), id);
        Ok(id)
    }

    /// Forgets networks that no pod is in any more.
    fn forget_networks(&mut self) -> Result<(), PortError> {
        let used: Vec<&NetworkName> = self.entries.values().map(|entry| &entry.network).collect();
        let unused: Vec<_> = self
            .networks
            .iter()
            .filter(|(name, id)| **id != 0 && **name != self.config.node_network && !used.contains(name))
            .map(|(name, id)| (name.clone(), *id))
            .collect();
        for (name, id) in unused {
            ignore_missing(self.tables.networks.remove(&id))
                .map_err(|error| map_error("NETWORKS", &error))?;
            self.networks.remove(&name);
        }
        Ok(())
    }

    fn write(&mut self, entry: &PodEntry) -> Result<(), PortError> {
        let network = self.intern(&entry.network)?;
        let key = NetnsKey { netns: entry.netns.0 };
        if self.tables.counters.get(&key, 0).is_err() {
            let zero = no_counters().map_err(|error| error_of("count", &entry.pod, &error, true))?;
            self.tables
                .counters
                .insert(key, zero, ANY)
                .map_err(|error| map_error("COUNTERS", &error))?;
        }
        self.tables
            .names
            .insert(key, rows::name(entry), ANY)
            .map_err(|error| map_error("NAMES", &error))?;
        let addresses = rows::addresses(entry, network);
        for (address, owner) in &addresses {
            self.tables
                .addresses
                .insert(address, owner, ANY)
                .map_err(|error| map_error("ADDRESSES", &error))?;
        }
        // Last: with this row the hooks act.
        self.tables
            .pods
            .insert(key, rows::pod(entry, network), ANY)
            .map_err(|error| map_error("PODS", &error))?;
        match self.entries.get(&entry.pod.uid).cloned() {
            Some(old) if old.netns != entry.netns => self.erase(&old),
            Some(old) => self.remove_addresses(&old, &addresses),
            None => Ok(()),
        }
    }

    /// Removes addresses that a pod had and has no more; those that a newer pod has taken stay.
    fn remove_addresses(
        &mut self,
        old: &PodEntry,
        keep: &[(AddressKey, AddressOwner)],
    ) -> Result<(), PortError> {
        let Some(network) = self.networks.get(&old.network) else {
            return Ok(());
        };
        for (key, _) in rows::addresses(old, *network) {
            let own = self
                .tables
                .addresses
                .get(&key, 0)
                .is_ok_and(|owner| owner.netns == old.netns.0);
            if own && !keep.iter().any(|(kept, _)| *kept == key) {
                ignore_missing(self.tables.addresses.remove(&key))
                    .map_err(|error| map_error("ADDRESSES", &error))?;
            }
        }
        Ok(())
    }

    /// Takes back what `wire` mode changed in a namespace.
    fn unwire(&mut self, netns: NetnsCookie) -> Result<(), PortError> {
        let Some(open) = self.wired.get(&netns) else {
            return Ok(());
        };
        let object = || format!("network namespace {}", netns.0);
        wire::remove(open).map_err(|error| error_of("undo wire mode", object(), &error, true))?;
        self.wired.remove(&netns);
        Ok(())
    }

    /// Removes all rows of a network namespace, `PODS` first: from there on its connections go their own way.
    fn erase(&mut self, entry: &PodEntry) -> Result<(), PortError> {
        let key = NetnsKey { netns: entry.netns.0 };
        ignore_missing(self.tables.pods.remove(&key)).map_err(|error| map_error("PODS", &error))?;
        self.remove_addresses(entry, &[])?;
        ignore_missing(self.tables.counters.remove(&key)).map_err(|error| map_error("COUNTERS", &error))?;
        // Last: while it is there, a restarted agent knows that something may be left of this pod.
        ignore_missing(self.tables.names.remove(&key)).map_err(|error| map_error("NAMES", &error))
    }
}

impl Datapath for KernelDatapath {
    fn attach(&mut self, netns: &Netns, entry: &PodEntry) -> Result<(), PortError> {
        let failed =
            |error: &dyn Display| error_of("attach to the network namespace", &entry.pod, error, true);
        let pin = self.pins.pod_link(netns.cookie);
        let inode = rustix::fs::fstat(netns).map_err(|error| failed(&error))?.st_ino;
        if !entry.inbound {
            unpin(&pin).map_err(|error| failed(&error))?;
        } else if !links::is_attached(&pin, inode) {
            let program = self
                .object
                .inbound_for(netns.cookie)
                .map_err(|error| failed(&error))?;
            links::ensure(&pin, program, netns, AttachType::BPF_SK_LOOKUP, inode)
                .map_err(|error| failed(&error))?;
        }
        if entry.wire {
            self.wired.insert(netns.cookie, netns.clone());
            wire::add(netns).map_err(|error| failed(&error))
        } else {
            self.unwire(netns.cookie)
        }
    }

    fn capture(&mut self, entry: &PodEntry) -> Result<(), PortError> {
        let known = self.entries.contains_key(&entry.pod.uid);
        if let Err(error) = self.write(entry) {
            if !known {
                self.erase(entry)?;
            }
            return Err(error);
        }
        self.entries.insert(entry.pod.uid.clone(), entry.clone());
        self.forget_networks()
    }

    fn release(&mut self, uid: &PodUid) -> Result<(), PortError> {
        let Some(entry) = self.entries.get(uid).cloned() else {
            return Ok(());
        };
        self.erase(&entry)?;
        self.entries.remove(uid);
        self.forget_networks()
    }

    fn detach(&mut self, netns: NetnsCookie) -> Result<(), PortError> {
        unpin(&self.pins.pod_link(netns)).map_err(|error| pins_error(&error))?;
        self.unwire(netns)
    }

    fn captured(&self) -> Result<Vec<PodEntry>, PortError> {
        self.tables
            .entries()
            .map_err(|error| error_of("read", "maps", &error, true))
    }

    fn attach_proxy(&mut self, peer: &ProxyPeer) -> Result<usize, PortError> {
        let object = || format!("proxy {} in {}", peer.pid, peer.cgroup.display());
        let (cgroup, id) = links::open_cgroup(&peer.cgroup)
            .map_err(|error| error_of("open the cgroup", object(), &error, true))?;
        if self.config.cgroup_root.starts_with(&peer.cgroup) {
            let cause = "it is the node's root cgroup, so every process would count as the proxy; \
                         start the proxy in a cgroup of its own";
            return Err(error_of("attach", object(), &cause, false));
        }
        let folder = self.pins.proxy_links(id);
        std::fs::create_dir_all(&folder).map_err(|error| error_of("make", folder.display(), &error, true))?;
        let mut start = Start::default();
        for program in PROXY {
            if !links::is_attached(&folder.join(program.name), id) {
                self.attach_program(&folder, *program, &cgroup, id, &mut start)?;
            }
        }
        listeners::adopt(&mut self.tables.listeners, peer.pid, &self.config.proc_root)
            .map_err(|error| error_of("adopt the listeners", object(), &error, true))
    }

    fn retire_proxies(&mut self, alive: &[ProxyPeer]) -> Result<(), PortError> {
        self.remove_dead_proxies()?;
        for peer in alive {
            listeners::adopt(&mut self.tables.listeners, peer.pid, &self.config.proc_root).map_err(
                |error| error_of("adopt the listeners", format!("proxy {}", peer.pid), &error, true),
            )?;
        }
        Ok(())
    }
}

fn no_counters() -> std::io::Result<PerCpuValues<PodCounters>> {
    let cpus = aya::util::nr_cpus().map_err(|(_, error)| error)?;
    PerCpuValues::try_from(vec![PodCounters::default(); cpus])
}

fn ignore_missing(result: Result<(), MapError>) -> Result<(), MapError> {
    match result {
        Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

fn map_error(name: &'static str, error: &MapError) -> PortError {
    let text = crate::chain::chain(error);
    let full = text.contains("os error 7)") || text.contains("os error 28)");
    let cause = if full {
        format!("the map is full ({text}); remove pods from the mesh or from this node")
    } else {
        text
    };
    error_of("write map", name, &cause, true)
}

fn pins_error(error: &super::pins::PinsError) -> PortError {
    error_of("change", "pins", error, true)
}

fn error_of(
    operation: &'static str,
    object: impl Display,
    cause: &dyn Display,
    retryable: bool,
) -> PortError {
    PortError {
        operation,
        object: object.to_string(),
        cause: cause.to_string(),
        retryable,
    }
}
