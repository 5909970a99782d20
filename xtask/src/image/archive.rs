//! The image around its layer: configuration, manifest and index as the OCI image specification 1.1 has them, in one
//! archive (an "OCI layout") that `ctr`, `podman`, `skopeo` and `docker` read.

use std::fmt::Write as _;

use anyhow::Context as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use super::layer::Layer;
use super::reference::Reference;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// The time of everything in it: the same binaries make the same image.
const EPOCH: &str = "1970-01-01T00:00:00Z";

/// An image of one layer.
pub(super) struct Image<'a> {
    pub(super) name: &'a Reference,
    /// As OCI names it.
    pub(super) architecture: &'static str,
    pub(super) layer: &'a Layer,
    /// The commit that it was built from.
    pub(super) revision: Option<String>,
}

/// A blob and what refers to it.
struct Blob {
    media_type: &'static str,
    bytes: Vec<u8>,
}

impl Blob {
    fn json(media_type: &'static str, value: &Value) -> Self {
        let bytes = value.to_string().into_bytes();
        Self { media_type, bytes }
    }

    fn descriptor(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": sha256(&self.bytes), "size": self.bytes.len()})
    }

    fn path(&self) -> String {
        format!("blobs/{}", sha256(&self.bytes).replace(':', "/"))
    }
}

impl Image<'_> {
    /// The digest of the image (of its manifest), and the archive.
    pub(super) fn archive(&self) -> anyhow::Result<(String, Vec<u8>)> {
        let layer = Blob {
            media_type: LAYER,
            bytes: self.layer.blob.clone(),
        };
        let config = Blob::json(CONFIG, &self.config());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
        });
        let manifest = Blob::json(MANIFEST, &manifest);
        let index = self.index(&manifest).to_string();
        let layout = json!({"imageLayoutVersion": "1.0.0"}).to_string();
        let mut files = vec![
            ("oci-layout".to_owned(), layout.into_bytes()),
            ("index.json".to_owned(), index.into_bytes()),
        ];
        let digest = sha256(&manifest.bytes);
        files.extend([manifest, config, layer].map(|blob| (blob.path(), blob.bytes)));
        Ok((digest, pack(files)?))
    }

    fn config(&self) -> Value {
        json!({
            "created": EPOCH,
            "architecture": self.architecture,
            "os": "linux",
            "config": {
                "User": "0:0",
                "Env": ["PATH=/usr/local/bin"],
                "Entrypoint": ["/usr/local/bin/meshgate"],
                "Cmd": ["run"],
                "Labels": self.labels(),
            },
            "rootfs": {"type": "layers", "diff_ids": [self.layer.diff_id]},
            "history": [{"created": EPOCH, "created_by": "cargo xtask image"}],
        })
    }

    fn labels(&self) -> Value {
        let mut labels = json!({
            "org.opencontainers.image.title": "meshgate",
            "org.opencontainers.image.description": "Node agent of an ambient service mesh, with eBPF",
            "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
            "org.opencontainers.image.licenses": "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)",
        });
        if let Some(revision) = &self.revision {
            labels["org.opencontainers.image.revision"] = json!(revision);
        }
        labels
    }

    /// containerd takes the whole name from its own annotation, others the tag from OCI's.
    fn index(&self, manifest: &Blob) -> Value {
        let mut entry = manifest.descriptor();
        entry["platform"] = json!({"architecture": self.architecture, "os": "linux"});
        entry["annotations"] = json!({
            "io.containerd.image.name": self.name.to_string(),
            "org.opencontainers.image.ref.name": self.name.tag(),
        });
        json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]})
    }
}

fn pack(files: Vec<(String, Vec<u8>)>) -> anyhow::Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        header.set_mtime(0);
        tar.append_data(&mut header, &path, bytes.as_slice())
            .with_context(|| format!("cannot pack {path}"))?;
    }
    Ok(tar.into_inner()?)
}

/// A digest as OCI writes it.
pub(super) fn sha256(bytes: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(bytes) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::super::layer::Entry;
    use super::*;

    fn image(name: &str) -> (String, Vec<u8>) {
        let layer = Layer::pack(vec![Entry::program("bin/a", b"a".to_vec())]).expect("a layer");
        let image = Image {
            name: &name.parse().expect("a name"),
            architecture: "amd64",
            layer: &layer,
            revision: Some("abc".to_owned()),
        };
        image.archive().expect("an archive")
    }

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().expect("tar").map(|entry| {
            let mut entry = entry.expect("an entry");
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("its bytes");
            (entry.path().expect("a path").display().to_string(), bytes)
        });
        entries.collect()
    }

    /// The blob that a descriptor means, which is what the descriptor says.
    fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
        let digest = descriptor["digest"].as_str().expect("a digest");
        let bytes = &files[&format!("blobs/{}", digest.replace(':', "/"))];
        assert_eq!(sha256(bytes), digest);
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    #[test]
    fn every_descriptor_means_a_blob_that_is_there() {
        let (digest, archive) = image("localhost/meshgate:1");
        let files = files(&archive);
        assert_eq!(files["oci-layout"], br#"{"imageLayoutVersion":"1.0.0"}"#);
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).expect("JSON");
        let index = json(&files["index.json"]);
        let entry = &index["manifests"][0];
        assert_eq!(entry["digest"], digest);
        assert_eq!(
            entry["annotations"]["io.containerd.image.name"],
            "localhost/meshgate:1"
        );
        let manifest = json(blob(&files, entry));
        let config = json(blob(&files, &manifest["config"]));
        blob(&files, &manifest["layers"][0]);
        assert_eq!(config["architecture"], "amd64");
        assert_eq!(
            config["config"]["Labels"]["org.opencontainers.image.revision"],
            "abc"
        );
        assert_eq!(config["rootfs"]["diff_ids"].as_array().map(Vec::len), Some(1));
        assert_eq!(files.len(), 5);
    }

    #[test]
    fn the_same_image_twice_is_the_same_archive() {
        assert_eq!(image("localhost/meshgate:1"), image("localhost/meshgate:1"));
        // The name is not in what the digest is of.
        assert_eq!(image("localhost/meshgate:1").0, image("localhost/meshgate:2").0);
    }

    #[test]
    fn the_digest_is_that_of_the_standard() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b""), empty);
    }
}
