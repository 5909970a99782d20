//! What is told of a pod where its owner looks: which trouble is worth an event, when, and how often. A trouble that goes
//! away by itself is not told, one that stays is told once and then seldom, and many at a time are told bit by bit.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::{PodRef, PodUid};

/// A trouble that is over sooner is nobody's business: proxies restart, kubelet is slow.
const PERSISTS: Duration = Duration::from_secs(3);
/// At least so long between two events about the same thing.
const AGAIN: Duration = Duration::from_secs(60);
/// After so long a trouble that goes on is told again: API servers keep events for an hour.
const REMIND: Duration = Duration::from_secs(30 * 60);
/// Events at once; then one each second.
const BURST: f64 = 50.0;

/// Why a pod gets an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It should be captured and cannot be, or is captured and refused.
    CaptureFailed,
    /// One of its annotations is ignored.
    AnnotationIgnored,
    /// A newer pod has its address.
    AddressConflict,
    /// It is captured and served, after it could not be.
    Captured,
}

impl Reason {
    /// The event's `reason`, which does not change between versions.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CaptureFailed => "MeshCaptureFailed",
            Self::AnnotationIgnored => "MeshAnnotationIgnored",
            Self::AddressConflict => "MeshAddressConflict",
            Self::Captured => "MeshCaptured",
        }
    }

    /// Whether something is wrong.
    #[must_use]
    pub const fn is_warning(self) -> bool {
        !matches!(self, Self::Captured)
    }
}

/// Something that is wrong with a pod now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The pod.
    pub pod: PodRef,
    /// What sort of trouble; a pod has one of each at most.
    pub reason: Reason,
    /// Cause and fix.
    pub note: String,
}

/// An event that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The pod.
    pub pod: PodRef,
    /// Why.
    pub reason: Reason,
    /// Cause and fix.
    pub note: String,
    /// How often this agent has told the same of this pod, this time included.
    pub count: u32,
}

/// Decides what is told when. Times are since any moment, the same for all calls.
#[derive(Debug)]
pub struct Announcer {
    standing: BTreeMap<(PodUid, Reason), Standing>,
    recovered: Vec<PodRef>,
    budget: Budget,
}

/// A trouble that is there or was there lately.
#[derive(Debug)]
struct Standing {
    trouble: Trouble,
    /// Since when it is there; `None` when it is over.
    since: Option<Duration>,
    told: Option<Told>,
}

/// What was told last.
#[derive(Debug)]
struct Told {
    note: String,
    at: Duration,
    count: u32,
}

/// Events that may be written now.
#[derive(Debug)]
struct Budget {
    left: f64,
    at: Duration,
}

impl Default for Announcer {
    fn default() -> Self {
        Self {
            standing: BTreeMap::new(),
            recovered: Vec::new(),
            budget: Budget {
                left: BURST,
                at: Duration::ZERO,
            },
        }
    }
}

impl Announcer {
    /// Takes in all troubles that there are; of pods that have none any more, `is_served` tells which are captured and
    /// served now.
    pub fn update(&mut self, now: Duration, troubles: Vec<Trouble>, is_served: impl Fn(&PodUid) -> bool) {
        let mut gone: Vec<_> = self.standing.keys().cloned().collect();
        for trouble in troubles {
            let key = (trouble.pod.uid.clone(), trouble.reason);
            gone.retain(|known| *known != key);
            let standing = self.standing.entry(key).or_insert_with(|| Standing {
                trouble: trouble.clone(),
                since: None,
                told: None,
            });
            standing.trouble = trouble;
            standing.since.get_or_insert(now);
        }
        for key in gone {
            if let Some(standing) = self.standing.get_mut(&key) {
                let is_told = standing.since.take().is_some() && standing.told.is_some();
                if is_told && key.1 == Reason::CaptureFailed && is_served(&key.0) {
                    self.recovered.push(standing.trouble.pod.clone());
                }
            }
        }
        self.standing.retain(|_, standing| {
            let is_fresh = |told: &Told| now < told.at + REMIND;
            standing.since.is_some() || standing.told.as_ref().is_some_and(is_fresh)
        });
    }

    /// What is to be told now; it counts as told.
    pub fn due(&mut self, now: Duration) -> Vec<Announcement> {
        let mut due = Vec::new();
        while !self.recovered.is_empty() && self.budget.take(now) {
            due.push(Announcement {
                pod: self.recovered.remove(0),
                reason: Reason::Captured,
                note: "the pod is captured and served now".to_owned(),
                count: 1,
            });
        }
        for standing in self.standing.values_mut() {
            if standing.due_at().is_some_and(|at| at <= now) && self.budget.take(now) {
                due.push(standing.tell(now));
            }
        }
        due
    }

    /// An announcement could not be written: it is due again after a while. A recovery is not.
    pub fn failed(&mut self, now: Duration, announcement: &Announcement) {
        let key = (announcement.pod.uid.clone(), announcement.reason);
        if let Some(standing) = self.standing.get_mut(&key) {
            standing.told = Some(Told {
                note: String::new(),
                at: now,
                count: announcement.count - 1,
            });
        }
    }

    /// When something is due next, if nothing changes until then.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        let standing = self.standing.values().filter_map(Standing::due_at);
        let recovered = (!self.recovered.is_empty()).then_some(Duration::ZERO);
        let first = standing.chain(recovered).min()?;
        Some(first.max(self.budget.next()))
    }
}

impl Standing {
    fn due_at(&self) -> Option<Duration> {
        let due = self.since? + PERSISTS;
        Some(match &self.told {
            None => due,
            Some(told) if told.note == self.trouble.note && self.since <= Some(told.at) => told.at + REMIND,
            Some(told) => due.max(told.at + AGAIN),
        })
    }

    fn tell(&mut self, now: Duration) -> Announcement {
        let note = self.trouble.note.clone();
        let before = self.told.as_ref().filter(|told| told.note == note);
        let count = before.map_or(0, |told| told.count) + 1;
        self.told = Some(Told {
            note: note.clone(),
            at: now,
            count,
        });
        Announcement {
            pod: self.trouble.pod.clone(),
            reason: self.trouble.reason,
            note,
            count,
        }
    }
}

impl Budget {
    fn take(&mut self, now: Duration) -> bool {
        let since = now.saturating_sub(self.at).as_secs_f64();
        (self.left, self.at) = ((self.left + since).min(BURST), now);
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }

    /// When there is one to take.
    fn next(&self) -> Duration {
        self.at + Duration::from_secs_f64((1.0 - self.left).max(0.0))
    }
}

#[cfg(test)]
mod tests;
