//! What a file says, and what all files say together. A file or an object that turns bad keeps what it said last.
//! Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_core::facts::{BadObject, NamespaceFacts, PodFacts, StringMap};
use agent_core::ids::{ClusterId, NamespaceRef};

use super::convert;
use super::manifest::{self, Object, WrongField};

/// What one file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reading {
    pods: Vec<PodFacts>,
    namespaces: Vec<NamespaceFacts>,
    bad: Vec<BadObject>,
}

/// What all files say.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Whole {
    pub(super) pods: Vec<PodFacts>,
    pub(super) namespaces: Vec<NamespaceFacts>,
    pub(super) bad: Vec<BadObject>,
}

impl Reading {
    /// Reads a file's text; `last` is what it said before.
    pub(super) fn of(cluster: &ClusterId, file: &Path, text: &[u8], last: Option<&Self>) -> Self {
        match manifest::objects(text) {
            Ok(objects) => {
                let mut reading = Self::default();
                for object in &objects {
                    reading.take(cluster, file, object, last);
                }
                reading
            }
            Err(error) => {
                let place = if error.line == 0 {
                    String::new()
                } else {
                    format!("line {}: ", error.line)
                };
                Self::broken(file, format!("{place}{}", error.problem), last)
            }
        }
    }

    /// A file that cannot be read at all.
    pub(super) fn broken(file: &Path, problem: String, last: Option<&Self>) -> Self {
        let bad = BadObject {
            object: format!("file {}", file.display()),
            problem,
            fix: "correct the file, or remove it if its objects are to go; until then they stay as they were last"
                .to_owned(),
        };
        Self {
            bad: vec![bad],
            ..last.cloned().unwrap_or_default()
        }
    }

    fn take(&mut self, cluster: &ClusterId, file: &Path, object: &Object, last: Option<&Self>) {
        match (object.api_version.as_str(), object.kind.as_str()) {
            ("v1", "Pod") => match pod(cluster, object) {
                Ok(pod) => self.pods.push(pod),
                Err(bad) => {
                    self.pods
                        .extend(last.and_then(|last| last.pod_like(object)).cloned());
                    self.bad.push(in_file(bad, file, object.line));
                }
            },
            ("v1", "Namespace") => match namespace(cluster, object) {
                Ok(namespace) => self.namespaces.push(namespace),
                Err(bad) => {
                    self.namespaces
                        .extend(last.and_then(|last| last.namespace_like(object)).cloned());
                    self.bad.push(in_file(bad, file, object.line));
                }
            },
            (_, "") => self.bad.push(in_file(without_kind(), file, object.line)),
            _ => {}
        }
    }

    /// The pod that an object with a mistake in it was: by UID, else by name.
    fn pod_like(&self, object: &Object) -> Option<&PodFacts> {
        let uid = object.text("uid");
        let namespace = object.text("namespace").unwrap_or_else(|| "default".to_owned());
        let name = object.text("name");
        self.pods
            .iter()
            .find(|pod| uid.as_deref() == Some(pod.pod.uid.as_str()))
            .or_else(|| {
                self.pods.iter().find(|pod| {
                    uid.is_none()
                        && pod.pod.namespace == namespace
                        && name.as_deref() == Some(pod.pod.name.as_str())
                })
            })
    }

    fn namespace_like(&self, object: &Object) -> Option<&NamespaceFacts> {
        let name = object.text("name")?;
        self.namespaces
            .iter()
            .find(|namespace| namespace.namespace.name == name)
    }
}

