//! The UID of the pod that a process belongs to, read from the path of its cgroup.

use crate::ids::PodUid;

/// The UID of the pod in the path of a cgroup (third field of a line of `/proc/<pid>/cgroup`, cgroups(7)), as kubelet
/// and container runtimes name it:
///
/// - kubelet's cgroupfs driver: `/kubepods/burstable/pod<uid>/<container>`;
/// - its systemd driver, where each `-` of the UID is written `_`:
///   `/kubepods.slice/…/kubepods-besteffort-pod<uid>.slice/cri-containerd-<container>.scope`;
/// - containerd with cgroupfs under a systemd kubelet: `/…/kubepods-pod<uid>.slice:cri-containerd:<container>`;
/// - nodes that are containers themselves, and views from another cgroup namespace (`/../../pod<uid>/<container>`).
///
/// The outermost pod counts: kubelet made that folder, while what lies within it may have been made by the pod itself,
/// which could name any other pod there.
#[must_use]
pub fn pod_uid_of(path: &str) -> Option<PodUid> {
    let mut holds_only_pods = false;
    for folder in path.split('/') {
        if let Some(uid) = pod_folder_uid(folder) {
            return Some(uid);
        }
        if holds_only_pods && let Some(uid) = folder.strip_prefix("pod").filter(|uid| !uid.is_empty()) {
            return Some(uid.into());
        }
        let is_class = matches!(folder, "burstable" | "besteffort");
        holds_only_pods = folder == "kubepods" || (holds_only_pods && is_class);
    }
    None
}

/// The UID in the name of a single cgroup folder: `pod<uid>`, `kubepods[-<class>]-pod<uid>.slice` (also behind the name
/// of a parent slice, `--cgroup-root`), or that slice with `:<runtime>:<container>`.
///
/// A folder `pod…` counts only with a UUID or 32 hexadecimal digits (static pods), since `podman` is no pod. A slice
/// may have any UID, but one with `_` that is no UUID is ambiguous and not taken.
#[must_use]
pub fn pod_folder_uid(name: &str) -> Option<PodUid> {
    let folder = name.split(':').next()?;
    match folder.strip_suffix(".slice") {
        Some(slice) => pod_of_slice(slice),
        None => folder.strip_prefix("pod").and_then(usual_uid),
    }
}

/// Kubelet escapes `-` in names, so a `-` in a slice's name parts it from its parent slice (systemd.slice(5)).
fn pod_of_slice(slice: &str) -> Option<PodUid> {
    let below = match slice.strip_prefix("kubepods-") {
        Some(below) => below,
        None => slice.split_once("-kubepods-")?.1,
    };
    let pod = ["burstable-", "besteffort-"]
        .iter()
        .find_map(|class| below.strip_prefix(class))
        .unwrap_or(below);
    let text = pod.strip_prefix("pod")?;
    usual_uid(text).or_else(|| {
        let unambiguous = !text.is_empty() && !text.contains(['-', '_']);
        unambiguous.then(|| text.into())
    })
}

/// A UUID with `-` or `_`, or the 32 digits by which kubelet names static pods.
fn usual_uid(text: &str) -> Option<PodUid> {
    let is_digest = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_digest || is_uuid(text, b'-') || is_uuid(text, b'_')).then(|| PodUid(text.replace('_', "-")))
}

fn is_uuid(text: &str, separator: u8) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == separator,
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests;
