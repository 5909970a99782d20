//! For tests: what a listener knows after the facts so far, and waiting until it knows something.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_core::facts::{BadObject, Fact, NamespaceFacts, PodFacts, SourceState};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long a test waits for a fact before it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A listener and its knowledge. Lists replace what was known, as [`Fact`] demands.
pub(super) struct View {
    facts: mpsc::Receiver<Fact>,
    /// Pods by UID.
    pub(super) pods: BTreeMap<String, PodFacts>,
    /// Namespaces by name.
    pub(super) namespaces: BTreeMap<String, NamespaceFacts>,
    /// Bad objects by name.
    pub(super) bad: BTreeMap<String, BadObject>,
    /// States of the source, in order.
    pub(super) states: Vec<SourceState>,
    /// Complete lists of pods so far.
    pub(super) lists: usize,
    /// All facts so far.
    pub(super) told: Vec<Fact>,
    listing: Option<Vec<PodFacts>>,
}

impl View {
    pub(super) fn new(facts: mpsc::Receiver<Fact>) -> Self {
        Self {
            facts,
            pods: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            bad: BTreeMap::new(),
            states: Vec::new(),
            lists: 0,
            told: Vec::new(),
            listing: None,
        }
    }

    /// Listens until the knowledge fits.
    pub(super) async fn until(&mut self, what: &str, fits: impl Fn(&Self) -> bool) {
        while !fits(self) {
            match timeout(PATIENCE, self.facts.recv()).await {
                Ok(Some(fact)) => self.learn(fact),
                Ok(None) => panic!("the source ended before {what}; told: {:#?}", self.told),
                Err(_) => panic!("nothing was told before {what}; told: {:#?}", self.told),
            }
        }
    }

    /// Names of the pods, sorted.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.pods.values().map(|pod| pod.pod.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// The problem that the source has at the moment, if it told one last.
    pub(super) fn problem(&self) -> Option<&str> {
        match self.states.last() {
            Some(SourceState::Stale { problem }) => Some(problem),
            _ => None,
        }
    }

    /// The source told last that it is current.
    pub(super) fn current(&self) -> bool {
        self.states.last() == Some(&SourceState::Current)
    }

    fn learn(&mut self, fact: Fact) {
        self.told.push(fact.clone());
        match fact {
            Fact::PodsRelist => self.listing = Some(Vec::new()),
            Fact::PodsListed => {
                let pods = self.listing.take().expect("a list ends only after it began");
                self.pods = pods.into_iter().map(|pod| (pod.pod.uid.0.clone(), pod)).collect();
                self.lists += 1;
            }
            Fact::Pod(pod) => match &mut self.listing {
                Some(listing) => listing.push(*pod),
                None => {
                    self.pods.insert(pod.pod.uid.0.clone(), *pod);
                }
            },
            Fact::PodGone(uid) => {
                self.pods.remove(uid.as_str()).expect("only a known pod goes");
            }
            Fact::NamespacesRelist => self.namespaces.clear(),
            Fact::NamespacesListed => {}
            Fact::Namespace(namespace) => {
                self.namespaces
                    .insert(namespace.namespace.name.clone(), namespace);
            }
            Fact::NamespaceGone(namespace) => {
                self.namespaces
                    .remove(&namespace.name)
                    .expect("only a known namespace goes");
            }
            Fact::Bad(bad) => {
                self.bad.insert(bad.object.clone(), bad);
            }
            Fact::Good { object } => {
                self.bad.remove(&object).expect("only a bad object becomes good");
            }
            Fact::SourceState(state) => self.states.push(state),
        }
    }
}
