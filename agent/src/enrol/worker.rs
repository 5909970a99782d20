//! The worker: takes in facts and news of the proxies, and brings one pod after the other nearer to its wish. Calls to
//! the proxy and the API server run beside it, so that a slow one holds up only its own pod.

mod proxies;
mod repair;

use std::collections::{BTreeMap, BTreeSet};

use agent_core::catalog::Catalog;
use agent_core::facts::{Fact, PodFacts};
use agent_core::ids::PodUid;
use agent_core::plan::{Event, Next, ProxyView, Step, next};
use agent_core::problem::Problem;
use agent_core::wish::Wish;
use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::admission::{AdmissionError, Admit, Expected};
use super::apply::{Outcome, Ports};
use super::handle::{Command, Handle, Repairs};
use super::observed::Observed;
use super::pod::{Pod, Told};
use super::queue::{Queue, back_off};
use super::report::Reports;
use crate::ports::{Datapath, FindNetns, Observer, PodStatus, PortError, Proxy, ProxyPeer};

/// Commands that may wait for the worker.
const COMMANDS: usize = 64;

/// The worker.
pub struct Enrolment<D, P, S, F> {
    ports: Ports<D, P, S, F>,
    catalog: Catalog,
    pods: BTreeMap<PodUid, Pod>,
    queue: Queue,
    calls: FuturesUnordered<BoxFuture<'static, Call>>,
    proxies: Vec<ProxyPeer>,
    expected: Expected,
    facts: mpsc::Receiver<Fact>,
    commands: mpsc::Receiver<Command>,
    reports: watch::Sender<Reports>,
    problems: watch::Sender<Vec<Problem>>,
    adopted: watch::Sender<bool>,
    observed: Observed,
    repairs: watch::Sender<Repairs>,
}

/// The answer to a call.
struct Call {
    uid: PodUid,
    step: Step,
    result: Result<(), PortError>,
}

