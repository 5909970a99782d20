//! Which pods proxies are to serve, which connections there are, and what each is to be told next. No I/O.
//!
//! Queues hold names of pods and not messages: what is sent is decided when its turn comes, by what is true then. So a
//! del that was overtaken by a new add of the same pod is never sent, and a pod that is gone is never added.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use agent_core::ids::PodUid;
use tokio::sync::{Notify, oneshot};

use super::call::{CallError, Reply, Waiter, answer};
use super::status::{ConnectionStatus, Generation};
use super::task::{Step, Task};
use crate::ports::{ProxyPeer, Workload};

/// All pods and connections.
#[derive(Debug, Default)]
pub(super) struct Registry {
    pods: BTreeMap<PodUid, Pod>,
    /// Oldest first.
    links: Vec<Link>,
    last_generation: Generation,
    last_version: u64,
}

/// A pod that proxies are to serve.
#[derive(Debug)]
struct Pod {
    workload: Workload,
    /// `None`: a proxy that serves it goes on, but it cannot be added.
    netns: Option<Arc<OwnedFd>>,
    /// Changes with each add, so that an ack of an earlier one does not count.
    version: u64,
}

/// A connection.
#[derive(Debug)]
struct Link {
    generation: Generation,
    peer: ProxyPeer,
    phase: Phase,
    queue: VecDeque<Job>,
    wake: Arc<Notify>,
    /// Versions of the pods that the proxy has acked.
    known: BTreeMap<PodUid, u64>,
    /// Pods that it refused within the snapshot.
    refused: BTreeMap<PodUid, String>,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Hello, programs and gate are awaited: the snapshot will be what is true at its beginning.
    Greeting,
    /// The snapshot is being sent.
    Snapshot,
    /// The snapshot is acked.
    Live,
}

/// What is queued.
#[derive(Debug)]
enum Job {
    /// Make the proxy serve this pod.
    Add(PodUid, Option<Waiter>),
    /// Make the proxy let this pod go.
    Del(PodUid, Waiter),
    /// End the snapshot.
    SnapshotSent,
}

/// A new connection, for its task.
#[derive(Debug)]
pub(super) struct Ticket {
    /// Its number.
    pub(super) generation: Generation,
    /// Rings when something was queued.
    pub(super) wake: Arc<Notify>,
}

impl Registry {
    /// Remembers a pod; an earlier one of the same UID is replaced.
    pub(super) fn remember(&mut self, workload: Workload, netns: Option<Arc<OwnedFd>>) {
        self.last_version += 1;
        let pod = Pod {
            netns,
            version: self.last_version,
            workload,
        };
        self.pods.insert(pod.workload.pod.uid.clone(), pod);
    }

