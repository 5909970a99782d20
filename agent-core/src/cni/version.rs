//! Versions of the CNI specification.

use std::fmt;

/// A version that the plugin speaks, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpecVersion {
    /// 0.1.0
    V0_1_0,
    /// 0.2.0
    V0_2_0,
    /// 0.3.0: a result has lists of interfaces, addresses and routes.
    V0_3_0,
    /// 0.3.1
    V0_3_1,
    /// 0.4.0: `CHECK`.
    V0_4_0,
    /// 1.0.0: addresses do not name their family any more.
    V1_0_0,
    /// 1.1.0: `GC`, `STATUS`, and more about interfaces and routes.
    V1_1_0,
}

impl SpecVersion {
    /// All of them, oldest first.
    pub const ALL: [Self; 7] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];
    /// What is spoken when nobody says which.
    pub const NEWEST: Self = Self::V1_1_0;

    /// The version of this name. A configuration without one is of 0.1.0, as in libcni.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "" => Some(Self::V0_1_0),
            name => Self::ALL.into_iter().find(|version| version.as_str() == name),
        }
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }
}

impl fmt::Display for SpecVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_found_by_its_name_and_others_are_not() {
        for version in SpecVersion::ALL {
            assert_eq!(SpecVersion::of(version.as_str()), Some(version));
        }
        assert_eq!(SpecVersion::of(""), Some(SpecVersion::V0_1_0));
        for other in ["1.2.0", "1.0", "v1.0.0", "0.5.0", "latest"] {
            assert_eq!(SpecVersion::of(other), None, "{other}");
        }
    }
}
