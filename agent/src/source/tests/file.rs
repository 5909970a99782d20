//! The file source with real folders and real inotify.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use agent_core::facts::Fact;
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::view::View;
use crate::source::file::FileSource;

fn pod(name: &str, label: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, uid: uid-{name}, \
         labels: {{version: {label}}}}}\nspec: {{nodeName: n1}}\nstatus: {{phase: Running, podIP: 10.0.0.1}}\n"
    )
}

/// Follows a path until the test ends.
fn follow(path: &Path) -> View {
    let (facts, view) = mpsc::channel(1024);
    let source = FileSource::open(path, "Kubernetes".into()).expect("a path that exists");
    tokio::spawn(source.run(facts));
    View::new(view)
}

/// Writes beside the file and renames into place, as careful programs do.
fn replace(file: &Path, text: &str) {
    let beside = file.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, file).unwrap();
}

struct Folder {
    folder: TempDir,
}

impl Folder {
    fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn with(files: &[(&str, &str)]) -> (Self, View) {
        let folder = Self::new();
        for (name, text) in files {
            fs::write(folder.path(name), text).unwrap();
        }
        let mut view = follow(folder.folder.path());
        view.until("the first reading", View::current).await;
        (folder, view)
    }
}

#[tokio::test]
async fn the_first_reading_is_a_complete_list() {
    let (_folder, view) =
        Folder::with(&[("a.yaml", &pod("a", "v1")), ("b.json", "{\"kind\": \"Service\"}")]).await;
    assert_eq!(view.names(), ["a"]);
    assert_eq!(view.namespaces.keys().collect::<Vec<_>>(), ["shop"]);
    let markers: Vec<_> = view
        .told
        .iter()
        .filter(|fact| !matches!(fact, Fact::Pod(_) | Fact::Namespace(_)))
        .collect();
    assert_eq!(
        markers[..4],
        [
            &Fact::NamespacesRelist,
            &Fact::NamespacesListed,
            &Fact::PodsRelist,
            &Fact::PodsListed
        ]
    );
}

#[tokio::test]
async fn an_empty_folder_is_a_complete_list_of_nothing() {
    let (folder, mut view) = Folder::with(&[]).await;
    assert_eq!((view.lists, view.pods.len()), (1, 0));
    fs::write(folder.path("a.yml"), pod("a", "v1")).unwrap();
    view.until("the first pod", |view| view.names() == ["a"]).await;
}

#[tokio::test]
async fn a_missing_path_is_an_error_with_a_fix() {
    let folder = Folder::new();
    let error = FileSource::open(&folder.path("no"), "c".into())
        .err()
        .expect("no source")
        .to_string();
    assert!(
        error.contains("/no: No such file") && error.contains("name a manifest or a folder"),
        "{error}"
    );
}

#[tokio::test]
async fn files_are_changed_replaced_renamed_added_and_removed() {
    let (folder, mut view) = Folder::with(&[("a.yaml", &pod("a", "v1"))]).await;
    fs::write(folder.path("a.yaml"), pod("a", "v2")).unwrap();
    view.until("the change in place", |view| {
        view.pods["uid-a"].labels["version"] == "v2"
    })
    .await;
    replace(&folder.path("a.yaml"), &pod("a", "v3"));
    view.until("the replacement", |view| {
        view.pods["uid-a"].labels["version"] == "v3"
    })
    .await;

    let before = view.told.len();
    fs::rename(folder.path("a.yaml"), folder.path("z.yaml")).unwrap();
    fs::write(folder.path("b.yaml"), pod("b", "v1")).unwrap();
    view.until("the added pod", |view| view.names() == ["a", "b"])
        .await;
    let gone = view.told[before..]
        .iter()
        .any(|fact| matches!(fact, Fact::PodGone(_)));
    assert!(!gone, "a file that is renamed does not take its pod away");

    fs::remove_file(folder.path("z.yaml")).unwrap();
    view.until("the removal", |view| view.names() == ["b"]).await;
}

#[tokio::test]
async fn a_broken_file_keeps_its_pods_and_does_not_stop_the_others() {
    let (folder, mut view) = Folder::with(&[("a.yaml", &pod("a", "v1")), ("b.yaml", &pod("b", "v1"))]).await;
    fs::write(folder.path("a.yaml"), "kind: Pod\nmetadata: [\n").unwrap();
    view.until("the bad file", |view| !view.bad.is_empty()).await;
    fs::write(folder.path("b.yaml"), pod("b", "v2")).unwrap();
    view.until("the good file", |view| {
        view.pods["uid-b"].labels["version"] == "v2"
    })
    .await;
    assert_eq!(view.names(), ["a", "b"]);
    let object = format!("file {}", folder.path("a.yaml").display());
    assert!(view.bad[&object].problem.starts_with("line "), "{:?}", view.bad);

    fs::write(folder.path("a.yaml"), pod("a", "v9")).unwrap();
    view.until("the repair", |view| {
        view.bad.is_empty() && view.pods["uid-a"].labels["version"] == "v9"
    })
    .await;
}

