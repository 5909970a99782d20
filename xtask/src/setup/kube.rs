//! The programs of the test clusters, from etcd to kubelet, with kubectl and helm: those that `KUBEBUILDER_ASSETS` has, and
//! the others built from `tests/upstream`, once for each state of its files, into the user's cache.

use std::collections::BTreeMap;
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

/// The convention of Kubernetes' own test tools (envtest): a folder with some of these programs.
const VARIABLE: &str = "KUBEBUILDER_ASSETS";
/// The one program that is built, and plays the part that it is called by.
const ALL_IN_ONE: &str = "kube";
const PROGRAMS: [&str; 7] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
    "helm",
];

pub(super) const ITEM: Item = Item {
    name: "kubernetes",
    purpose: "tests and demo against a real Kubernetes API, and on a real node",
    find: |workspace| find(workspace).map(|folder| folder.display().to_string()),
    bring,
    by_hand: "install Go (1.26 or later) and run this again, or set KUBEBUILDER_ASSETS to a folder with etcd, \
              kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl and helm",
};

/// The folder with all programs, or what is missing.
pub(crate) fn find(workspace: &Workspace) -> Result<PathBuf, String> {
    let folders = Folders::of(workspace).map_err(|error| format!("{error:#}"))?;
    let lacking: Vec<_> = PROGRAMS
        .into_iter()
        .filter(|program| !folders.complete.join(program).is_file())
        .collect();
    if lacking.is_empty() {
        return Ok(folders.complete);
    }
    Err(format!("not built yet: {}", lacking.join(", ")))
}

/// Where the programs come from, and where they are all together.
struct Folders {
    /// What [`VARIABLE`] names, if it has one of the programs.
    given: Option<PathBuf>,
    /// What is built.
    built: PathBuf,
    /// One of the two, or links to both if each has some.
    complete: PathBuf,
}

impl Folders {
    fn of(workspace: &Workspace) -> anyhow::Result<Self> {
        let given = env::var_os(VARIABLE).map(PathBuf::from);
        let built = cache()?.join(format!("kube-{:016x}", hash(&source(workspace))?));
        Ok(Self::from(given, built))
    }

    fn from(given: Option<PathBuf>, built: PathBuf) -> Self {
        let count = |folder: &PathBuf| {
            PROGRAMS
                .into_iter()
                .filter(|program| folder.join(program).is_file())
                .count()
        };
        let given = given.filter(|folder| count(folder) > 0);
        let complete = match &given {
            None => built.clone(),
            Some(folder) if count(folder) == PROGRAMS.len() => folder.clone(),
            Some(folder) => {
                let name = fnv1a([folder.as_os_str().as_encoded_bytes()]);
                built.with_extension(format!("with-{name:016x}"))
            }
        };
        Self {
            given,
            built,
            complete,
        }
    }

    /// Makes links to what is given, and to what is built for the rest.
    fn complete(&self) -> anyhow::Result<()> {
        let Some(given) = self.given.as_ref().filter(|_| self.complete != self.built) else {
            return Ok(());
        };
        fs::create_dir_all(&self.complete)
            .with_context(|| format!("cannot make {}", self.complete.display()))?;
        for program in PROGRAMS {
            let from = [given, &self.built]
                .into_iter()
                .map(|folder| folder.join(program))
                .find(|path| path.is_file());
            let (from, link) = (
                from.with_context(|| format!("no {program} was built"))?,
                self.complete.join(program),
            );
            if link.symlink_metadata().is_ok() {
                fs::remove_file(&link).with_context(|| format!("cannot remove {}", link.display()))?;
            }
            symlink(&from, &link).with_context(|| format!("cannot link {}", link.display()))?;
        }
        Ok(())
    }
}

/// Tells one state of the source from another: of all files that are in its folder.
fn hash(source: &Path) -> anyhow::Result<u64> {
    let files = fs::read_dir(source).and_then(|entries| {
        let read = |entry: fs::DirEntry| Ok((entry.file_name(), fs::read(entry.path())?));
        entries
            .map(|entry| read(entry?))
            .collect::<std::io::Result<BTreeMap<_, _>>>()
    });
    let files = files.with_context(|| format!("cannot read {}", source.display()))?;
    Ok(fnv1a(files.iter().flat_map(|(name, text)| {
        [name.as_encoded_bytes(), text.as_slice()]
    })))
}

