//! What a source has told so far, so that it tells changes only and takes back what is over. Pure.

use std::collections::BTreeMap;

use agent_core::facts::{BadObject, Fact, NamespaceFacts, PodFacts};

/// Something that facts are about.
pub(super) trait Subject: Clone + PartialEq {
    /// The fact that opens a full list.
    const RELIST: Fact;
    /// The fact that closes a full list.
    const LISTED: Fact;

    /// What tells it from others: the UID of a pod, the name of a namespace.
    fn key(&self) -> &str;
    /// The fact that it is there.
    fn there(self) -> Fact;
    /// The fact that it is gone.
    fn gone(self) -> Fact;
}

impl Subject for PodFacts {
    const RELIST: Fact = Fact::PodsRelist;
    const LISTED: Fact = Fact::PodsListed;

    fn key(&self) -> &str {
        self.pod.uid.as_str()
    }

    fn there(self) -> Fact {
        Fact::Pod(Box::new(self))
    }

    fn gone(self) -> Fact {
        Fact::PodGone(self.pod.uid)
    }
}

impl Subject for NamespaceFacts {
    const RELIST: Fact = Fact::NamespacesRelist;
    const LISTED: Fact = Fact::NamespacesListed;

    fn key(&self) -> &str {
        &self.namespace.name
    }

    fn there(self) -> Fact {
        Fact::Namespace(self)
    }

    fn gone(self) -> Fact {
        Fact::NamespaceGone(self.namespace)
    }
}

/// The subjects of one kind that were told to be there.
#[derive(Debug)]
pub(super) struct Told<S> {
    subjects: BTreeMap<String, S>,
}

impl<S> Default for Told<S> {
    fn default() -> Self {
        Self {
            subjects: BTreeMap::new(),
        }
    }
}

impl<S: Subject> Told<S> {
    /// What was told of a subject last.
    pub(super) fn last(&self, key: &str) -> Option<&S> {
        self.subjects.get(key)
    }

    /// It is there: a fact if that is news. Kubelets touch a pod far more often than anything changes that the rules
    /// read.
    pub(super) fn there(&mut self, subject: S) -> Option<Fact> {
        if self.last(subject.key()) == Some(&subject) {
            return None;
        }
        self.subjects.insert(subject.key().to_owned(), subject.clone());
        Some(subject.there())
    }

    /// It is gone: a fact if it was told to be there.
    pub(super) fn gone(&mut self, key: &str) -> Option<Fact> {
        self.subjects.remove(key).map(Subject::gone)
    }

    /// A full list, told in full.
    pub(super) fn list(&mut self, subjects: Vec<S>) -> Vec<Fact> {
        self.subjects = subjects
            .into_iter()
            .map(|subject| (subject.key().to_owned(), subject))
            .collect();
        let there = self.subjects.values().cloned().map(Subject::there);
        [S::RELIST].into_iter().chain(there).chain([S::LISTED]).collect()
    }

    /// A full list, told as (what is gone, what is new or changed): a pod that replaces another one may have its
    /// address, so that the old one should go first.
    pub(super) fn change_to(&mut self, subjects: Vec<S>) -> (Vec<Fact>, Vec<Fact>) {
        let mut before = std::mem::take(&mut self.subjects);
        let mut there = Vec::new();
        for subject in subjects {
            if before.remove(subject.key()).as_ref() != Some(&subject) {
                there.push(subject.clone().there());
            }
            self.subjects.insert(subject.key().to_owned(), subject);
        }
        (before.into_values().map(Subject::gone).collect(), there)
    }
}

/// The objects that were told to be bad.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    bad: BTreeMap<String, BadObject>,
}

impl Troubles {
    /// An object is bad: a fact if that is news.
    pub(super) fn bad(&mut self, bad: BadObject) -> Option<Fact> {
        let before = self.bad.insert(bad.object.clone(), bad.clone());
        (before.as_ref() != Some(&bad)).then_some(Fact::Bad(bad))
    }

    /// An object is good or gone: a fact if it was bad.
    pub(super) fn over(&mut self, object: &str) -> Option<Fact> {
        self.bad
            .remove(object)
            .map(|bad| Fact::Good { object: bad.object })
    }