impl<D, P, S, F> Enrolment<D, P, S, F>
where
    D: Datapath,
    P: Proxy + 'static,
    S: PodStatus + 'static,
    F: FindNetns,
{
    /// A worker that gets its facts from `facts`, and the handle to it.
    #[must_use]
    pub fn new(catalog: Catalog, ports: Ports<D, P, S, F>, facts: mpsc::Receiver<Fact>) -> (Self, Handle) {
        let (command_sender, commands) = mpsc::channel(COMMANDS);
        let (reports, report_receiver) = watch::channel(Reports::new());
        let (problems, problem_receiver) = watch::channel(Vec::new());
        let (adopted, adopted_receiver) = watch::channel(false);
        let (repairs, repairs_receiver) = watch::channel(Repairs::default());
        let handle = Handle {
            commands: command_sender,
            reports: report_receiver,
            problems: problem_receiver,
            adopted: adopted_receiver,
            repairs: repairs_receiver,
        };
        let worker = Self {
            ports,
            catalog,
            pods: BTreeMap::new(),
            queue: Queue::default(),
            calls: FuturesUnordered::new(),
            proxies: Vec::new(),
            expected: Expected::default(),
            facts,
            commands,
            reports,
            problems,
            adopted,
            observed: Observed::default(),
            repairs,
        };
        (worker, handle)
    }

    /// Tells this one what is done.
    #[must_use]
    pub fn observed_by(mut self, observer: impl Observer + 'static) -> Self {
        self.observed = Observed(Some(Box::new(observer)));
        self
    }

    /// Works until the sender of facts is gone. Pods stay captured then, for the next agent to adopt.
    ///
    /// # Errors
    /// When the maps cannot be read at the start: nothing was changed then.
    pub async fn run(mut self) -> Result<(), PortError> {
        for entry in self.ports.datapath.captured()? {
            self.pods.insert(entry.pod.uid.clone(), Pod::adopted(entry));
        }
        loop {
            self.tell_when_adopted();
            let may_work = self.catalog.complete() && !self.queue.is_idle();
            tokio::select! {
                biased;
                Some(command) = self.commands.recv() => self.command(command),
                fact = self.facts.recv() => match fact {
                    Some(fact) => self.fact(fact),
                    None => return Ok(()),
                },
                Some(call) = self.calls.next() => self.answered(call),
                () = alarm(self.queue.next_alarm()) => self.retry(),
                // One pod at a time, so that the others of this thread get their turn in between.
                () = tokio::task::yield_now(), if may_work => self.work(),
            }
        }
    }

    /// Opens the gate for the proxies once nothing is under way that belongs into the first snapshot.
    fn tell_when_adopted(&mut self) {
        if *self.adopted.borrow() || !self.catalog.complete() || !self.queue.is_idle() {
            return;
        }
        if self.pods.values().all(|pod| pod.have.proxy != ProxyView::Asked) {
            tracing::info!(pods = self.pods.len(), "all pods of the node are known");
            match self.ports.datapath.sweep() {
                Ok(0) => {}
                Ok(removed) => {
                    tracing::warn!(removed, "rows of the maps that belonged to no pod are removed");
                    self.repairs.send_modify(|repairs| repairs.rows += removed as u64);
                }
                Err(error) => tracing::warn!("{error}"),
            }
            self.adopted.send_replace(true);
        }
    }

    fn fact(&mut self, mut fact: Fact) {
        self.observed.told();
        let was_complete = self.catalog.complete();
        let mut told = None;
        if let Fact::Pod(facts) = &mut fact {
            if let Some(pod) = self.pods.get_mut(&facts.pod.uid) {
                pod.correct_addresses(facts);
            }
            told = Some(Told::of(facts));
        }
        let ends_listing = matches!(fact, Fact::PodsListed | Fact::NamespacesListed);
        let mut changed = self.catalog.apply(fact);
        self.tell_problems();
        if let Some(told) = told
            && self.catalog.wish(&told.pod.uid) != Wish::Gone
        {
            let uid = told.pod.uid.clone();
            let new = || Pod::new(told.pod.clone());
            self.pods.entry(uid.clone()).or_insert_with(new).told(told);
            changed.insert(uid);
        }
        self.expected.look(&self.catalog);
        let is_complete = self.catalog.complete();
        if ends_listing && is_complete {
            // Pods that went while nobody looked are known only by what is left of them here.
            changed.extend(self.pods.keys().cloned());
        }
        if is_complete && !was_complete {
            tracing::info!(pods = self.pods.len(), "pods and namespaces are listed");
        }
        self.look_at(changed);
    }

    fn tell_problems(&self) {
        let now = self.catalog.problems();
        self.problems.send_if_modified(|told| {
            for problem in now.iter().filter(|problem| !told.contains(problem)) {
                tracing::warn!("{problem}");
            }
            *told != now && {
                *told = now;
                true
            }
        });
    }

    fn look_at(&mut self, uids: BTreeSet<PodUid>) {
        for uid in uids {
            if let Some(pod) = self.pods.get_mut(&uid) {
                pod.wish = self.catalog.wish(&uid);
                self.observed.reconciled(pod.event());
                self.queue.push(&uid);
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::AttachProxy { peer, reply } => {
                // A connection that is closed meanwhile has no use for the answer.
                let _ = reply.send(self.ports.datapath.attach_proxy(&peer));
            }
            Command::Proxies { alive } => self.proxies_changed(alive),
            Command::ProxyCgroupGone => self.retire_proxies(),
            Command::LookAtPins { reply } => {
                // Who asked has gone when the agent is stopping.
                let _ = reply.send(self.repair());
            }
            Command::SnapshotDone { refused } => self.snapshot_done(refused),
            Command::AwaitPod { pod, reply } => {
                self.expected.add(pod, reply);
                self.expected.look(&self.catalog);
            }
            Command::Admit(admit) => self.admit(*admit),
        }
    }

    fn admit(&mut self, admit: Admit) {
        let Admit { sandbox, reply } = admit;
        let Some(facts) = self.catalog.pod_of_sandbox(&sandbox.pod) else {
            // A plugin that gave up has no use for the answer.
            let _ = reply.send(Err(AdmissionError::Gone));
            return;
        };
        let facts = PodFacts {
            ips: sandbox.addresses.clone(),
            ..facts.clone()
        };
        let uid = facts.pod.uid.clone();
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.forget_sandbox();
        }
        self.fact(Fact::Pod(Box::new(facts)));
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.admit(sandbox, reply);
        }
    }

    fn answered(&mut self, call: Call) {
        let Some(pod) = self.pods.get_mut(&call.uid) else {
            return;
        };
        let Err(mut error) = call.result else {
            pod.have.apply(&Event::Done(&call.step));
            self.queue.push(&call.uid);
            return;
        };
        // While proxies wait for the start to end, nobody can answer either.
        let nobody_there = self.proxies.is_empty() || !*self.adopted.borrow();
        if call.step == Step::ProxyAdd && nobody_there {
            pod.unanswered(&error);
            pod.have.apply(&Event::NoProxy);
        } else {
            if call.step == Step::ProxyAdd {
                error.cause = proxies::refusal(&mut self.ports.finder, &pod.pod, error.cause);
            }
            pod.failed(&error);
            pod.have.apply(&Event::Failed(&call.step));
        }
        if call.step == Step::ProxyDel {
            self.try_again_later(&call.uid);
        } else {
            self.queue.push(&call.uid);
        }
    }

    fn retry(&mut self) {
        while let Some(uid) = self.queue.pop_alarm(Instant::now()) {
            if let Some(pod) = self.pods.get_mut(&uid) {
                pod.have.apply(&Event::RetryDue);
                self.observed.reconciled(pod.event());
                self.queue.push(&uid);
            }
        }
    }

    /// Goes on with the next pod, as far as it gets.
    fn work(&mut self) {
        let Some(uid) = self.queue.pop() else {
            return;
        };
        let Some(pod) = self.pods.get_mut(&uid) else {
            return;
        };
        let began = Instant::now();
        let is_stuck = loop {
            match next(&pod.have, &pod.wish) {
                Next::Wait => break false,
                Next::Settled => {
                    let is_as_wished = pod.settled();
                    if is_as_wished {
                        self.queue.clear_alarm(&uid);
                    }
                    break !is_as_wished;
                }
                Next::Do(step) => match self.ports.begin(&step, pod) {
                    Outcome::Now(Ok(())) => pod.have.apply(&Event::Done(&step)),
                    Outcome::Now(Err(error)) => {
                        pod.failed(&error);
                        // What follows without a namespace, or with rules of another agent, is the plan's to say.
                        if matches!(step, Step::Look | Step::Clear(..)) {
                            pod.have.apply(&Event::Failed(&step));
                        } else if !matches!(step, Step::FindNetns(_)) {
                            break true;
                        }
                    }
                    Outcome::Later(call) => {
                        pod.have.apply(&Event::Started(&step));
                        let uid = uid.clone();
                        self.calls
                            .push(call.map(|result| Call { uid, step, result }).boxed());
                    }
                },
            }
        };
        self.observed.enrolled(pod.enrolled(began));
        if is_stuck {
            self.try_again_later(&uid);
        }
        self.finish(&uid);
    }

    /// Sets the alarm of a pod, if it has none.
    fn try_again_later(&mut self, uid: &PodUid) {
        if let Some(pod) = self.pods.get_mut(uid)
            && !self.queue.has_alarm(uid)
        {
            self.queue.set_alarm(uid, Instant::now() + back_off(pod.attempts));
            pod.attempts += 1;
        }
    }

    /// Tells what became of a pod.
    fn finish(&mut self, uid: &PodUid) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        pod.answer_admissions();
        let report = (!pod.is_over()).then(|| pod.report());
        if report.is_none() {
            self.pods.remove(uid);
            self.queue.clear_alarm(uid);
        }
        self.reports.send_if_modified(|reports| {
            let before = reports.get(uid);
            if before == report.as_ref() {
                return false;
            }
            if let Some(report) = &report
                && before.map(|before| before.state) != Some(report.state)
            {
                report.log();
            }
            match report {
                Some(report) => reports.insert(uid.clone(), report),
                None => reports.remove(uid),
            };
            true
        });
    }
}

/// Waits for the next alarm; for ever without one.
async fn alarm(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
