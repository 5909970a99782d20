//! The text of a configuration, taken apart but left as it is: where each member and each plugin stands in it.
//!
//! Files of other programs are changed in their text, not by parsing and printing them. What is not ours then stays byte
//! for byte: numbers that no float can hold, the order of keys, keys that nobody knows, indentation. So our plugin can be
//! taken out again with nothing but the file itself, whatever others did to it meanwhile; a copy of the original kept
//! aside would undo their changes too.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::element::PluginType;

/// Why a configuration is left alone. As in libcni, which would not use it either.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotUnderstood {
    /// The text.
    #[error("it is not a JSON object ({0})")]
    NotAnObject(String),
    /// A field.
    #[error("{field} {problem}")]
    Field {
        /// Which.
        field: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Readers of JSON differ on it, so that a container runtime may use what we do not understand.
    #[error("{field} {problem}, which not every reader of JSON takes")]
    InDoubt {
        /// Which field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl NotUnderstood {
    fn field(field: impl Into<String>, problem: &'static str) -> Self {
        Self::Field {
            field: field.into(),
            problem,
        }
    }

    fn in_doubt(field: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self::InDoubt {
            field: field.into(),
            problem: format!("{problem}"),
        }
    }
}

/// A member of an object.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) key: String,
    pub(super) value: Value,
    /// Where key and value stand, from the first quote to the end of the value.
    pub(super) span: Range<usize>,
    value_span: Range<usize>,
}

/// A plugin of a list.
#[derive(Debug)]
pub(super) struct Plugin {
    pub(super) value: Value,
    pub(super) span: Range<usize>,
}

impl Plugin {
    /// Whether it is ours, under either name.
    pub(super) fn is_ours(&self) -> bool {
        self.value["type"].as_str().is_some_and(PluginType::is_ours)
    }
}

/// A configuration that is understood.
#[derive(Debug)]
pub(super) enum Document {
    /// One plugin, with its members.
    Single { members: Vec<Member>, plugin: String },
    /// A list.
    List { plugins: Vec<Plugin> },
}

/// Takes a text apart.
///
/// # Errors
/// When it is neither one plugin nor a list as libcni 1.3 takes it.
pub(super) fn parse(text: &str) -> Result<Document, NotUnderstood> {
    let members = members(text)?;
    let (single, list) = (get(&members, "type"), get(&members, "plugins"));
    match (single, list) {
        (Some(_), Some(_)) => Err(NotUnderstood::field(
            "\"type\"",
            "and \"plugins\" stand side by side: it can be one plugin or a list",
        )),
        (Some(single), None) => {
            let plugin = plugin_type(&single.value)
                .ok_or_else(|| NotUnderstood::field("\"type\"", "is not a name"))?
                .to_owned();
            Ok(Document::Single { members, plugin })
        }
        (None, Some(list)) => {
            let plugins = plugins(text, list)?;
            check_list(&members)?;
            Ok(Document::List { plugins })
        }
        (None, None) => {
            check_list(&members)?;
            Err(NotUnderstood::field(
                "\"plugins\"",
                "is missing, or misspelt: it is the list of the plugins",
            ))
        }
    }
}

/// Whether a list names no plugins itself, and so has them in the folder of its name (libcni 1.3): that name.
pub(super) fn plugins_elsewhere(text: &str) -> Option<String> {
    let members = members(text).ok()?;
    check_list(&members).ok()?;
    let inlined_only =
        get(&members, "loadOnlyInlinedPlugins").is_some_and(|only| as_bool(&only.value) == Some(true));
    let named_here = ["type", "plugins"].iter().any(|key| get(&members, key).is_some());
    let name = get(&members, "name")?.value.as_str()?;
    (!inlined_only && !named_here).then(|| name.to_owned())
}

/// Whether its main plugin is one that calls the configurations of others, of which ours may be part.
pub(super) fn delegates(text: &str) -> bool {
    const DELEGATING: [&str; 2] = ["multus", "multus-shim"];
    match parse(text) {
        Ok(Document::Single { plugin, .. }) => DELEGATING.contains(&&*plugin),
        Ok(Document::List { plugins }) => plugins
            .iter()
            .filter_map(|plugin| plugin_type(&plugin.value["type"]))
            .any(|plugin| DELEGATING.contains(&plugin)),
        Err(_) => false,
    }
}

