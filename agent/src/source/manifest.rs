//! Manifests → objects: YAML of one or many documents or JSON, lists taken apart, and of each object only the fields
//! that are read. Pure.

use std::fmt;

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use serde_saphyr::{Options, Spanned};

/// Largest manifest in bytes.
pub(super) const LARGEST: u64 = 64 << 20;

/// Fields that are kept: the others cost memory, and their mistakes are not our business.
const METADATA: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "labels",
    "annotations",
    "creationTimestamp",
];
const SPEC: &[&str] = &["nodeName", "serviceAccountName", "hostNetwork"];
const STATUS: &[&str] = &[
    "phase",
    "podIP",
    "podIPs",
    "initContainerStatuses",
    "containerStatuses",
];

/// An object of a manifest.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Object {
    /// Line where it begins, from 1.
    pub(super) line: u64,
    /// `apiVersion`.
    pub(super) api_version: String,
    /// `kind`; empty when it has none.
    pub(super) kind: String,
    metadata: Map<String, Value>,
    spec: Map<String, Value>,
    status: Map<String, Value>,
    items: Vec<Object>,
}

/// Why a manifest cannot be read.
#[derive(Debug, PartialEq)]
pub(super) struct Unreadable {
    /// Line, from 1; 0 when it is about the whole file.
    pub(super) line: u64,
    /// What is wrong there.
    pub(super) problem: String,
}

/// A field that does not have the type which Kubernetes wants.
#[derive(Debug, PartialEq)]
pub(super) struct WrongField(pub(super) String);

/// All objects of a manifest, in its order.
pub(super) fn objects(text: &[u8]) -> Result<Vec<Object>, Unreadable> {
    if text.iter().all(u8::is_ascii_whitespace) {
        // Most likely somebody is between truncating and writing.
        return Err(Unreadable {
            line: 0,
            problem: "the file is empty".into(),
        });
    }
    let mut objects = Vec::new();
    let mut reader = text;
    for document in serde_saphyr::read_with_options::<_, Spanned<Object>>(&mut reader, limits()) {
        flatten(
            at_line(document.map_err(|error| unreadable(&error))?),
            &mut objects,
        );
    }
    Ok(objects)
}

impl Object {
    /// As a pod with the fields that are read.
    pub(super) fn pod(&self) -> Result<Pod, WrongField> {
        Ok(Pod {
            metadata: self.metadata()?,
            spec: Some(section::<PodSpec>("spec", &self.spec)?),
            status: Some(section::<PodStatus>("status", &self.status)?),
        })
    }

    /// Its metadata with the fields that are read.
    pub(super) fn metadata(&self) -> Result<ObjectMeta, WrongField> {
        section("metadata", &self.metadata)
    }

    /// A field of the metadata if it is text, for messages about objects whose other fields are wrong.
    pub(super) fn text(&self, field: &str) -> Option<String> {
        self.metadata.get(field)?.as_str().map(str::to_owned)
    }
}

/// What a manifest may cost: room for 64 MiB of ordinary objects, and an end for documents that are small in the file
/// and large in memory (aliases of aliases).
fn limits() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: 16_000_000,
            max_events: 32_000_000,
            max_documents: 1_000_000,
            max_reader_input_bytes: Some(usize::try_from(LARGEST).unwrap_or(usize::MAX)),
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
        },
        with_snippet: false,
        emit_comments: false,
    }
}

fn unreadable(error: &serde_saphyr::Error) -> Unreadable {
    let line = error.location().map_or(0, |location| location.line());
    let text = error.without_snippet().to_string();
    Unreadable {
        line,
        problem: text.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// Takes lists apart (`kubectl get -o yaml` prints a `List`, the API server a `PodList` whose items name no kind).
fn flatten(object: Object, into: &mut Vec<Object>) {
    let Some(kind_of_items) = object.kind.strip_suffix("List") else {
        into.push(object);
        return;
    };
    for mut item in object.items {
        if item.kind.is_empty() && !kind_of_items.is_empty() {
            kind_of_items.clone_into(&mut item.kind);
            item.api_version.clone_from(&object.api_version);
        }
        flatten(item, into);
    }
}

fn at_line(object: Spanned<Object>) -> Object {
    Object {
        line: object.referenced.line(),
        ..object.value
    }
}

/// Decodes a section; the error names the field.
fn section<T: DeserializeOwned>(name: &str, fields: &Map<String, Value>) -> Result<T, WrongField> {
    let decode = |fields: Map<String, Value>| serde_json::from_value::<T>(Value::Object(fields));
    decode(fields.clone()).map_err(|whole| {
        let wrong = fields.iter().find_map(|(key, value)| {
            let error = decode(Map::from_iter([(key.clone(), value.clone())])).err()?;
            Some(format!("{name}.{key}: {error}"))
        });
        WrongField(wrong.unwrap_or_else(|| format!("{name}: {whole}")))
    })
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

/// Keeps what is read while the rest passes by.
struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a Kubernetes object: a mapping with apiVersion, kind and metadata")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Object, M::Error> {
        let mut object = Object::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "apiVersion" => object.api_version = text(map.next_value()?),
                "kind" => object.kind = text(map.next_value()?),
                "metadata" => object.metadata = kept(map.next_value()?, METADATA),
                "spec" => object.spec = kept(map.next_value()?, SPEC),
                "status" => object.status = kept(map.next_value()?, STATUS),
                "items" => {
                    let items = map
                        .next_value::<Option<Vec<Spanned<Object>>>>()?
                        .unwrap_or_default();
                    object.items = items.into_iter().map(at_line).collect();
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(object)
    }
}

fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        _ => String::new(),
    }
}

