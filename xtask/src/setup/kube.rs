//! The control plane of the test clusters: etcd and kube-apiserver. `KUBEBUILDER_ASSETS` when it has both, else built
//! from `tests/upstream`, once for each state of its three files, into the user's cache.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::Item;
use crate::command::{find_program, run_quietly};
use crate::fnv::fnv1a;
use crate::workspace::{Workspace, cache};

/// The convention of Kubernetes' own test tools (envtest): a folder with these programs.
const VARIABLE: &str = "KUBEBUILDER_ASSETS";
const PROGRAMS: [&str; 2] = ["etcd", "kube-apiserver"];

pub(super) const ITEM: Item = Item {
    name: "api server",
    purpose: "tests and demo against a real Kubernetes API",
    find: |workspace| find(workspace).map(|folder| folder.display().to_string()),
    bring,
    by_hand: "install Go (1.26 or later) and run this again, or set KUBEBUILDER_ASSETS to a folder with etcd and \
              kube-apiserver",
};

/// The folder with the programs, or what is missing.
pub(crate) fn find(workspace: &Workspace) -> Result<PathBuf, String> {
    let given = env::var_os(VARIABLE).map(PathBuf::from);
    if let Some(folder) = given.filter(|folder| is_complete(folder)) {
        return Ok(folder);
    }
    let built = built(workspace).map_err(|error| format!("{error:#}"))?;
    if is_complete(&built) {
        Ok(built)
    } else {
        Err("not built yet".to_owned())
    }
}

fn is_complete(folder: &Path) -> bool {
    PROGRAMS.iter().all(|program| folder.join(program).is_file())
}

/// Where the build of this source goes.
fn built(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let source = source(workspace);
    let read = |name: &str| {
        fs::read(source.join(name)).with_context(|| format!("cannot read tests/upstream/{name}"))
    };
    let files = [read("go.mod")?, read("go.sum")?, read("main.go")?];
    Ok(cache()?.join(format!("kube-{:016x}", fnv1a(files.iter().map(Vec::as_slice)))))
}

fn source(workspace: &Workspace) -> PathBuf {
    workspace.root.join("tests/upstream")
}

/// Builds at low priority: it takes minutes, and other work runs beside it.
fn bring(workspace: &Workspace) -> anyhow::Result<()> {
    let go = find_program("go").context("Go is missing: the API server is built from its Go modules")?;
    let source = source(workspace);
    let manifest = fs::read_to_string(source.join("go.mod")).context("cannot read tests/upstream/go.mod")?;
    let version =
        required_version(&manifest, "k8s.io/kubernetes").context("go.mod does not name k8s.io/kubernetes")?;

    let folder = built(workspace)?;
    let unfinished = folder.with_extension(format!("new-{}", std::process::id()));
    fs::create_dir_all(&unfinished).with_context(|| format!("cannot make {}", unfinished.display()))?;
    let mut command = Command::new("nice");
    command
        .args(["-n", "10"])
        .arg(go)
        .args(["build", "-trimpath", "-ldflags", &linker_flags(version), "-o"])
        .arg(unfinished.join("kube"))
        .arg(".")
        .current_dir(&source)
        .envs([
            ("CGO_ENABLED", "0"),
            ("GOTOOLCHAIN", "local"),
            ("GOFLAGS", "-mod=readonly"),
            ("GOWORK", "off"),
        ]);
    let what = format!("building etcd and kube-apiserver {version} (about 5 minutes on 2 cores)");
    let built = run_quietly(&what, &mut command, &workspace.log("api-server"));
    let finished = built.and_then(|()| finish(&unfinished, &folder));
    if finished.is_err() {
        fs::remove_dir_all(&unfinished).with_context(|| format!("cannot remove {}", unfinished.display()))?;
    }
    finished
}

/// Links the names by which the one program is called, and gives the folder its name only when all is in it.
fn finish(unfinished: &Path, folder: &Path) -> anyhow::Result<()> {
    for program in PROGRAMS {
        symlink("kube", unfinished.join(program)).with_context(|| format!("cannot link {program}"))?;
    }
    fs::rename(unfinished, folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// The API server tells this version to its clients; without it, it calls itself v0.0.0.
fn linker_flags(version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut number = || numbers.next().unwrap_or("0");
    let package = "k8s.io/component-base/version";
    format!(
        "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={} -X {package}.gitMinor={}",
        number(),
        number()
    )
}

/// The version that a go.mod requires of a module.
fn required_version<'a>(manifest: &'a str, module: &str) -> Option<&'a str> {
    manifest.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        (words.next()? == module).then(|| words.next())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str =
        "module x\n\nrequire (\n\tk8s.io/component-base v0.37.2\n\tk8s.io/kubernetes v1.37.2\n)\n";

    #[test]
    fn the_version_of_a_module_is_read_from_the_manifest() {
        assert_eq!(required_version(MANIFEST, "k8s.io/kubernetes"), Some("v1.37.2"));
        assert_eq!(
            required_version("require k8s.io/kubernetes v1.34.0", "k8s.io/kubernetes"),
            Some("v1.34.0")
        );
        assert_eq!(required_version(MANIFEST, "k8s.io/kubectl"), None);
    }

    #[test]
    fn the_api_server_is_stamped_with_its_version() {
        let flags = linker_flags("v1.37.2");
        assert!(flags.contains("gitVersion=v1.37.2"));
        assert!(flags.contains("gitMajor=1 "));
        assert!(flags.ends_with("gitMinor=37"));
    }
}