    /// Forgets a pod.
    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.pods.remove(uid);
    }

    /// Lists a new connection.
    pub(super) fn register(&mut self, peer: ProxyPeer) -> Ticket {
        self.last_generation += 1;
        let ticket = Ticket {
            generation: self.last_generation,
            wake: Arc::default(),
        };
        self.links.push(Link {
            generation: ticket.generation,
            peer,
            phase: Phase::Greeting,
            queue: VecDeque::new(),
            wake: ticket.wake.clone(),
            known: BTreeMap::new(),
            refused: BTreeMap::new(),
        });
        ticket
    }

    /// Removes a connection, and no other. Those who wait for it see their [`Reply`] end. When it was the one that got
    /// the adds, the next one is told what it missed.
    pub(super) fn remove(&mut self, generation: Generation) {
        let before = self.newest().map(|index| self.links[index].generation);
        self.links.retain(|link| link.generation != generation);
        if before == Some(generation) {
            self.catch_up();
        }
    }

    /// Queues a pod at the connection that gets the adds; `None` without one.
    pub(super) fn request_add(&mut self, uid: &PodUid) -> Option<Reply> {
        let newest = self.newest()?;
        let (waiter, reply) = oneshot::channel();
        self.links[newest].push(Job::Add(uid.clone(), Some(waiter)));
        Some(reply)
    }

    /// Queues the end of a pod at all connections that may have heard of it.
    pub(super) fn request_del(&mut self, uid: &PodUid) -> Vec<Reply> {
        let mut replies = Vec::new();
        for link in self.links.iter_mut().filter(|link| link.phase != Phase::Greeting) {
            let (waiter, reply) = oneshot::channel();
            link.push(Job::Del(uid.clone(), waiter));
            replies.push(reply);
        }
        replies
    }

    /// Queues the snapshot: all pods, and its end. Adds that wait already come first.
    pub(super) fn begin_snapshot(&mut self, generation: Generation) {
        if let Some(link) = self.links.iter_mut().find(|link| link.generation == generation) {
            link.phase = Phase::Snapshot;
            link.queue
                .extend(self.pods.keys().map(|uid| Job::Add(uid.clone(), None)));
            link.push(Job::SnapshotSent);
        }
    }

    /// What to send next; what turns out not to need a message is answered on the way.
    pub(super) fn next(&mut self, generation: Generation) -> Option<Task> {
        let link = self.links.iter_mut().find(|link| link.generation == generation)?;
        while let Some(job) = link.queue.pop_front() {
            let (turn, waiter) = match job {
                Job::SnapshotSent => (Turn::Send(Step::SnapshotSent), None),
                Job::Add(uid, waiter) => (
                    add_turn(self.pods.get(&uid), link.known.get(&uid), link.phase),
                    waiter,
                ),
                Job::Del(uid, waiter) => (del_turn(uid, &self.pods), Some(waiter)),
            };
            match turn {
                Turn::Send(step) => return Some(Task::new(step, waiter)),
                Turn::Skip(outcome) => answer(waiter, outcome),
            }
        }
        None
    }

    /// Notes what the proxy answered (`refusal`: its error text) and tells who waits. At the end of the snapshot it
    /// returns the pods that were refused within it.
    pub(super) fn settle(
        &mut self,
        generation: Generation,
        task: Task,
        refusal: Option<String>,
    ) -> Option<BTreeMap<PodUid, String>> {
        let link = self.links.iter_mut().find(|link| link.generation == generation)?;
        let ended = link.note(&task.step, refusal.as_deref());
        task.answer(refusal.map_or(Ok(()), |text| Err(CallError::Refused { text })));
        ended.then(|| std::mem::take(&mut link.refused))
    }

    /// All connections, oldest first.
    pub(super) fn connections(&self) -> Vec<ConnectionStatus> {
        let status = |link: &Link| ConnectionStatus {
            generation: link.generation,
            peer: link.peer.clone(),
            snapshot_done: link.phase == Phase::Live,
        };
        self.links.iter().map(status).collect()
    }

    /// Index of the connection that gets the adds: the newest whose snapshot has begun. One that still greets has
    /// nothing to lose by it, since its snapshot will name the pod, and may be garbage that keeps callers waiting; it
    /// gets the add only when there is no other.
    fn newest(&self) -> Option<usize> {
        let begun = self.links.iter().rposition(|link| link.phase != Phase::Greeting);
        begun.or_else(|| self.links.len().checked_sub(1))
    }

    /// Queues the pods that went to another connection at the one that gets the adds now. One that still greets needs
    /// nothing: its snapshot is to come.
    fn catch_up(&mut self) {
        let Some(link) = self.newest().map(|index| &mut self.links[index]) else {
            return;
        };
        if link.phase == Phase::Greeting {
            return;
        }
        let missed = self
            .pods
            .iter()
            .filter(|(uid, pod)| link.known.get(uid) != Some(&pod.version));
        link.queue
            .extend(missed.map(|(uid, _)| Job::Add(uid.clone(), None)));
        link.wake.notify_one();
    }
}

impl Link {
    /// Queues and rings.
    fn push(&mut self, job: Job) {
        self.queue.push_back(job);
        self.wake.notify_one();
    }

    /// Notes the answer to a step; true when it ends the snapshot.
    fn note(&mut self, step: &Step, refusal: Option<&str>) -> bool {
        match (step, refusal) {
            (Step::SnapshotSent, None) => self.phase = Phase::Live,
            (
                Step::Add {
                    workload, version, ..
                },
                None,
            ) => {
                self.refused.remove(&workload.pod.uid);
                self.known.insert(workload.pod.uid.clone(), *version);
            }
            (Step::Del(uid), None) => {
                self.known.remove(uid);
            }
            (Step::Add { workload, .. }, Some(text)) if self.phase == Phase::Snapshot => {
                self.refused.insert(workload.pod.uid.clone(), text.to_owned());
            }
            (Step::Keep(uid), Some(text)) => {
                self.refused.insert(uid.clone(), text.to_owned());
            }
            (Step::Keep(_), None) | (Step::Add { .. } | Step::Del(_) | Step::SnapshotSent, Some(_)) => {}
        }
        matches!(step, Step::SnapshotSent) && refusal.is_none()
    }
}

/// What to do with a job whose turn has come.
#[derive(Debug)]
enum Turn {
    /// Send this.
    Send(Step),
    /// Nothing needs to be sent; this is the answer.
    Skip(Result<(), CallError>),
}

/// An add, by what is remembered of the pod and what the proxy has acked of it.
fn add_turn(pod: Option<&Pod>, known: Option<&u64>, phase: Phase) -> Turn {
    let Some(pod) = pod else {
        return Turn::Skip(Err(CallError::Forgotten));
    };
    match &pod.netns {
        Some(_) if known == Some(&pod.version) => Turn::Skip(Ok(())),
        Some(netns) => Turn::Send(Step::Add {
            workload: pod.workload.clone(),
            netns: netns.clone(),
            version: pod.version,
        }),
        None if phase == Phase::Snapshot => Turn::Send(Step::Keep(pod.workload.pod.uid.clone())),
        // A keep after the snapshot is a protocol error, and needless: nothing is drained any more.
        None => Turn::Skip(Ok(())),
    }
}

/// A del: superseded when the pod was added again meanwhile.
fn del_turn(uid: PodUid, pods: &BTreeMap<PodUid, Pod>) -> Turn {
    if pods.contains_key(&uid) {
        Turn::Skip(Ok(()))
    } else {
        Turn::Send(Step::Del(uid))
    }
}