/// The named fields of a section; of other kinds a section may be anything.
fn kept(section: Value, names: &[&str]) -> Map<String, Value> {
    match section {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(name, value)| names.contains(&name.as_str()) && !value.is_null())
            .collect(),
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(String, u64)> {
        let objects = objects(text.as_bytes()).unwrap_or_else(|error| panic!("{error:?} in {text}"));
        objects
            .into_iter()
            .map(|object| (object.kind, object.line))
            .collect()
    }

    #[test]
    fn documents_and_lists_become_objects_with_their_lines() {
        let table: [(&str, &[(&str, u64)]); 8] = [
            ("kind: Pod\n", &[("Pod", 1)]),
            ("# nothing\n", &[]),
            (
                "---\nkind: Pod\n---\n---\nkind: Service\nspec: x\n...\n",
                &[("Pod", 2), ("Service", 5)],
            ),
            (
                "apiVersion: v1\nitems:\n- kind: Pod\n- kind: Pod\nkind: List\n",
                &[("Pod", 3), ("Pod", 4)],
            ),
            ("kind: PodList\nitems:\n- metadata: {name: a}\n", &[("Pod", 3)]),
            (
                "kind: List\nitems:\n- kind: List\n  items:\n  - kind: Pod\n",
                &[("Pod", 5)],
            ),
            ("kind: List\nitems: null\n", &[]),
            (
                "{\n\t\"kind\": \"Pod\",\n\t\"metadata\": {\"name\": \"\\ud83d\\ude00\\/\"}\n}",
                &[("Pod", 1)],
            ),
        ];
        for (text, expected) in table {
            let expected: Vec<_> = expected
                .iter()
                .map(|(kind, line)| ((*kind).to_owned(), *line))
                .collect();
            assert_eq!(kinds(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_yaml_or_not_an_object_is_refused_with_its_line() {
        let table = [
            ("kind: Pod\nmetadata:\n  name: [a\nspec: {}\n", 3..=5),
            ("kind: Pod\n---\nhello\n", 3..=3),
            ("kind: Pod\n---\n- kind: Pod\n", 3..=3),
            ("kind: Pod\nkind: Pod\n", 2..=2),
            (" \n\n", 0..=0),
            ("", 0..=0),
        ];
        for (text, lines) in table {
            let error = objects(text.as_bytes()).unwrap_err();
            assert!(lines.contains(&error.line), "{text:?}: {error:?}");
            assert!(
                !error.problem.is_empty() && !error.problem.contains('\n'),
                "{error:?}"
            );
        }
    }

    #[test]
    fn a_field_of_the_wrong_type_is_named_and_fields_that_nobody_reads_may_be_wrong() {
        let pod = |text: &str| objects(text.as_bytes()).unwrap().remove(0).pod();
        let WrongField(problem) = pod("kind: Pod\nmetadata: {name: a, labels: {v: 1}}\n").unwrap_err();
        assert!(
            problem.starts_with("metadata.labels: invalid type: integer `1`"),
            "{problem}"
        );
        let WrongField(problem) = pod("kind: Pod\nstatus: {podIPs: 10.0.0.1}\n").unwrap_err();
        assert!(problem.starts_with("status.podIPs: "), "{problem}");
        assert!(
            pod("kind: Pod\nspec: {containers: nonsense}\nstatus: {phase: Running, conditions: 7}\n").is_ok()
        );
    }

    #[test]
    fn yaml_bombs_are_refused_in_little_time_and_memory() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        bomb.push_str("kind: Pod\nmetadata: {name: a, labels: *a11}\n");
        let deep = format!(
            "kind: Pod\nmetadata: {}{}\n",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        for text in [bomb, deep] {
            let started = std::time::Instant::now();
            assert!(objects(text.as_bytes()).is_err());
            assert!(started.elapsed().as_secs() < 5);
        }
    }
}
