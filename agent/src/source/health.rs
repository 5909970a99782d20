//! Whether a source is current: several watches report, one state comes out, once per change and not per retry.

use std::collections::BTreeMap;

use agent_core::facts::SourceState;

use super::problem::Problem;

/// The problems of a source by what is watched.
#[derive(Debug, Default)]
pub(super) struct Health {
    problems: BTreeMap<&'static str, Option<Problem>>,
    /// Kinds of problems that were told last; empty means that the source was told to be current.
    told: Option<Vec<String>>,
}

impl Health {
    /// A source that watches these; each counts as unknown until it reports.
    pub(super) fn of(watched: &[&'static str]) -> Self {
        Self {
            problems: watched
                .iter()
                .map(|name| (*name, Some(Problem::NotYet)))
                .collect(),
            told: None,
        }
    }

    /// Takes a report and says the source's new state if that is news. The text of a problem may differ from try to
    /// try; only another kind of problem is news.
    pub(super) fn report(&mut self, watched: &'static str, problem: Option<Problem>) -> Option<SourceState> {
        self.problems.insert(watched, problem);
        let mut kinds = Vec::new();
        let mut texts = Vec::new();
        for problem in self
            .problems
            .values()
            .flatten()
            .filter(|problem| **problem != Problem::NotYet)
        {
            // Both watches usually meet the same problem, which is then worth one sentence.
            if !kinds.contains(&problem.kind()) {
                kinds.push(problem.kind());
                texts.push(problem.to_string());
            }
        }
        let settled = !self
            .problems
            .values()
            .flatten()
            .any(|problem| *problem == Problem::NotYet);
        if self.told.as_ref() == Some(&kinds) || (kinds.is_empty() && !settled) {
            return None;
        }
        self.told = Some(kinds);
        Some(if texts.is_empty() {
            SourceState::Current
        } else {
            SourceState::Stale {
                problem: texts.join("; "),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable(cause: &str) -> Option<Problem> {
        Some(Problem::Unreachable { cause: cause.into() })
    }

    fn forbidden(resource: &'static str) -> Option<Problem> {
        Some(Problem::Forbidden {
            verb: "list",
            resource,
            answer: "no".into(),
        })
    }

    fn stale(state: Option<SourceState>) -> String {
        match state {
            Some(SourceState::Stale { problem }) => problem,
            other => panic!("expected a stale source, got {other:?}"),
        }
    }

    #[test]
    fn a_source_is_current_when_all_it_watches_is() {
        let mut health = Health::of(&["pods", "namespaces"]);
        assert_eq!(health.report("pods", None), None);
        assert_eq!(health.report("namespaces", None), Some(SourceState::Current));
        assert_eq!(health.report("namespaces", None), None);
    }

    #[test]
    fn a_problem_is_told_once_and_not_per_retry() {
        let mut health = Health::of(&["pods", "namespaces"]);
        assert!(stale(health.report("pods", unreachable("refused"))).contains("refused"));
        assert_eq!(health.report("pods", unreachable("reset")), None);
        assert_eq!(
            health.report("pods", None),
            None,
            "the namespaces have not been seen yet"
        );
        assert_eq!(health.report("namespaces", None), Some(SourceState::Current));
    }

    #[test]
    fn another_kind_of_problem_is_news_and_the_same_one_is_named_once() {
        let mut health = Health::of(&["pods", "namespaces"]);
        stale(health.report("pods", unreachable("refused")));
        assert_eq!(health.report("namespaces", unreachable("refused")), None);
        let mixed = stale(health.report("pods", forbidden("pods")));
        assert!(mixed.contains("refused") && mixed.contains("pods"), "{mixed}");
        let both = stale(health.report("namespaces", forbidden("namespaces")));
        assert!(
            both.contains("\"pods\"") && both.contains("\"namespaces\""),
            "{both}"
        );
    }
}
