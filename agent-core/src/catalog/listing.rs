//! Progress of full lists: what a list does not name is gone when it ends.

use std::collections::BTreeSet;

/// The full lists of one kind of object.
#[derive(Clone, Debug)]
pub(super) struct Listing<K> {
    /// What the list that is being told has named so far.
    named: Option<BTreeSet<K>>,
    was_complete: bool,
}

impl<K> Default for Listing<K> {
    fn default() -> Self {
        Self {
            named: None,
            was_complete: false,
        }
    }
}

impl<K: Clone + Ord> Listing<K> {
    /// A list begins; one that has not ended is given up.
    pub(super) fn begin(&mut self) {
        self.named = Some(BTreeSet::new());
    }

    /// An object was told.
    pub(super) fn name(&mut self, key: &K) {
        if let Some(named) = &mut self.named {
            named.insert(key.clone());
        }
    }

    /// The list ends. Returns those of `known` that it did not name; none if no list had begun.
    pub(super) fn end<'a>(&mut self, known: impl Iterator<Item = &'a K>) -> Vec<K>
    where
        K: 'a,
    {
        let Some(named) = self.named.take() else {
            return Vec::new();
        };
        self.was_complete = true;
        known.filter(|key| !named.contains(key)).cloned().collect()
    }

    /// Whether a list has ended at least once.
    pub(super) fn was_complete(&self) -> bool {
        self.was_complete
    }
}
