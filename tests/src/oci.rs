//! A container image as a tarball of the OCI image layout (image-spec 1.1, "Image Layout"), for machines on which none
//! can be pulled: one layer, one manifest, and the name by which a runtime finds it.

use std::io;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// What the image is made of.
#[derive(Clone, Debug)]
pub struct Image {
    /// Fully qualified name with a tag, else a runtime tries to pull it: `docker.io/library/name:1`.
    pub name: String,
    /// Files in it, all of them executable; folders come by themselves.
    pub files: Vec<File>,
    /// What a container runs.
    pub entrypoint: Vec<String>,
    /// Its arguments, unless the container says others.
    pub arguments: Vec<String>,
}

/// A file of an image.
#[derive(Clone, Debug)]
pub struct File {
    /// Absolute path in the container.
    pub path: String,
    /// Content.
    pub bytes: Vec<u8>,
}

/// A blob of the layout, and how others point to it.
struct Blob {
    media_type: &'static str,
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(kind: &'static str, bytes: Vec<u8>) -> Self {
        let digest = Sha256::digest(&bytes);
        Self {
            media_type: kind,
            digest: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            bytes,
        }
    }

    fn json(kind: &'static str, value: &Value) -> Self {
        Self::new(kind, value.to_string().into_bytes())
    }

    fn descriptor(&self) -> Value {
        json!({
            "mediaType": self.media_type,
            "digest": format!("sha256:{}", self.digest),
            "size": self.bytes.len(),
        })
    }
}

/// Makes the tarball.
///
/// # Errors
/// When a path does not fit into a tar header.
pub fn archive(image: &Image) -> Result<Vec<u8>> {
    let layer = Blob::new("application/vnd.oci.image.layer.v1.tar", layer(&image.files)?);
    let config = Blob::json("application/vnd.oci.image.config.v1+json", &config(image, &layer));
    let manifest = Blob::json(
        "application/vnd.oci.image.manifest.v1+json",
        &json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
        }),
    );
    let mut named = manifest.descriptor();
    // The annotation is containerd's: the name without which its import knows only a tag.
    named["annotations"] = json!({ "io.containerd.image.name": image.name });
    let index = json!({ "schemaVersion": 2, "manifests": [named] });
    let mut tarball = Builder::new(Vec::new());
    append(
        &mut tarball,
        "oci-layout",
        json!({ "imageLayoutVersion": "1.0.0" }).to_string().as_bytes(),
    )?;
    append(&mut tarball, "index.json", index.to_string().as_bytes())?;
    for blob in [&layer, &config, &manifest] {
        append(
            &mut tarball,
            &format!("blobs/sha256/{}", blob.digest),
            &blob.bytes,
        )?;
    }
    Ok(tarball.into_inner()?)
}

/// The image's configuration (image-spec 1.1, "Image Configuration"), for the architecture that this runs on.
fn config(image: &Image, layer: &Blob) -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": { "Entrypoint": image.entrypoint, "Cmd": image.arguments },
        // An uncompressed layer: its digest is that of the blob.
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", layer.digest)] },
    })
}

/// The layer: the folders of each file before it.
fn layer(files: &[File]) -> Result<Vec<u8>> {
    let mut tarball = Builder::new(Vec::new());
    let mut made = Vec::new();
    for file in files {
        let path = file.path.trim_start_matches('/');
        for (end, _) in path.match_indices('/') {
            let folder = &path[..=end];
            if !made.contains(&folder) {
                let mut header = header(0);
                header.set_entry_type(EntryType::Directory);
                tarball.append_data(&mut header, folder, io::empty())?;
                made.push(folder);
            }
        }
        append(&mut tarball, path, &file.bytes)?;
    }
    Ok(tarball.into_inner()?)
}

fn append(tarball: &mut Builder<Vec<u8>>, path: &str, bytes: &[u8]) -> Result<()> {
    tarball
        .append_data(&mut header(bytes.len()), path, bytes)
        .with_context(|| format!("packing {path}"))
}

/// Of root, executable, as old as time: the same files make the same image.
fn header(size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(size as u64);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;

    fn unpack(tarball: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(tarball);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (entry.path().unwrap().display().to_string(), bytes)
        });
        entries.collect()
    }

    #[test]
    fn each_part_is_found_by_the_digest_of_its_bytes() {
        let file = |path: &str, bytes: &[u8]| File {
            path: path.to_owned(),
            bytes: bytes.to_vec(),
        };
        let image = Image {
            name: "example.com/tool:1".to_owned(),
            files: vec![
                file("/tool", b"tool"),
                file("/lib/x/a.so", b"a"),
                file("/lib/x/b.so", b"b"),
            ],
            entrypoint: vec!["/tool".to_owned()],
            arguments: vec!["run".to_owned()],
        };
        let layout = unpack(&archive(&image).unwrap());
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"]
                .as_str()
                .unwrap()
                .strip_prefix("sha256:")
                .unwrap();
            let bytes = &layout[&format!("blobs/sha256/{digest}")];
            assert_eq!(descriptor["size"], bytes.len());
            bytes.clone()
        };
        assert_eq!(json(&layout["oci-layout"])["imageLayoutVersion"], "1.0.0");
        let named = &json(&layout["index.json"])["manifests"][0];
        assert_eq!(
            named["annotations"]["io.containerd.image.name"],
            "example.com/tool:1"
        );
        let manifest = json(&blob(named));
        let config = json(&blob(&manifest["config"]));
        assert_eq!(
            config["config"],
            json!({ "Entrypoint": ["/tool"], "Cmd": ["run"] })
        );
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        let files = unpack(&blob(&manifest["layers"][0]));
        assert_eq!(
            files.keys().collect::<Vec<_>>(),
            ["lib/", "lib/x/", "lib/x/a.so", "lib/x/b.so", "tool"]
        );
        assert_eq!(files["tool"], b"tool");
    }
}
