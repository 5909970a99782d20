//! Which pods are to be looked at now, and which later.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use agent_core::ids::PodUid;
use tokio::time::Instant;

const SHORTEST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// Pause before the next attempt after so many failed ones: 50 ms, doubled each time, at most 5 s.
pub(super) fn back_off(attempts: u32) -> Duration {
    let factor = 1_u32.checked_shl(attempts).unwrap_or(u32::MAX);
    SHORTEST_DELAY.saturating_mul(factor).min(LONGEST_DELAY)
}

/// Pods that are ready, in the order in which they came, and pods with an alarm; each at most once.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ready: VecDeque<PodUid>,
    is_ready: BTreeSet<PodUid>,
    alarms: BTreeMap<PodUid, Instant>,
    by_time: BTreeSet<(Instant, PodUid)>,
}

impl Queue {
    /// Makes a pod ready.
    pub(super) fn push(&mut self, uid: &PodUid) {
        if self.is_ready.insert(uid.clone()) {
            self.ready.push_back(uid.clone());
        }
    }

    /// Takes the next pod that is ready.
    pub(super) fn pop(&mut self) -> Option<PodUid> {
        let uid = self.ready.pop_front()?;
        self.is_ready.remove(&uid);
        Some(uid)
    }

    /// Whether no pod is ready.
    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty()
    }

    /// Whether the pod has an alarm.
    pub(super) fn has_alarm(&self, uid: &PodUid) -> bool {
        self.alarms.contains_key(uid)
    }

    /// Sets the pod's alarm, in place of an earlier one.
    pub(super) fn set_alarm(&mut self, uid: &PodUid, at: Instant) {
        self.clear_alarm(uid);
        self.alarms.insert(uid.clone(), at);
        self.by_time.insert((at, uid.clone()));
    }

    /// Takes the pod's alarm back.
    pub(super) fn clear_alarm(&mut self, uid: &PodUid) {
        if let Some(at) = self.alarms.remove(uid) {
            self.by_time.remove(&(at, uid.clone()));
        }
    }

    /// When the next alarm is.
    pub(super) fn next_alarm(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes a pod whose alarm is over.
    pub(super) fn pop_alarm(&mut self, now: Instant) -> Option<PodUid> {
        let (_, uid) = self.by_time.first().filter(|(at, _)| *at <= now)?.clone();
        self.clear_alarm(&uid);
        Some(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_seconds() {
        let pauses: Vec<_> = (0..9).map(|attempts| back_off(attempts).as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(back_off(u32::MAX), LONGEST_DELAY);
    }

    #[test]
    fn a_pod_is_ready_once_and_in_its_turn() {
        let mut queue = Queue::default();
        for uid in ["b", "a", "b"] {
            queue.push(&uid.into());
        }
        assert_eq!(queue.pop(), Some("b".into()));
        queue.push(&"b".into());
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop()],
            [Some("a".into()), Some("b".into()), None]
        );
        assert!(queue.is_idle());
    }

    #[test]
    fn a_pod_has_one_alarm_the_latest_that_was_set() {
        let mut queue = Queue::default();
        let now = Instant::now();
        let second = Duration::from_secs(1);
        queue.set_alarm(&"a".into(), now);
        queue.set_alarm(&"a".into(), now + 2 * second);
        queue.set_alarm(&"b".into(), now + second);
        queue.set_alarm(&"c".into(), now);
        queue.clear_alarm(&"c".into());
        assert_eq!(queue.next_alarm(), Some(now + second));
        assert_eq!(queue.pop_alarm(now), None);
        assert_eq!(queue.pop_alarm(now + 3 * second), Some("b".into()));
        assert!(queue.has_alarm(&"a".into()));
        assert_eq!(queue.pop_alarm(now + 3 * second), Some("a".into()));
        assert_eq!(queue.next_alarm(), None);
    }
}
