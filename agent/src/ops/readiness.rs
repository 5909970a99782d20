//! Whether the node is ready for pods: named conditions, each set by the part that knows, all of them needed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// All conditions, by name: what is missing, or nothing.
pub type State = BTreeMap<&'static str, Option<String>>;

/// The conditions. Clones speak of the same.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<watch::Sender<State>>);

/// One of them, in the hands of who sets it.
#[derive(Clone, Debug)]
pub struct Condition {
    name: &'static str,
    all: Readiness,
}

impl Readiness {
    /// Adds a condition that does not hold yet; `missing` says what is awaited.
    #[must_use]
    pub fn require(&self, name: &'static str, missing: &str) -> Condition {
        let condition = Condition {
            name,
            all: self.clone(),
        };
        condition.lacks(missing);
        condition
    }

    /// All conditions, now and as they change.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<State> {
        self.0.subscribe()
    }

    /// What is missing, one line for each condition that does not hold; nothing when the node is ready.
    ///
    /// # Errors
    /// The lines, when one does not hold.
    pub fn check(&self) -> Result<(), String> {
        let state = self.0.borrow();
        let missing = state
            .iter()
            .filter_map(|(name, missing)| Some(format!("{name}: {}\n", missing.as_ref()?)));
        match missing.collect::<String>() {
            all if all.is_empty() => Ok(()),
            missing => Err(missing),
        }
    }

    /// Whether a condition holds; one that nobody required does.
    #[must_use]
    pub fn holds(&self, name: &str) -> bool {
        self.0.borrow().get(name).is_none_or(Option::is_none)
    }
}

impl Condition {
    /// It holds.
    pub fn holds(&self) {
        self.set(None);
    }

    /// It does not hold, or no more; says what is missing.
    pub fn lacks(&self, missing: &str) {
        self.set(Some(missing.to_owned()));
    }

    fn set(&self, missing: Option<String>) {
        self.all.0.send_if_modified(|state| {
            let is_news = state.get(self.name) != Some(&missing);
            state.insert(self.name, missing);
            is_news
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_ready_when_every_condition_holds_and_what_is_missing_is_named() {
        let readiness = Readiness::default();
        assert_eq!(readiness.check(), Ok(()));
        let install = readiness.require("install", "the plugin is not copied yet");
        let watch = readiness.require("watch", "pods are not known yet");
        assert_eq!(
            readiness.check(),
            Err("install: the plugin is not copied yet\nwatch: pods are not known yet\n".to_owned())
        );
        watch.holds();
        assert!(readiness.holds("watch") && !readiness.holds("install") && readiness.holds("other"));
        let mut changes = readiness.watch();
        install.holds();
        assert_eq!(readiness.check(), Ok(()));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        install.holds();
        assert!(!changes.has_changed().unwrap());
        install.lacks("the disk is full");
        assert_eq!(readiness.check(), Err("install: the disk is full\n".to_owned()));
    }
}
