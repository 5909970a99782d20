//! The image of all containers of the tests, the pause of a sandbox included: the load tool with the libraries that this
//! machine links it with.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::{fs, str};

use anyhow::{Context, Result, ensure};

use crate::oci::{File, Image, archive};
use crate::programs;

/// Its name.
pub const IMAGE: &str = "docker.io/meshgate/load:1";

/// Where the tool is in it.
const TOOL: &str = "/meshgate-load";

/// Its tarball, made once for a process.
///
/// # Errors
/// When the tool was not built, or its libraries cannot be read.
pub fn tarball() -> Result<&'static [u8]> {
    static TARBALL: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(made) = TARBALL.get() {
        return Ok(made);
    }
    let program = programs::find("meshgate-load")?;
    let mut files = vec![file(&program, TOOL)?];
    for library in libraries(&program)? {
        files.push(file(Path::new(&library), &library)?);
    }
    let made = archive(&Image {
        name: IMAGE.to_owned(),
        files,
        entrypoint: vec![TOOL.to_owned()],
        arguments: vec!["sleep".to_owned()],
    })?;
    Ok(TARBALL.get_or_init(|| made))
}

fn file(path: &Path, inside: &str) -> Result<File> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(File {
        path: inside.to_owned(),
        bytes,
    })
}

/// Paths of the libraries that a program is linked with, and of the loader: none when it is linked statically.
fn libraries(program: &Path) -> Result<BTreeSet<String>> {
    let output = Command::new("ldd").arg(program).output().context("running ldd")?;
    let (printed, error) = (str::from_utf8(&output.stdout)?, str::from_utf8(&output.stderr)?);
    let is_known = output.status.success() || error.contains("not a dynamic executable");
    ensure!(is_known, "ldd {}: {error}", program.display());
    Ok(paths(printed))
}

/// The absolute paths in what ldd(1) prints: `name => path (address)`, or `path (address)`.
fn paths(printed: &str) -> BTreeSet<String> {
    let words = printed.split_whitespace().filter(|word| word.starts_with('/'));
    words.map(ToOwned::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_found_in_what_ldd_prints() {
        let printed = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(paths(printed).iter().collect::<Vec<_>>(), expected);
        assert!(paths("\tstatically linked\n").is_empty());
    }
}
