//! Who is told what enrolment does, if anybody.

use std::time::Duration;

use crate::ports::{Observer, Reconciled};

/// The observer, if there is one.
#[derive(Default)]
pub(super) struct Observed(pub(super) Option<Box<dyn Observer>>);

impl Observed {
    pub(super) fn told(&self) {
        if let Some(observer) = &self.0 {
            observer.told();
        }
    }

    pub(super) fn reconciled(&self, event: Reconciled) {
        if let Some(observer) = &self.0 {
            observer.reconciled(event);
        }
    }

    pub(super) fn enrolled(&self, after: Option<Duration>) {
        if let (Some(observer), Some(after)) = (&self.0, after) {
            observer.enrolled(after);
        }
    }
}
