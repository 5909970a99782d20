//! What an operator should look at: which object, what is wrong, what to do.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use crate::facts::BadObject;
use crate::ids::PodRef;
use crate::labels::NETWORK;
use crate::wish::Capture;

/// Something that an operator should look at. The agent goes on meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What sort of problem.
    pub kind: ProblemKind,
    /// Which object.
    pub object: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub fix: String,
    /// The pod, if the object is one of this node.
    #[serde(skip)]
    pub pod: Option<PodRef>,
}

/// Sorts of problems, named for JSON and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The source cannot be read: what it told last still holds.
    SourceStale,
    /// An object cannot be understood.
    BadObject,
    /// An annotation of a captured pod is ignored.
    AnnotationIgnored,
    /// A newer pod has an address of a captured pod.
    AddressConflict,
}

impl ProblemKind {
    /// All sorts.
    pub const ALL: [Self; 4] = [
        Self::SourceStale,
        Self::BadObject,
        Self::AnnotationIgnored,
        Self::AddressConflict,
    ];

    /// The name, as in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SourceStale => "source_stale",
            Self::BadObject => "bad_object",
            Self::AnnotationIgnored => "annotation_ignored",
            Self::AddressConflict => "address_conflict",
        }
    }
}

impl Problem {
    pub(crate) fn source_stale(problem: &str) -> Self {
        Self {
            kind: ProblemKind::SourceStale,
            object: "source of pods and namespaces".to_owned(),
            problem: problem.to_owned(),
            fix: "what it told last still holds; repair the source".to_owned(),
            pod: None,
        }
    }

    pub(crate) fn bad_object(bad: &BadObject) -> Self {
        Self::from_bad(ProblemKind::BadObject, bad, None)
    }

    /// The annotations of a captured pod that are ignored, and its addresses that a newer pod has.
    pub(crate) fn of_capture(capture: &Capture) -> impl Iterator<Item = Self> {
        let ignored = capture.options.warnings.iter();
        let lost = capture.lost.iter();
        ignored
            .map(|bad| Self::from_bad(ProblemKind::AnnotationIgnored, bad, Some(capture.pod.clone())))
            .chain(lost.map(|(ip, owner)| Self::address_conflict(capture, *ip, owner)))
    }

    fn from_bad(kind: ProblemKind, bad: &BadObject, pod: Option<PodRef>) -> Self {
        let BadObject { object, problem, fix } = bad.clone();
        Self {
            kind,
            object,
            problem,
            fix,
            pod,
        }
    }

    fn address_conflict(loser: &Capture, ip: IpAddr, owner: &PodRef) -> Self {
        let network = match loser.network.as_str() {
            "" => "the default network".to_owned(),
            name => format!("network {name}"),
        };
        Self {
            kind: ProblemKind::AddressConflict,
            object: format!("pod {}", loser.pod),
            problem: format!("address {ip} in {network} belongs to the newer pod {owner}"),
            fix: format!(
                "delete one of the two pods and look why the CNI plugin gave the address twice, or label the pods \
                 with {NETWORK} if they are in different networks"
            ),
            pod: Some(loser.pod.clone()),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.object, self.problem, self.fix)
    }
}
