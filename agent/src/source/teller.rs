//! Turns the events of one kind of objects into facts: changes only, and an object that turns bad keeps what was told of
//! it last. Pure.

use agent_core::facts::{BadObject, Fact};

use super::list_watch::Event;
use super::problem::Problem;
use super::told::{Subject, Told, Troubles};

/// An object as facts, or why not.
#[derive(Debug, PartialEq)]
pub(super) struct Converted<S> {
    /// What it is called in messages.
    pub(super) object: String,
    /// Its key among its kind, also when it is bad.
    pub(super) key: String,
    pub(super) facts: Result<S, BadObject>,
}

/// What was told of one kind of objects.
pub(super) struct Teller<S> {
    told: Told<S>,
    troubles: Troubles,
}

impl<S> Default for Teller<S> {
    fn default() -> Self {
        Self {
            told: Told::default(),
            troubles: Troubles::default(),
        }
    }
}

impl<S: Subject> Teller<S> {
    /// The facts of an event; an event about the server itself comes back as the error.
    pub(super) fn told<K>(
        &mut self,
        event: Event<K>,
        convert: impl Fn(&K) -> Converted<S>,
    ) -> Result<Vec<Fact>, Option<Problem>> {
        match event {
            Event::All(objects) => Ok(self.all(objects.iter().map(convert))),
            Event::There(object) => Ok(self.there(convert(&object))),
            Event::Gone(object) => Ok(self.gone(&convert(&object))),
            Event::Problem(problem) => Err(problem),
        }
    }

    /// A bad object that was good once keeps the facts that were told last.
    fn all(&mut self, objects: impl Iterator<Item = Converted<S>>) -> Vec<Fact> {
        let mut subjects = Vec::new();
        let mut bad = Vec::new();
        for object in objects {
            match object.facts {
                Ok(subject) => subjects.push(subject),
                Err(problem) => {
                    bad.push(problem);
                    subjects.extend(self.told.last(&object.key).cloned());
                }
            }
        }
        let mut facts = self.told.list(subjects);
        facts.extend(self.troubles.only(bad));
        facts
    }

    fn there(&mut self, object: Converted<S>) -> Vec<Fact> {
        match object.facts {
            Ok(subject) => self
                .told
                .there(subject)
                .into_iter()
                .chain(self.troubles.over(&object.object))
                .collect(),
            Err(bad) => self.troubles.bad(bad).into_iter().collect(),
        }
    }

    fn gone(&mut self, object: &Converted<S>) -> Vec<Fact> {
        self.told
            .gone(&object.key)
            .into_iter()
            .chain(self.troubles.over(&object.object))
            .collect()
    }
}