/// Puts files together. Of two pods with one UID, or two namespaces with one name and other labels, the first file's
/// counts. A namespace that only pods speak of is one without labels.
pub(super) fn together(cluster: &ClusterId, files: &BTreeMap<PathBuf, Reading>) -> Whole {
    let mut whole = Whole::default();
    let mut pods = BTreeMap::<&str, (&PodFacts, &Path)>::new();
    let mut namespaces = BTreeMap::<&str, (&NamespaceFacts, &Path)>::new();
    for (file, reading) in files {
        whole.bad.extend(reading.bad.iter().cloned());
        for pod in &reading.pods {
            let (first, where_) = *pods.entry(pod.pod.uid.as_str()).or_insert((pod, file));
            if !std::ptr::eq(first, pod) {
                let object = format!("Pod {}/{} ({})", pod.pod.namespace, pod.pod.name, file.display());
                whole.bad.push(twice(
                    object,
                    format!("metadata.uid {} is used twice", pod.pod.uid),
                    where_,
                ));
            }
        }
        for namespace in &reading.namespaces {
            let name = namespace.namespace.name.as_str();
            let (first, where_) = *namespaces.entry(name).or_insert((namespace, file));
            if first.labels != namespace.labels {
                let object = format!("Namespace {name} ({})", file.display());
                whole.bad.push(twice(
                    object,
                    "metadata.labels differ from an earlier one's".to_owned(),
                    where_,
                ));
            }
        }
    }
    whole.pods = pods.values().map(|(pod, _)| (*pod).clone()).collect();
    let mut all: BTreeMap<&str, NamespaceFacts> = namespaces
        .into_iter()
        .map(|(name, (namespace, _))| (name, namespace.clone()))
        .collect();
    for (pod, _) in pods.values() {
        all.entry(&pod.pod.namespace)
            .or_insert_with(|| unlabelled(cluster, &pod.pod.namespace));
    }
    whole.namespaces = all.into_values().collect();
    whole
}

fn unlabelled(cluster: &ClusterId, name: &str) -> NamespaceFacts {
    let namespace = NamespaceRef {
        cluster: cluster.clone(),
        name: name.to_owned(),
    };
    NamespaceFacts {
        namespace,
        labels: StringMap::new(),
    }
}

fn twice(object: String, problem: String, first: &Path) -> BadObject {
    let fix = format!("keep one of them; the one in {} counts", first.display());
    BadObject { object, problem, fix }
}

fn pod(cluster: &ClusterId, object: &Object) -> Result<PodFacts, BadObject> {
    let name = object.text("name");
    let decoded = object.pod().map_err(|WrongField(problem)| {
        let namespace = object.text("namespace").unwrap_or_else(|| "default".to_owned());
        wrong_type(
            format!("Pod {namespace}/{}", name.as_deref().unwrap_or("(no name)")),
            problem,
        )
    })?;
    convert::pod(cluster, &decoded)
}

fn namespace(cluster: &ClusterId, object: &Object) -> Result<NamespaceFacts, BadObject> {
    let metadata = object.metadata().map_err(|WrongField(problem)| {
        let name = object.text("name");
        wrong_type(
            format!("Namespace {}", name.as_deref().unwrap_or("(no name)")),
            problem,
        )
    })?;
    convert::namespace(cluster, &metadata)
}

fn wrong_type(object: String, problem: String) -> BadObject {
    BadObject {
        object,
        problem,
        fix: "write it with the type that Kubernetes wants; text that looks like a number or \
        a truth value needs quotes"
            .to_owned(),
    }
}

fn without_kind() -> BadObject {
    BadObject {
        object: "object without a kind".to_owned(),
        problem: "kind is missing".to_owned(),
        fix: "add apiVersion and kind, or keep other files out of this folder".to_owned(),
    }
}

