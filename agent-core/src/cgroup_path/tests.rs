//! Paths that kubelets and runtimes make, paths that must not match, and the way there and back for any UID.

use proptest::prelude::*;

use super::*;

const UID: &str = "863b91d4-4b68-4efa-917f-4b560e3e86aa";
const ESCAPED: &str = "863b91d4_4b68_4efa_917f_4b560e3e86aa";
const OTHER: &str = "aaaabbbb-cccc-dddd-eeee-ffff00001111";
const DIGEST: &str = "0123456789abcdef0123456789abcdef";
const CONTAINER: &str = "8a6c2bfa6e7a6d8e4f8d4ad24c0b6dd2a0e7c8ab5a7d1d6f3a1b2c3d4e5f6a7b";

/// Fills in the placeholders of a path.
fn filled(path: &str) -> String {
    path.replace("UID", UID)
        .replace("ESCAPED", ESCAPED)
        .replace("OTHER", OTHER)
        .replace("DIGEST", DIGEST)
        .replace("CTR", CONTAINER)
}

#[test]
fn the_pod_is_found_in_the_path_of_each_driver_and_runtime() {
    let rows = [
        ("cgroupfs, guaranteed", "/kubepods/podUID/CTR", UID),
        ("cgroupfs, burstable", "/kubepods/burstable/podUID/CTR", UID),
        (
            "cgroupfs, the pod's own folder",
            "/kubepods/besteffort/podUID",
            UID,
        ),
        (
            "systemd, guaranteed",
            "/kubepods.slice/kubepods-podESCAPED.slice/cri-containerd-CTR.scope",
            UID,
        ),
        (
            "systemd, best effort",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podESCAPED.slice/crio-CTR.scope",
            UID,
        ),
        (
            "systemd, docker",
            "/kubepods.slice/kubepods-burstable-podESCAPED.slice/docker-CTR.scope",
            UID,
        ),
        (
            "systemd, container below",
            "/kubepods.slice/kubepods-podESCAPED.slice/crio-CTR.scope/container",
            UID,
        ),
        (
            "systemd, UID not escaped",
            "/kubepods.slice/kubepods-podUID.slice/cri-containerd-CTR.scope",
            UID,
        ),
        (
            "systemd under a root slice (kind)",
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable-podESCAPED.slice/cri-containerd-CTR.scope",
            UID,
        ),
        (
            "colons (containerd without SystemdCgroup)",
            "/system.slice/containerd.service/kubepods-besteffort-podESCAPED.slice:cri-containerd:CTR",
            UID,
        ),
        (
            "nested in docker (kind)",
            "/docker/CTR/kubelet/kubepods/besteffort/podUID/CTR",
            UID,
        ),
        ("from another cgroup namespace", "/../../podUID/CTR", UID),
        (
            "from another cgroup namespace, systemd",
            "/../../../kubepods-podESCAPED.slice/crio-CTR.scope",
            UID,
        ),
        (
            "static pod, cgroupfs",
            "/kubepods/burstable/podDIGEST/CTR",
            DIGEST,
        ),
        (
            "static pod, systemd",
            "/kubepods.slice/kubepods-burstable-podDIGEST.slice/crio-CTR.scope",
            DIGEST,
        ),
        ("static pod, elsewhere", "/../podDIGEST/CTR", DIGEST),
        (
            "other UID, cgroupfs",
            "/kubepods/burstable/podproxy_of-node.1/CTR",
            "proxy_of-node.1",
        ),
        (
            "other UID, systemd",
            "/kubepods.slice/kubepods-podproxy.slice/crio-CTR.scope",
            "proxy",
        ),
        ("the whole line of /proc", "0::/kubepods/podUID/CTR", UID),
        (
            "a pod within a pod is the outer one's",
            "/kubepods/podUID/CTR/kubepods/podOTHER/CTR",
            UID,
        ),
        (
            "also if its folder is named like systemd's",
            "/kubepods/podUID/kubepods-podOTHER.slice",
            UID,
        ),
        (
            "and if the outer one has an unusual UID",
            "/kubepods/podproxy/CTR/kubepods/podOTHER/CTR",
            "proxy",
        ),
    ];
    for (name, path, expected) in rows {
        assert_eq!(pod_uid_of(&filled(path)), Some(expected.into()), "{name}");
    }
}

