//! The datapath: loads or adopts everything at start, then captures and releases pods.

mod repair;

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use agent_core::entry::{NetnsCookie, PodEntry};
use agent_core::ids::{NetworkName, PodUid};
use agent_core::predecessor::{Cleared, Clearing};

use super::cgroups::{holds_pods, open_cgroup};
use super::clearing;
use super::links::{self, Outcome};
use super::listeners;
use super::namespaces::{Namespaces, needed};
use super::object::Object;
use super::pins::{Pins, PinsError, is_bpffs, names, unpin};
use super::plan::{CgroupProgram, INBOUND, NODE, PROXY};
use super::program_log::ProgramLog;
use super::store::Store;
use super::tables::Tables;
use super::versions::{self, Begun};
use crate::ports::{Datapath, Netns, PortError, ProxyPeer, Repaired};
use crate::sys::bpf::AttachType;

/// Where the datapath works.
#[derive(Clone, Debug)]
pub struct Config {
    /// A bpffs, or a folder within one.
    pub bpffs: PathBuf,
    /// A bpffs may be mounted there if there is none.
    pub may_mount: bool,
    /// The node's root cgroup (v2): the programs see the processes in and below it.
    pub cgroup_root: PathBuf,
    /// Cookie of the node's own network namespace.
    pub node_netns: NetnsCookie,
    /// Network that the node's own processes are in.
    pub node_network: NetworkName,
    /// Where `/proc` of the node is.
    pub proc_root: PathBuf,
    /// The programs tell each decision, see [`KernelDatapath::take_program_log`].
    pub program_log: bool,
}

/// The kernel side of the agent.
pub struct KernelDatapath {
    config: Config,
    pins: Pins,
    object: Object,
    store: Store,
    namespaces: Namespaces,
    /// Held while this process works on the pins.
    lock: File,
    /// Cgroups of proxies that were attached, by id.
    proxies: HashMap<u64, PathBuf>,
}