fn in_file(bad: BadObject, file: &Path, line: u64) -> BadObject {
    BadObject {
        object: format!("{} ({}:{line})", bad.object, file.display()),
        ..bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, last: Option<&Reading>) -> Reading {
        Reading::of(&"c".into(), Path::new("/m/a.yaml"), text.as_bytes(), last)
    }

    fn pod(name: &str, uid: &str, rest: &str) -> String {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop, uid: '{uid}'{rest}}}\n"
        )
    }

    fn namespace(name: &str, label: &str) -> String {
        format!(
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{mode: {label}}}}}\n"
        )
    }

    fn whole(files: &[(&str, &str)]) -> Whole {
        let files = files.iter().map(|(name, text)| {
            let path = PathBuf::from(name);
            let reading = Reading::of(&"c".into(), &path, text.as_bytes(), None);
            (path, reading)
        });
        together(&"c".into(), &files.collect())
    }

    fn names(pods: &[PodFacts]) -> Vec<&str> {
        pods.iter().map(|pod| pod.pod.name.as_str()).collect()
    }

    #[test]
    fn pods_and_namespaces_are_taken_and_other_kinds_ignored() {
        let text = pod("a", "1", "")
            + &namespace("shop", "ambient")
            + "---\napiVersion: apps/v1\nkind: Deployment\n";
        let reading = read(&text, None);
        assert_eq!(
            (names(&reading.pods), reading.namespaces.len(), reading.bad.len()),
            (vec!["a"], 1, 0)
        );
    }

    #[test]
    fn a_bad_pod_keeps_what_it_said_last_and_does_not_stop_the_others() {
        let first = read(&(pod("a", "1", "") + &pod("b", "2", "")), None);
        let broken = [
            pod("a", "1", ", labels: {v: 1}"),
            pod("a", "1", "") + "status: {podIP: nonsense}\n",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop}\n".to_owned(),
        ];
        for a in broken {
            let second = read(&(a.clone() + &pod("c", "3", "")), Some(&first));
            assert_eq!(names(&second.pods), vec!["a", "c"], "{a}");
            assert_eq!(second.pods[0], first.pods[0], "{a}");
            assert_eq!(second.bad.len(), 1, "{a}");
            assert!(
                second.bad[0].object.starts_with("Pod shop/a (/m/a.yaml:"),
                "{:?}",
                second.bad
            );
        }
    }

    #[test]
    fn a_bad_pod_that_is_another_one_does_not_inherit_its_namesake() {
        let first = read(&pod("a", "1", ""), None);
        let second = read(&pod("a", "2", ", labels: {v: 1}"), Some(&first));
        assert_eq!((second.pods.len(), second.bad.len()), (0, 1));
    }

    #[test]
    fn a_file_that_cannot_be_parsed_keeps_all_and_is_named_with_line_and_fix() {
        let first = read(&(pod("a", "1", "") + &namespace("shop", "ambient")), None);
        let second = read("kind: Pod\nmetadata: [\n", Some(&first));
        assert_eq!(
            (&second.pods, &second.namespaces),
            (&first.pods, &first.namespaces)
        );
        assert_eq!(second.bad[0].object, "file /m/a.yaml");
        assert!(second.bad[0].problem.starts_with("line "), "{:?}", second.bad);
        let third = read(&pod("b", "2", ""), Some(&second));
        assert_eq!((names(&third.pods), third.bad.len()), (vec!["b"], 0));
    }

    #[test]
    fn an_object_without_a_kind_is_named() {
        let bad = &read("a: 1\n", None).bad[0];
        assert_eq!(
            (bad.object.as_str(), bad.problem.as_str()),
            ("object without a kind (/m/a.yaml:1)", "kind is missing")
        );
    }

    #[test]
    fn a_namespace_that_only_pods_speak_of_has_no_labels() {
        let whole = whole(&[("a.yaml", &pod("a", "1", ""))]);
        assert_eq!(whole.namespaces, vec![unlabelled(&"c".into(), "shop")]);
    }

    #[test]
    fn the_first_file_counts_when_two_say_different_things() {
        let a = pod("a", "1", "") + &namespace("shop", "ambient");
        let b = pod("b", "1", "") + &namespace("shop", "none");
        let whole = whole(&[("a.yaml", &a), ("b.yaml", &b)]);
        assert_eq!(names(&whole.pods), vec!["a"]);
        assert_eq!(whole.namespaces[0].labels["mode"], "ambient");
        let objects: Vec<_> = whole.bad.iter().map(|bad| bad.object.as_str()).collect();
        assert_eq!(objects, vec!["Pod shop/b (b.yaml)", "Namespace shop (b.yaml)"]);
    }

    #[test]
    fn the_same_namespace_in_two_files_is_fine() {
        let text = namespace("shop", "ambient");
        assert_eq!(whole(&[("a.yaml", &text), ("b.yaml", &text)]).bad, vec![]);
    }
}