#[test]
fn what_is_no_pod_is_not_taken_for_one() {
    for path in [
        "",
        "/",
        "/../..",
        "/CTR",
        "/kubepods",
        "/kubepods/besteffort",
        "/kubepods/burstable/CTR",
        "/kubepods.slice/kubepods-besteffort.slice",
        "/kubepods/pod",
        "/kubepods-pod.slice/CTR",
        "/kubepods-besteffort-pod.slice/CTR",
        "/system.slice/podman.service",
        "/system.slice/podUID.service",
        "/machine.slice/libpod-CTR.scope",
        "/libpod_parent/libpod-CTR",
        "/user.slice/user-1000.slice/session-1.scope",
        "/podman/CTR",
        "/podCTR",
        "/podUID0/CTR",
        "/xpodUID/CTR",
        "/pod863b91d4-4b68_4efa-917f-4b560e3e86aa/CTR",
        "/pod863b91d4-4b68-4efa-917f-4b560e3e86ag/CTR",
        "/pod863b91d44-b68-4efa-917f-4b560e3e86aa/CTR",
        "/podproxy/CTR",
        "/kubepods/other/podproxy/CTR",
        "/burstable/podproxy/CTR",
        "/kubepods.slice/kubepods-podmy_static_pod.slice/CTR",
        "/kubepods.slice/kubepods-podESCAPED-sub.slice/CTR",
        "/kubepods.slice/kubepods-podproxy-sub.slice/CTR",
        "/notkubepods-podESCAPED.slice/CTR",
        "/crio-CTR",
    ] {
        assert_eq!(pod_uid_of(&filled(path)), None, "{path}");
    }
}

#[test]
fn a_folder_alone_tells_its_pod() {
    let rows = [
        ("podUID", Some(UID)),
        ("podDIGEST", Some(DIGEST)),
        ("kubepods-besteffort-podESCAPED.slice", Some(UID)),
        ("kubepods-podESCAPED.slice:cri-containerd:CTR", Some(UID)),
        ("podproxy", None),
        ("kubepods-besteffort.slice", None),
        ("cri-containerd-CTR.scope", None),
        ("podUID/CTR", None),
        ("CTR", None),
    ];
    for (folder, expected) in rows {
        assert_eq!(
            pod_folder_uid(&filled(folder)),
            expected.map(PodUid::from),
            "{folder}"
        );
    }
}

/// The UIDs of Kubernetes: those of the API server and those of static pods.
fn uids() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "[0-9a-f]{32}"
    ]
}

/// The path of a container as kubelet's two drivers and the colon form make it.
fn paths(uid: &str, class: &str, container: &str) -> [String; 3] {
    let class_folder = if class.is_empty() {
        String::new()
    } else {
        format!("{class}/")
    };
    let class_part = if class.is_empty() {
        String::new()
    } else {
        format!("{class}-")
    };
    let slice = format!("kubepods-{class_part}pod{}.slice", uid.replace('-', "_"));
    [
        format!("/kubepods/{class_folder}pod{uid}/{container}"),
        format!("/kubepods.slice/{slice}/cri-containerd-{container}.scope"),
        format!("/system.slice/containerd.service/{slice}:cri-containerd:{container}"),
    ]
}

proptest! {
    #[test]
    fn any_uid_is_found_again_in_the_path_of_each_driver(
        uid in uids(),
        class in prop_oneof![Just(""), Just("burstable"), Just("besteffort")],
        container in "[0-9a-f]{64}",
        above in prop_oneof![Just(""), Just("/.."), Just("/../.."), Just("/docker/0123abcd/kubelet")],
    ) {
        for path in paths(&uid, class, &container) {
            prop_assert_eq!(pod_uid_of(&format!("{above}{path}")), Some(PodUid(uid.clone())), "{}", path);
        }
    }

    #[test]
    fn any_text_is_read_without_panic_and_never_gives_an_empty_uid(
        text in r"(/|\.\.|pod|kubepods|-|_|:|\.slice|burstable|[0-9a-f]{1,36}|\PC){0,12}"
    ) {
        prop_assert_ne!(pod_uid_of(&text), Some(PodUid::default()));
        prop_assert_ne!(pod_folder_uid(&text), Some(PodUid::default()));
    }
}
