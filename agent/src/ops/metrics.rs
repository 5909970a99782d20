//! Metrics of what happens, counted when it happens: reconciliation, enrolment, admissions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::ports::{Observer, Reconciled};

/// Upper bounds in seconds: a pod is usually enrolled within milliseconds, and its plugin gives up after seconds.
const SECONDS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
];

/// The counters. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    reconciled: Family<Event, Counter>,
    enrolment: Histogram,
    admission: Family<Outcome, Histogram>,
    /// Milliseconds since the epoch; 0 before the first fact.
    last_fact: AtomicU64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Event {
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

/// What became of a sandbox that the CNI plugin told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The pod is captured and served.
    Captured,
    /// The pod is not to be captured.
    Outside,
    /// The failure policy lets it start uncaptured.
    LetThrough,
    /// The pod should be captured and is not.
    Refused,
}

impl Inner {
    /// A counter that is there before it counts lets its first step be seen.
    fn begin_at_zero(&self) {
        for event in [Reconciled::Add, Reconciled::Update, Reconciled::Delete] {
            drop(self.reconciled.get_or_create(&label(event)));
        }
        for outcome in Admitted::ALL {
            drop(self.admission.get_or_create(&outcome.label()));
        }
    }
}

impl Metrics {
    /// Counters at zero, which `registry` exposes from now on.
    #[must_use]
    pub fn registered(registry: &mut Registry) -> Self {
        let histogram = || Histogram::new(SECONDS);
        let inner = Inner {
            reconciled: Family::default(),
            enrolment: histogram(),
            admission: Family::new_with_constructor(histogram),
            last_fact: AtomicU64::default(),
        };
        inner.begin_at_zero();
        registry.register(
            "nodeagent_reconcile_events",
            "Comparisons of a pod with its wish by what had happened to the pod, failed ones included",
            inner.reconciled.clone(),
        );
        registry.register(
            "meshgate_enrolment_seconds",
            "From a pod's network namespace being there to the proxy serving the pod",
            inner.enrolment.clone(),
        );
        registry.register(
            "meshgate_cni_admission_seconds",
            "Time that the CNI plugin waited for its answer, by what became of the pod",
            inner.admission.clone(),
        );
        Self(Arc::new(inner))
    }

    /// A sandbox was admitted or refused after this time.
    pub fn admitted(&self, outcome: Admitted, after: Duration) {
        self.0
            .admission
            .get_or_create(&outcome.label())
            .observe(after.as_secs_f64());
    }

    /// When the source told something last, in seconds since the epoch; 0 before.
    #[must_use]
    pub fn last_fact(&self) -> f64 {
        self.0.last_fact.load(Relaxed) as f64 / 1e3
    }
}

impl Observer for Metrics {
    fn told(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.0.last_fact.store(now.as_millis() as u64, Relaxed);
    }

    fn reconciled(&self, event: Reconciled) {
        self.0.reconciled.get_or_create(&label(event)).inc();
    }

    fn enrolled(&self, after: Duration) {
        self.0.enrolment.observe(after.as_secs_f64());
    }
}

impl Admitted {
    const ALL: [Self; 4] = [Self::Captured, Self::Outside, Self::LetThrough, Self::Refused];

    fn label(self) -> Outcome {
        Outcome {
            result: match self {
                Self::Captured => "captured",
                Self::Outside => "outside",
                Self::LetThrough => "let_through",
                Self::Refused => "refused",
            },
        }
    }
}

fn label(event: Reconciled) -> Event {
    Event {
        r#type: match event {
            Reconciled::Add => "add",
            Reconciled::Update => "update",
            Reconciled::Delete => "delete",
        },
    }
}
