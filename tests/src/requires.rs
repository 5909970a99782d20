//! What a test needs of the machine: it either runs or says loudly that it was skipped and why.

use std::path::{Path, PathBuf};

use crate::containerd::REFERENCE_PLUGINS;

/// Prints that a test is skipped, in the one form that the test summary counts: `SKIPPED name: why`.
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
}

/// Whether this process may make namespaces, cgroups and BPF programs. Says so when it may not.
#[must_use]
pub fn root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(test, "needs root");
    }
    root
}

/// The program that an environment variable names. Says so when it is unset or names no file.
#[must_use]
pub fn program(test: &str, variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    match path {
        None => skip(test, &format!("{variable} is not set")),
        Some(path) if path.is_file() => return Some(path),
        Some(path) => skip(
            test,
            &format!("{variable} names {}, which is no file", path.display()),
        ),
    }
    None
}

/// Whether a command is installed. Says so when it is not.
#[must_use]
pub fn command(test: &str, name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).any(|folder| folder.join(name).is_file());
    if !found {
        skip(test, &format!("{name} is not installed"));
    }
    found
}

/// Whether containerd, what it runs and the reference CNI plugins are installed, for a [`crate::Containerd`], which needs
/// root too. Says so when something is missing.
#[must_use]
pub fn container_runtime(test: &str) -> bool {
    let programs = ["containerd", "ctr", "runc", "iptables", "unshare", "ldd"];
    if !root(test) || !programs.iter().all(|program| command(test, program)) {
        return false;
    }
    let plugins = Path::new(REFERENCE_PLUGINS);
    let found = plugins.join("bridge").is_file();
    if !found {
        skip(
            test,
            &format!("there are no CNI plugins in {}", plugins.display()),
        );
    }
    found
}

/// The folder with etcd and kube-apiserver, named by `KUBEBUILDER_ASSETS`, for a [`crate::Cluster`], which needs root too.
/// Says so when something is missing.
#[must_use]
pub fn control_plane(test: &str) -> Option<PathBuf> {
    cluster_programs(test, &["etcd", "kube-apiserver"])
}

/// The folder with all programs of a cluster, and a container runtime, for a [`crate::OneNode`]. Says so when something is
/// missing.
#[must_use]
pub fn one_node(test: &str) -> Option<PathBuf> {
    let programs = [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
        "kubectl",
    ];
    let folder = cluster_programs(test, &programs)?;
    container_runtime(test).then_some(folder)
}

/// The folder with helm and a control plane.
#[must_use]
pub fn helm(test: &str) -> Option<PathBuf> {
    cluster_programs(test, &["etcd", "kube-apiserver", "helm"])
}

/// The archive of the agent's image.
#[must_use]
pub fn image(test: &str) -> Option<PathBuf> {
    const VARIABLE: &str = "MESHGATE_IMAGE";
    let archive = std::env::var_os(VARIABLE).map(PathBuf::from);
    let found = archive.filter(|archive| archive.is_file());
    if found.is_none() {
        skip(
            test,
            &format!("{VARIABLE} names no archive: cargo xtask image makes one"),
        );
    }
    found
}

fn cluster_programs(test: &str, programs: &[&str]) -> Option<PathBuf> {
    const VARIABLE: &str = "KUBEBUILDER_ASSETS";
    if !root(test) {
        return None;
    }
    let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        skip(test, &format!("{VARIABLE} is not set"));
        return None;
    };
    for program in programs {
        if !folder.join(program).is_file() {
            skip(
                test,
                &format!("{VARIABLE} names {}, which has no {program}", folder.display()),
            );
            return None;
        }
    }
    Some(folder)
}
