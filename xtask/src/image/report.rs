//! What was made, for people and for programs, and what can be done with it next.

use std::fmt;
use std::path::PathBuf;

use serde_json::json;

use super::archive::Image;

/// An archive that was written.
pub(super) struct Report {
    name: String,
    architecture: &'static str,
    digest: String,
    archive: PathBuf,
    bytes: usize,
    files: Vec<(String, usize)>,
}

impl Report {
    pub(super) fn new(image: &Image<'_>, digest: String, archive: PathBuf, bytes: usize) -> Self {
        Self {
            name: image.name.to_string(),
            architecture: image.architecture,
            digest,
            archive,
            bytes,
            files: image.layer.files.clone(),
        }
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let file = |(path, bytes): &(String, usize)| json!({"path": format!("/{path}"), "bytes": bytes});
        let files: Vec<_> = self.files.iter().map(file).collect();
        json!({
            "name": self.name,
            "architecture": self.architecture,
            "digest": self.digest,
            "archive": self.archive,
            "bytes": self.bytes,
            "files": files,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>12}  FILE", "BYTES")?;
        for (path, bytes) in &self.files {
            writeln!(f, "{bytes:>12}  /{path}")?;
        }
        let archive = self.archive.display();
        writeln!(f, "{:>12}  {archive}", self.bytes)?;
        writeln!(f, "image   {} (linux/{})", self.name, self.architecture)?;
        writeln!(f, "digest  {}", self.digest)?;
        writeln!(f, "next    on a node:      ctr -n k8s.io images import {archive}")?;
        write!(
            f,
            "        to a registry:  skopeo copy oci-archive:{archive} docker://REGISTRY/meshgate:TAG"
        )
    }
}