#[tokio::test]
async fn what_is_no_readable_file_is_bad_and_does_not_block() {
    let (folder, mut view) = Folder::with(&[("a.yaml", &pod("a", "v1"))]).await;
    fs::create_dir(folder.path("folder.yaml")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.path("pipe.yaml"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let large = fs::File::create(folder.path("large.yaml")).unwrap();
    large.set_len((64 << 20) + 1).unwrap();
    drop(large);
    view.until("three bad files", |view| view.bad.len() == 3).await;
    assert_eq!(view.names(), ["a"]);
    let large = &view.bad[&format!("file {}", folder.path("large.yaml").display())];
    assert!(large.problem.contains("larger than 64 MiB"), "{large:?}");
}

#[tokio::test]
async fn the_folder_may_be_replaced_and_may_be_away_for_a_while() {
    let outer = Folder::new();
    let path = outer.path("manifests");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("a.yaml"), pod("a", "v1")).unwrap();
    let mut view = follow(&path);
    view.until("the first reading", View::current).await;

    fs::rename(&path, outer.path("old")).unwrap();
    view.until("the missing folder", |view| {
        view.problem()
            .is_some_and(|problem| problem.contains("put it back"))
    })
    .await;
    assert_eq!(view.names(), ["a"], "what was told stays");

    fs::create_dir(outer.path("new")).unwrap();
    fs::write(outer.path("new/b.yaml"), pod("b", "v1")).unwrap();
    fs::rename(outer.path("new"), &path).unwrap();
    view.until("the new folder", |view| view.current() && view.names() == ["b"])
        .await;
    fs::write(path.join("b.yaml"), pod("b", "v2")).unwrap();
    view.until("a change in the new folder", |view| {
        view.pods["uid-b"].labels["version"] == "v2"
    })
    .await;
    assert_eq!(view.lists, 1, "only the first reading is a full list");
}

/// What a kubelet makes of a ConfigMap: each file is a link into `..data`, which is a link that is swapped by rename.
#[tokio::test]
async fn a_mounted_config_map_is_followed_through_its_swaps() {
    for single in [false, true] {
        let mount = Folder::new();
        fs::create_dir(mount.path("..1")).unwrap();
        fs::write(mount.path("..1/pods.yaml"), pod("a", "v1")).unwrap();
        symlink("..1", mount.path("..data")).unwrap();
        symlink("..data/pods.yaml", mount.path("pods.yaml")).unwrap();
        let mut view = follow(&if single {
            mount.path("pods.yaml")
        } else {
            mount.folder.path().to_owned()
        });
        view.until("the first reading", |view| {
            view.current() && view.names() == ["a"]
        })
        .await;

        for version in 2..5 {
            let (old, new) = (
                mount.path(&format!("..{}", version - 1)),
                mount.path(&format!("..{version}")),
            );
            fs::create_dir(&new).unwrap();
            fs::write(new.join("pods.yaml"), pod("a", &format!("v{version}"))).unwrap();
            symlink(new.file_name().unwrap(), mount.path("..data_tmp")).unwrap();
            fs::rename(mount.path("..data_tmp"), mount.path("..data")).unwrap();
            fs::remove_dir_all(old).unwrap();
            let expected = format!("v{version}");
            view.until("the swap", |view| {
                view.pods["uid-a"].labels["version"] == expected
            })
            .await;
        }
        assert!(
            view.bad.is_empty() && view.states.len() == 1,
            "{:?} {:?}",
            view.bad,
            view.states
        );
    }
}

#[tokio::test]
async fn a_link_out_of_the_folder_is_followed() {
    let elsewhere = Folder::new();
    fs::write(elsewhere.path("real"), pod("a", "v1")).unwrap();
    let folder = Folder::new();
    symlink(elsewhere.path("real"), folder.path("a.yaml")).unwrap();
    let mut view = follow(folder.folder.path());
    view.until("the first reading", |view| view.names() == ["a"])
        .await;
    fs::write(elsewhere.path("real"), pod("a", "v2")).unwrap();
    view.until("the change behind the link", |view| {
        view.pods["uid-a"].labels["version"] == "v2"
    })
    .await;
}

#[tokio::test]
async fn a_single_file_is_followed_and_its_neighbours_are_not() {
    let folder = Folder::new();
    fs::write(folder.path("a.manifest"), pod("a", "v1")).unwrap();
    let mut view = follow(&folder.path("a.manifest"));
    view.until("the first reading", View::current).await;
    fs::write(folder.path("b.yaml"), pod("b", "v1")).unwrap();
    replace(&folder.path("a.manifest"), &pod("a", "v2"));
    view.until("the change", |view| view.pods["uid-a"].labels["version"] == "v2")
        .await;
    assert_eq!(view.names(), ["a"]);
}

#[tokio::test]
async fn a_thousand_rewrites_do_not_lose_the_last_state() {
    let (folder, mut view) = Folder::with(&[("a.yaml", &pod("a", "v0"))]).await;
    let file = folder.path("a.yaml");
    let writer = std::thread::spawn(move || {
        for version in 1..=1000 {
            let text = pod("a", &format!("v{version}"));
            if version % 2 == 0 {
                replace(&file, &text);
            } else {
                fs::write(&file, &text).unwrap();
            }
        }
    });
    // In between the file may be seen half written, and is bad then.
    let last = |view: &View| view.pods["uid-a"].labels["version"] == "v1000" && view.bad.is_empty();
    view.until("the last rewrite", last).await;
    writer.join().unwrap();
    assert_eq!(view.names(), ["a"]);
}

#[tokio::test]
async fn the_source_ends_when_nobody_listens() {
    let folder = Folder::new();
    let (facts, mut view) = mpsc::channel(1024);
    let source = tokio::spawn(
        FileSource::open(folder.folder.path(), "c".into())
            .unwrap()
            .run(facts),
    );
    view.recv().await.expect("a first fact");
    drop(view);
    source.await.unwrap().unwrap();
}