/// What libcni asks of a list besides its plugins.
fn check_list(members: &[Member]) -> Result<(), NotUnderstood> {
    match get(members, "name") {
        None => {
            return Err(NotUnderstood::field(
                "\"name\"",
                "is missing: it is the name of the network",
            ));
        }
        Some(name) if !name.value.is_string() => {
            return Err(NotUnderstood::field("\"name\"", "is not a text"));
        }
        Some(_) => {}
    }
    if get(members, "cniVersion").is_some_and(|version| !version.value.is_string()) {
        return Err(NotUnderstood::field("\"cniVersion\"", "is not a text"));
    }
    let texts = |value: &Value| {
        value
            .as_array()
            .is_some_and(|items| items.iter().all(Value::is_string))
    };
    if get(members, "cniVersions").is_some_and(|versions| !texts(&versions.value)) {
        return Err(NotUnderstood::field("\"cniVersions\"", "is not a list of texts"));
    }
    for key in ["disableCheck", "disableGC", "loadOnlyInlinedPlugins"] {
        if get(members, key).is_some_and(|flag| as_bool(&flag.value).is_none()) {
            return Err(NotUnderstood::field(
                format!("{key:?}"),
                "is neither true nor false",
            ));
        }
    }
    Ok(())
}

fn as_bool(value: &Value) -> Option<bool> {
    value.as_bool().or_else(|| value.as_str()?.parse().ok())
}

fn plugins(text: &str, list: &Member) -> Result<Vec<Plugin>, NotUnderstood> {
    let raw: Vec<&RawValue> = serde_json::from_str(&text[list.value_span.clone()])
        .map_err(|_| NotUnderstood::field("\"plugins\"", "is not a list of plugins"))?;
    if raw.is_empty() {
        return Err(NotUnderstood::field(
            "\"plugins\"",
            "is empty: a network needs a main plugin",
        ));
    }
    let plugin = |(index, raw): (usize, &RawValue)| {
        let field = || format!("\"plugins[{index}]\"");
        let value: Value =
            serde_json::from_str(raw.get()).map_err(|error| NotUnderstood::in_doubt(field(), error))?;
        if !value.is_object() {
            return Err(NotUnderstood::field(field(), "is not an object"));
        }
        plugin_type(&value["type"]).ok_or_else(|| NotUnderstood::field(field(), "has no \"type\""))?;
        Ok(Plugin {
            value,
            span: span(text, raw),
        })
    };
    raw.into_iter().enumerate().map(plugin).collect()
}

fn plugin_type(value: &Value) -> Option<&str> {
    value.as_str().filter(|name| !name.is_empty())
}

fn get<'a>(members: &'a [Member], key: &str) -> Option<&'a Member> {
    members.iter().find(|member| member.key == key)
}

/// The members of the object that the text is.
fn members(text: &str) -> Result<Vec<Member>, NotUnderstood> {
    let not_an_object = |error: serde_json::Error| NotUnderstood::NotAnObject(error.to_string());
    let mut reader = serde_json::Deserializer::from_str(text);
    let pairs = reader.deserialize_map(Pairs).map_err(not_an_object)?;
    reader.end().map_err(not_an_object)?;
    let mut seen = BTreeSet::new();
    let member = |(key, value): (&RawValue, &RawValue)| {
        let (key_span, value_span) = (span(text, key), span(text, value));
        // Key and value are JSON, or the text would not have come apart; what fails now are depth, surrogates and the like.
        let key: String =
            serde_json::from_str(key.get()).map_err(|error| NotUnderstood::in_doubt(key.get(), error))?;
        if !seen.insert(key.clone()) {
            return Err(NotUnderstood::in_doubt(format!("{key:?}"), "stands there twice"));
        }
        let value = serde_json::from_str(value.get())
            .map_err(|error| NotUnderstood::in_doubt(format!("{key:?}"), error))?;
        Ok(Member {
            key,
            value,
            span: key_span.start..value_span.end,
            value_span,
        })
    };
    pairs.into_iter().map(member).collect()
}

/// Keys and values as they stand in the text.
struct Pairs;

impl<'de> Visitor<'de> for Pairs {
    type Value = Vec<(&'de RawValue, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(pairs)
    }
}

/// Where a part that was borrowed from the text stands in it.
fn span(text: &str, part: &RawValue) -> Range<usize> {
    let start = part.get().as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.get().len()
}