/// What the start found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// The version of the layouts that was taken over from.
    pub upgraded_from: Option<u32>,
    /// Versions of the layouts whose leftovers were removed.
    pub leftovers: Vec<u32>,
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
            mounted_bpffs: pins.prepare(config.may_mount).map_err(|error| failed(&error))?,
            ..Start::default()
        };
        let lock = pins.lock().map_err(|error| failed(&error))?;
        let Begun { from, removed } = versions::begin(&pins).map_err(|error| failed(&error))?;
        start.leftovers = removed;
        let object = Object::load(&pins, config.program_log).map_err(|error| failed(&error))?;
        if let Some(from) = &from {
            from.take_rows_and_links().map_err(|error| failed(&error))?;
            start.upgraded_from = Some(from.version);
        }
        let tables = Tables::open(&pins).map_err(|error| failed(&error))?;
        let store = Store::open(tables, config.node_network.clone())?;
        let mut datapath = Self {
            store,
            namespaces: Namespaces::default(),
            lock,
            proxies: HashMap::new(),
            config,
            pins,
            object,
        };
        datapath.store.write_settings(datapath.config.node_netns)?;
        datapath.attach_node(&mut start)?;
        datapath.adopt_proxies(&mut start)?;
        datapath.adopt_pods(&mut start)?;
        if let Some(from) = from {
            from.finish().map_err(|error| failed(&error))?;
        }
        Ok((datapath, start))
    }

    /// What the programs tell, to be read while they run; `None` when that is not wanted.
    ///
    /// # Errors
    /// When it was taken before.
    pub fn take_program_log(&mut self) -> Result<Option<ProgramLog>, PortError> {
        let wanted = self.config.program_log.then(|| self.object.take_log());
        wanted
            .transpose()
            .map_err(|error| error_of("read", "programs' log", &error, false))
    }

    fn attach_node(&self, start: &mut Start) -> Result<(), PortError> {
        let root = &self.config.cgroup_root;
        let (cgroup, id) = open_cgroup(root).map_err(|error| {
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

    /// Whether the cgroup with this id was removed. The kernel detaches its links only a moment later.
    fn is_removed(&self, id: &str) -> bool {
        let known = id.parse().ok().and_then(|id| Some((id, self.proxies.get(&id)?)));
        known.is_some_and(|(id, path)| open_cgroup(path).map_or(true, |(_, now)| now != id))
    }

    fn remove_dead_proxies(&self) -> Result<usize, PortError> {
        let mut removed = 0;
        for name in names(&self.pins.proxies()).map_err(|error| pins_error(&error))? {
            let folder = self.pins.proxies().join(&name);
            let pinned = names(&folder).map_err(|error| pins_error(&error))?;
            let is_live = |program: &String| !links::is_dead(&folder.join(program));
            if !self.is_removed(&name) && pinned.iter().any(is_live) {
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

    /// Gives the links of pods this build's program; removes those whose network namespace is gone, and those that belong
    /// to no pod: the agent died between attaching and capturing.
    fn adopt_pods(&mut self, start: &mut Start) -> Result<(), PortError> {
        start.pods = self.store.adopt()?;
        for (key, row) in self.store.tables.names.iter().filter_map(Result::ok) {
            self.namespaces.adopt(NetnsCookie(key.netns), row.changed);
        }
        for name in names(&self.pins.pod_links()).map_err(|error| pins_error(&error))? {
            let pin = self.pins.pod_links().join(&name);
            let adopted = match name.parse().map(NetnsCookie) {
                Ok(netns) if self.store.knows(netns) && !links::is_dead(&pin) => {
                    let program = self.object.inbound_for(netns);
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
        Ok(())
    }

    /// Makes the changes to the pod's network namespace that it needs, recorded before they are made.
    fn change_namespace(&mut self, netns: &Netns, entry: &PodEntry) -> Result<(), PortError> {
        let (needed, changed) = (needed(entry), self.namespaces.changed(netns.cookie));
        if needed == 0 && changed == 0 {
            return Ok(());
        }
        if !self.store.knows(netns.cookie) {
            self.store.announce(entry, needed | changed)?;
        }
        self.namespaces
            .change(netns, needed)
            .map_err(|error| error_of("prepare the network namespace", &entry.pod, &error, true))
    }
}

impl Datapath for KernelDatapath {
    fn attach(&mut self, netns: &Netns, entry: &PodEntry) -> Result<(), PortError> {
        let not_mounted = PinsError::NotMounted(self.config.bpffs.clone());
        let failed = |error: &dyn Display| {
            let is_there = is_bpffs(&self.config.bpffs);
            let cause = if is_there { error } else { &not_mounted };
            error_of("attach to the network namespace", &entry.pod, cause, true)
        };
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
        self.change_namespace(netns, entry)
    }

    fn capture(&mut self, entry: &PodEntry) -> Result<(), PortError> {
        self.store.write(entry, self.namespaces.changed(entry.netns))
    }

    fn release(&mut self, uid: &PodUid) -> Result<(), PortError> {
        self.store.remove(uid)
    }

    fn detach(&mut self, netns: NetnsCookie) -> Result<(), PortError> {
        unpin(&self.pins.pod_link(netns)).map_err(|error| pins_error(&error))?;
        let object = || format!("network namespace {}", netns.0);
        self.namespaces
            .undo(netns)
            .map_err(|error| error_of("change back", object(), &error, true))?;
        self.store.forget(netns)
    }

    fn has_rules(&self, netns: &Netns) -> Result<bool, PortError> {
        let object = || format!("network namespace {}", netns.cookie.0);
        clearing::has_rules(netns).map_err(|error| error_of(clearing::LOOK, object(), &error, true))
    }

    fn clear(
        &mut self,
        netns: NetnsCookie,
        held: Option<&Netns>,
        clearing: Clearing,
    ) -> Result<Cleared, PortError> {
        let held = held.filter(|held| held.cookie == netns).cloned();
        let found = held.map_or_else(|| self.namespaces.find(netns), |held| Ok(Some(held)));
        let cleared = found.and_then(|found| match found {
            Some(netns) => clearing::clear(&netns, clearing),
            None => Ok(Cleared::Gone),
        });
        let object = || format!("network namespace {}", netns.0);
        cleared.map_err(|error| error_of(clearing::CLEAR, object(), &error, true))
    }

    fn captured(&self) -> Result<Vec<PodEntry>, PortError> {
        self.store
            .tables
            .entries()
            .map_err(|error| error_of("read", "maps", &error, true))
    }

    fn sweep(&mut self) -> Result<usize, PortError> {
        self.store.sweep()
    }

    fn repair(&mut self) -> Result<Repaired, PortError> {
        self.make_again()
    }

    fn attach_proxy(&mut self, peer: &ProxyPeer) -> Result<usize, PortError> {
        let object = || format!("proxy {} in {}", peer.pid, peer.cgroup.display());
        let (cgroup, id) =
            open_cgroup(&peer.cgroup).map_err(|error| error_of("open the cgroup", object(), &error, true))?;
        if self.config.cgroup_root.starts_with(&peer.cgroup) {
            let cause = "it is the node's root cgroup, so every process would count as the proxy; \
                         start the proxy in a cgroup of its own";
            return Err(error_of("attach", object(), &cause, false));
        }
        if holds_pods(&peer.cgroup) {
            let cause = "pods are below its cgroup, so their processes would count as the proxy; \
                         start the proxy in a cgroup of its own";
            return Err(error_of("attach", object(), &cause, false));
        }
        self.proxies.insert(id, peer.cgroup.clone());
        let folder = self.pins.proxy_links(id);
        std::fs::create_dir_all(&folder).map_err(|error| error_of("make", folder.display(), &error, true))?;
        let mut start = Start::default();
        for program in PROXY {
            if !links::is_attached(&folder.join(program.name), id) {
                self.attach_program(&folder, *program, &cgroup, id, &mut start)?;
            }
        }
        listeners::adopt(&mut self.store.tables.listeners, peer.pid, &self.config.proc_root)
            .map_err(|error| error_of("adopt the listeners", object(), &error, true))
    }

    fn retire_proxies(&mut self, alive: &[ProxyPeer]) -> Result<(), PortError> {
        self.remove_dead_proxies()?;
        self.proxies
            .retain(|id, path| open_cgroup(path).is_ok_and(|(_, now)| now == *id));
        let mut outcome = Ok(());
        for peer in alive {
            match listeners::adopt(&mut self.store.tables.listeners, peer.pid, &self.config.proc_root) {
                Ok(_) => {}
                // It has ended meanwhile: its connection tells so next.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => {
                    let object = format!("proxy {}", peer.pid);
                    outcome = Err(error_of("adopt the listeners", object, &error, true));
                }
            }
        }
        outcome
    }
}

fn pins_error(error: &PinsError) -> PortError {
    error_of("change", "pins", error, true)
}

/// An error of this module.
pub(super) fn error_of(
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
