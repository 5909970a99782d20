//! Which pod a container runtime means, when it has made a sandbox.

use super::Catalog;
use crate::facts::{Phase, PodFacts};
use crate::ids::SandboxPod;
use crate::labels::STATIC_POD_UID;

impl Catalog {
    /// The pod that a new sandbox is for. A runtime that tells no UID means the newest pod of this name that has not
    /// ended: an older one of a StatefulSet may still be known.
    #[must_use]
    pub fn pod_of_sandbox(&self, sandbox: &SandboxPod) -> Option<&PodFacts> {
        self.pods
            .values()
            .filter(|facts| facts.pod.namespace == sandbox.namespace && facts.pod.name == sandbox.name)
            .filter(|facts| match &sandbox.uid {
                None => facts.phase != Phase::Terminal,
                Some(uid) => {
                    facts.pod.uid == *uid
                        || facts.annotations.get(STATIC_POD_UID).map(String::as_str) == Some(uid.as_str())
                }
            })
            .max_by_key(|facts| facts.created)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enrolment::Rules;
    use crate::facts::Fact;
    use crate::samples::{place, pod};

    fn catalog(pods: &[PodFacts]) -> Catalog {
        let mut catalog = Catalog::new(place(), Rules::default());
        for pod in pods {
            catalog.apply(Fact::Pod(Box::new(pod.clone())));
        }
        catalog
    }

    fn found(pods: &[PodFacts], uid: Option<&str>) -> Option<String> {
        let sandbox = SandboxPod {
            namespace: "default".to_owned(),
            name: "web-0".to_owned(),
            uid: uid.map(Into::into),
        };
        let catalog = catalog(pods);
        catalog
            .pod_of_sandbox(&sandbox)
            .map(|facts| facts.pod.uid.0.clone())
    }

    fn web(uid: &str, created: i64) -> PodFacts {
        let mut facts = pod(uid);
        facts.pod.name = "web-0".to_owned();
        facts.created = created;
        facts
    }

    #[test]
    fn namespace_and_name_both_count() {
        let (mut elsewhere, other) = (web("elsewhere", 1), pod("other"));
        elsewhere.pod.namespace = "shop".to_owned();
        assert_eq!(found(&[elsewhere, other], None), None);
        assert_eq!(found(&[web("a", 1)], None).as_deref(), Some("a"));
    }

    #[test]
    fn without_a_uid_the_newest_that_has_not_ended_is_meant() {
        let mut ended = web("c", 3);
        ended.phase = Phase::Terminal;
        assert_eq!(
            found(&[web("b", 1), web("a", 2), ended.clone()], None).as_deref(),
            Some("a")
        );
        assert_eq!(found(&[ended], None), None);
    }

    #[test]
    fn with_a_uid_no_other_pod_is_meant() {
        let pods = [web("a", 1), web("b", 2)];
        assert_eq!(found(&pods, Some("a")).as_deref(), Some("a"));
        assert_eq!(found(&pods, Some("c")), None);
    }

    #[test]
    fn a_static_pod_is_found_by_the_uid_that_kubelet_gave_it() {
        let mut mirror = web("of-the-api", 1);
        mirror
            .annotations
            .insert(STATIC_POD_UID.to_owned(), "of-kubelet".to_owned());
        assert_eq!(
            found(&[mirror], Some("of-kubelet")).as_deref(),
            Some("of-the-api")
        );
    }
}