fn source(workspace: &Workspace) -> PathBuf {
    workspace.root.join("tests/upstream")
}

/// Builds what is not given.
fn bring(workspace: &Workspace) -> anyhow::Result<()> {
    let folders = Folders::of(workspace)?;
    if !folders.built.exists() {
        build(workspace, &folders.built)?;
    }
    folders.complete()
}

/// Builds at low priority: it takes minutes, and other work runs beside it.
fn build(workspace: &Workspace, folder: &Path) -> anyhow::Result<()> {
    let go = find_program("go").context("Go is missing: Kubernetes is built from its Go modules")?;
    let source = source(workspace);
    let manifest = fs::read_to_string(source.join("go.mod")).context("cannot read tests/upstream/go.mod")?;
    let version =
        required_version(&manifest, "k8s.io/kubernetes").context("go.mod does not name k8s.io/kubernetes")?;

    let unfinished = folder.with_extension(format!("new-{}", std::process::id()));
    fs::create_dir_all(&unfinished).with_context(|| format!("cannot make {}", unfinished.display()))?;
    let mut command = Command::new("nice");
    command
        .args(["-n", "10"])
        .arg(go)
        .args(["build", "-trimpath", "-ldflags", &linker_flags(version), "-o"])
        .arg(unfinished.join(ALL_IN_ONE))
        .arg(".")
        .current_dir(&source)
        .envs([
            ("CGO_ENABLED", "0"),
            ("GOTOOLCHAIN", "local"),
            ("GOFLAGS", "-mod=readonly"),
            ("GOWORK", "off"),
        ]);
    let what = format!("building Kubernetes {version} and etcd (about 8 minutes on 2 cores)");
    let built = run_quietly(&what, &mut command, &workspace.log("kubernetes"));
    let finished = built.and_then(|()| finish(&unfinished, folder));
    if finished.is_err() {
        fs::remove_dir_all(&unfinished).with_context(|| format!("cannot remove {}", unfinished.display()))?;
    }
    finished
}

/// Links the names by which the one program is called, and gives the folder its name only when all is in it.
fn finish(unfinished: &Path, folder: &Path) -> anyhow::Result<()> {
    for program in PROGRAMS {
        symlink(ALL_IN_ONE, unfinished.join(program)).with_context(|| format!("cannot link {program}"))?;
    }
    fs::rename(unfinished, folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// The programs tell this version; without it, they call themselves v0.0.0.
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
    fn a_given_folder_is_used_for_what_it_has() {
        let folder = env::temp_dir().join(format!("xtask-kube-{}", std::process::id()));
        let (given, built) = (folder.join("given"), folder.join("built"));
        fs::create_dir_all(&given).unwrap();
        let nothing = Folders::from(Some(given.clone()), built.clone());
        assert_eq!((nothing.given, nothing.complete), (None, built.clone()));
        fs::create_dir_all(&built).unwrap();
        for program in PROGRAMS {
            fs::write(built.join(program), "built").unwrap();
        }
        fs::write(given.join("etcd"), "given").unwrap();
        let some = Folders::from(Some(given.clone()), built.clone());
        for _ in 0..2 {
            some.complete().unwrap();
            let read = |program: &str| fs::read_to_string(some.complete.join(program)).unwrap();
            assert_eq!((read("etcd").as_str(), read("helm").as_str()), ("given", "built"));
        }
        for program in PROGRAMS {
            fs::write(given.join(program), "given").unwrap();
        }
        assert_eq!(Folders::from(Some(given.clone()), built).complete, given);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn every_file_of_the_source_tells_its_state() {
        let folder = env::temp_dir().join(format!("xtask-kube-hash-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("go.mod"), "module x").unwrap();
        let one = hash(&folder).unwrap();
        fs::write(folder.join("more.go"), "package main").unwrap();
        assert_ne!(hash(&folder).unwrap(), one);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_programs_are_stamped_with_their_version() {
        let flags = linker_flags("v1.37.2");
        assert!(flags.contains("gitVersion=v1.37.2"));
        assert!(flags.contains("gitMajor=1 "));
        assert!(flags.ends_with("gitMinor=37"));
    }
}