    /// Exactly these are bad now.
    pub(super) fn only(&mut self, bad: Vec<BadObject>) -> Vec<Fact> {
        let over: Vec<String> = self
            .bad
            .keys()
            .filter(|object| !bad.iter().any(|bad| bad.object == **object))
            .cloned()
            .collect();
        let mut facts: Vec<Fact> = over.iter().filter_map(|object| self.over(object)).collect();
        facts.extend(bad.into_iter().filter_map(|bad| self.bad(bad)));
        facts
    }
}

#[cfg(test)]
mod tests {
    use agent_core::ids::NamespaceRef;

    use super::*;

    fn namespace(name: &str, label: &str) -> NamespaceFacts {
        NamespaceFacts {
            namespace: NamespaceRef {
                cluster: "c".into(),
                name: name.into(),
            },
            labels: [("mode".to_owned(), label.to_owned())].into(),
        }
    }

    fn gone(name: &str) -> Fact {
        Fact::NamespaceGone(NamespaceRef {
            cluster: "c".into(),
            name: name.into(),
        })
    }

    fn there(name: &str, label: &str) -> Fact {
        Fact::Namespace(namespace(name, label))
    }

    fn bad(object: &str, problem: &str) -> BadObject {
        BadObject {
            object: object.into(),
            problem: problem.into(),
            fix: "repair it".into(),
        }
    }

    #[test]
    fn a_list_is_told_in_full_and_what_follows_as_changes() {
        let mut told = Told::default();
        let listed = told.list(vec![namespace("b", "1"), namespace("a", "1")]);
        let expected = vec![
            Fact::NamespacesRelist,
            there("a", "1"),
            there("b", "1"),
            Fact::NamespacesListed,
        ];
        assert_eq!(listed, expected);

        assert_eq!(told.there(namespace("a", "1")), None);
        assert_eq!(told.there(namespace("a", "2")), Some(there("a", "2")));
        assert_eq!(told.gone("a"), Some(gone("a")));
        assert_eq!(told.gone("a"), None);
    }

    #[test]
    fn changing_to_a_new_list_tells_the_difference_only() {
        let table = [
            (vec![("a", "1"), ("b", "1")], vec![], vec![]),
            (vec![("b", "1")], vec!["a"], vec![]),
            (vec![("b", "2"), ("c", "1")], vec![], vec![("b", "2"), ("c", "1")]),
            (vec![], vec!["b", "c"], vec![]),
        ];
        let mut told = Told::default();
        told.list(vec![namespace("a", "1"), namespace("b", "1")]);
        for (list, expected_gone, expected_there) in table {
            let changes = told.change_to(list.iter().map(|(name, label)| namespace(name, label)).collect());
            let expected = (
                expected_gone.into_iter().map(gone).collect::<Vec<_>>(),
                expected_there
                    .into_iter()
                    .map(|(name, label)| there(name, label))
                    .collect::<Vec<_>>(),
            );
            assert_eq!(changes, expected, "{list:?}");
        }
    }

    #[test]
    fn a_trouble_is_told_once_and_taken_back_once() {
        let mut troubles = Troubles::default();
        assert_eq!(
            troubles.bad(bad("Pod a/b", "x")),
            Some(Fact::Bad(bad("Pod a/b", "x")))
        );
        assert_eq!(troubles.bad(bad("Pod a/b", "x")), None);
        assert_eq!(
            troubles.bad(bad("Pod a/b", "y")),
            Some(Fact::Bad(bad("Pod a/b", "y")))
        );
        assert_eq!(
            troubles.over("Pod a/b"),
            Some(Fact::Good {
                object: "Pod a/b".into()
            })
        );
        assert_eq!(troubles.over("Pod a/b"), None);
    }

    #[test]
    fn a_full_list_of_troubles_replaces_the_one_before() {
        let mut troubles = Troubles::default();
        troubles.only(vec![bad("a", "1"), bad("b", "1")]);
        let facts = troubles.only(vec![bad("b", "1"), bad("c", "1")]);
        assert_eq!(
            facts,
            vec![Fact::Good { object: "a".into() }, Fact::Bad(bad("c", "1"))]
        );
    }
}
