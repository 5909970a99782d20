//! What becomes of a pod about which nobody can say whether it belongs to the mesh.

use std::fmt;
use std::str::FromStr;

/// As `failurePolicy` of admission webhooks in Kubernetes: it is for the absence of an answer and not for the answer
/// "no". A pod that is known to belong to the mesh and cannot be captured fails under both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The pod does not start, and kubelet tries again: none runs outside the mesh unseen.
    #[default]
    Fail,
    /// The pod starts uncaptured; the agent captures it when it hears of it.
    Ignore,
}

impl FailurePolicy {
    /// Its name in configurations.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for FailurePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Fail, Self::Ignore]
            .into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or_else(|| format!("{text:?} is neither Fail nor Ignore"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_have_a_name_and_nothing_else_is_one() {
        for policy in [FailurePolicy::Fail, FailurePolicy::Ignore] {
            assert_eq!(policy.as_str().parse(), Ok(policy));
        }
        for other in ["", "fail", "Open"] {
            assert!(other.parse::<FailurePolicy>().is_err(), "{other}");
        }
    }
}
