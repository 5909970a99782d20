//! The ports for tests: they note each call in one log, and behave as the test says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use agent_core::entry::{NetnsCookie, PodEntry};
use agent_core::ids::{PodRef, PodUid};
use agent_core::predecessor::{Cleared, Clearing};

use crate::ports::{
    Datapath, FindNetns, Netns, PodStatus, PortError, PortHolder, Proxy, ProxyPeer, Redirection, Repaired,
    Workload,
};

/// How the proxy answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ProxyMode {
    /// There is none.
    #[default]
    Absent,
    /// It takes each pod.
    Accepts,
    /// It takes no pod.
    Refuses,
}

/// Everything outside of the worker.
#[derive(Debug, Default)]
pub(super) struct World {
    /// Calls, each as verb, pod and detail.
    pub(super) log: Vec<String>,
    /// Namespaces of pods that have a process.
    pub(super) netns: BTreeMap<PodUid, u64>,
    /// What the maps hold.
    pub(super) entries: BTreeMap<PodUid, PodEntry>,
    /// How many entries the maps can hold; no limit by default.
    pub(super) room: Option<usize>,
    pub(super) proxy: ProxyMode,
    /// Pods whose add is answered only after five seconds, and then refused.
    pub(super) slow: BTreeSet<PodUid>,
    pub(super) api_fails: bool,
    pub(super) attach_fails: bool,
    /// Namespaces with rules of another agent, and what each attempt to clear them comes to; the last one again and again.
    pub(super) rules: BTreeMap<u64, Vec<Result<Cleared, ()>>>,
    /// Namespaces whose link somebody has removed.
    pub(super) lost: BTreeSet<NetnsCookie>,
    /// Processes that hold the proxy's ports in every pod.
    pub(super) holders: Vec<PortHolder>,
}

/// Shared by all fakes of one test.
#[derive(Clone, Debug, Default)]
pub(super) struct Fake(Arc<Mutex<World>>);

impl Fake {
    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    /// Takes the log.
    pub(super) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.world().log)
    }

    fn note(&self, call: String) {
        self.world().log.push(call);
    }
}

/// An error of a port.
fn error(operation: &'static str, object: &str, cause: &str) -> PortError {
    PortError {
        operation,
        object: object.to_owned(),
        cause: cause.to_owned(),
        retryable: true,
    }
}

/// A namespace with this cookie; the descriptor is of no use.
pub(super) fn netns(cookie: u64) -> Netns {
    let fd = OwnedFd::from(File::open("/dev/null").unwrap());
    Netns {
        fd: Arc::new(fd),
        cookie: NetnsCookie(cookie),
    }
}

impl Datapath for Fake {
    fn attach(&mut self, netns: &Netns, entry: &PodEntry) -> Result<(), PortError> {
        assert_eq!(
            netns.cookie, entry.netns,
            "the descriptor and the entry are of one namespace"
        );
        self.note(format!("attach {} {}", entry.pod.name, entry.netns.0));
        if self.world().attach_fails {
            return Err(error("attach", &entry.pod.name, "the kernel refuses"));
        }
        Ok(())
    }

    fn capture(&mut self, entry: &PodEntry) -> Result<(), PortError> {
        let how = if entry.enabled { "enabled" } else { "closed" };
        self.note(format!("capture {} {how}", entry.pod.name));
        let mut world = self.world();
        let is_new = !world.entries.contains_key(&entry.pod.uid);
        if is_new && world.room.is_some_and(|room| world.entries.len() >= room) {
            return Err(error("capture", &entry.pod.name, "the map is full"));
        }
        world.entries.insert(entry.pod.uid.clone(), entry.clone());
        Ok(())
    }

    fn release(&mut self, uid: &PodUid) -> Result<(), PortError> {
        self.note(format!("release {uid}"));
        self.world().entries.remove(uid);
        Ok(())
    }

    fn repair(&mut self) -> Result<Repaired, PortError> {
        let lost = std::mem::take(&mut self.world().lost);
        Ok(Repaired {
            moved: 0,
            made: Vec::new(),
            lost,
        })
    }

    fn detach(&mut self, netns: NetnsCookie) -> Result<(), PortError> {
        self.note(format!("detach {}", netns.0));
        Ok(())
    }

    fn has_rules(&self, netns: &Netns) -> Result<bool, PortError> {
        Ok(self.world().rules.contains_key(&netns.cookie.0))
    }

    fn clear(
        &mut self,
        netns: NetnsCookie,
        _held: Option<&Netns>,
        clearing: Clearing,
    ) -> Result<Cleared, PortError> {
        let mut world = self.world();
        let Some(outcomes) = world.rules.get_mut(&netns.0) else {
            return Ok(Cleared::Gone);
        };
        let outcome = if outcomes.len() > 1 {
            outcomes.remove(0)
        } else {
            outcomes[0]
        };
        if outcome == Ok(Cleared::Gone) {
            world.rules.remove(&netns.0);
        }
        drop(world);
        self.note(format!("clear {} waits={}", netns.0, clearing.waits));
        outcome.map_err(|()| error("clear", "the pod", "somebody else changes the table"))
    }

    fn captured(&self) -> Result<Vec<PodEntry>, PortError> {
        Ok(self.world().entries.values().cloned().collect())
    }

    fn sweep(&mut self) -> Result<usize, PortError> {
        Ok(0)
    }

    fn attach_proxy(&mut self, peer: &ProxyPeer) -> Result<usize, PortError> {
        self.note(format!("attach-proxy {}", peer.pid));
        Ok(0)
    }

    fn retire_proxies(&mut self, alive: &[ProxyPeer]) -> Result<(), PortError> {
        self.note(format!(
            "retire-proxies but {:?}",
            alive.iter().map(|peer| peer.pid).collect::<Vec<_>>()
        ));
        Ok(())
    }
}

impl Proxy for Fake {
    async fn add(&self, workload: Workload, netns: Option<Arc<OwnedFd>>) -> Result<(), PortError> {
        let PodRef { uid, name, .. } = workload.pod;
        if netns.is_none() {
            self.note(format!("keep {name}"));
            return Ok(());
        }
        self.note(format!("add {name}"));
        if self.world().slow.contains(&uid) {
            tokio::time::sleep(Duration::from_secs(5)).await;
            return Err(error("add", &name, "the proxy did not ack"));
        }
        let mode = self.world().proxy;
        match mode {
            ProxyMode::Absent => Err(error("add", &name, "no proxy is connected")),
            ProxyMode::Refuses => Err(error("add", &name, "the proxy refuses")),
            ProxyMode::Accepts => Ok(()),
        }
    }

    async fn del(&self, uid: &PodUid) -> Result<(), PortError> {
        self.note(format!("del {uid}"));
        Ok(())
    }
}

impl PodStatus for Fake {
    async fn write(&self, pod: &PodRef, state: Redirection) -> Result<(), PortError> {
        self.note(format!("annotate {} {state:?}", pod.name));
        if self.world().api_fails {
            return Err(error("annotate", &pod.name, "the API server cannot be reached"));
        }
        Ok(())
    }
}

impl FindNetns for Fake {
    fn find(&mut self, pod: &PodRef, _addresses: &[IpAddr]) -> Result<Option<Netns>, PortError> {
        self.note(format!("find {}", pod.name));
        Ok(self.world().netns.get(&pod.uid).map(|cookie| netns(*cookie)))
    }

    fn holders(&mut self, _pod: &PodRef) -> Vec<PortHolder> {
        self.world().holders.clone()
    }
}
