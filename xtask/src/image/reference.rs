//! The name of an image, as container engines write it.

use std::fmt;
use std::str::FromStr;

/// `registry/repository:tag`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    repository: String,
    tag: String,
}

impl Reference {
    pub(super) fn tag(&self) -> &str {
        &self.tag
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.repository, self.tag)
    }
}

impl FromStr for Reference {
    type Err = String;

    /// Only full names: containerd keeps an imported image under the very name in the archive, and the kubelet asks for
    /// full names.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("{text:?} is no full name of an image: expected REGISTRY/REPOSITORY:TAG");
        let (repository, tag) = text.rsplit_once(':').ok_or_else(expected)?;
        let (registry, path) = repository.split_once('/').ok_or_else(expected)?;
        let is_host = registry == "localhost" || registry.contains(['.', ':']);
        let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/".contains(c);
        let in_tag = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let fine = is_host
            && !path.is_empty()
            && path.chars().all(lower)
            && !tag.is_empty()
            && tag.chars().all(in_tag);
        fine.then(|| Self {
            repository: repository.to_owned(),
            tag: tag.to_owned(),
        })
        .ok_or_else(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_registry_a_repository_and_a_tag() {
        for (text, tag) in [
            ("localhost/meshgate:0.1.0", "0.1.0"),
            ("registry.example:5000/mesh/meshgate:v1_a", "v1_a"),
        ] {
            let name: Reference = text.parse().expect("a name");
            assert_eq!((name.to_string().as_str(), name.tag()), (text, tag));
        }
        for bad in [
            "meshgate",
            "meshgate:1",
            "mesh/meshgate:1",
            "localhost/meshgate",
            "localhost:5000/meshgate",
            "localhost/:1",
            "localhost/Mesh:1",
            "localhost/mesh:",
        ] {
            assert!(bad.parse::<Reference>().is_err(), "{bad}");
        }
    }
}
