//! Our plugin in a configuration: put in, taken out, and whether it is there.

use std::ops::Range;

use serde_json::Value;

use super::document::{Document, Member, NotUnderstood, Plugin, parse};
use super::element::{Element, VERSION};

/// Name of the network when a list is made of one plugin, as in Istio.
const NETWORK: &str = "k8s-pod-network";

/// How thoroughly to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Our plugin as it should be, and no other of ours: for the first look.
    Whole,
    /// Our plugin as it should be. Others may stand before and behind it: to insist on more would begin an endless
    /// quarrel with an agent of Istio, or with a program that has the same wish for the last place.
    Presence,
}

/// Whether our plugin is in a list as it should be.
#[must_use]
pub fn is_installed(text: &str, element: &Element, look: Look) -> bool {
    let Ok(Document::List { plugins }) = parse(text) else {
        return false;
    };
    let wanted = element.in_list();
    let ours = plugins.iter().filter(|plugin| plugin.is_ours()).count();
    plugins.iter().any(|plugin| plugin.value == wanted) && (look == Look::Presence || ours == 1)
}

/// Whether there is a plugin of ours, in whatever shape.
#[must_use]
pub fn has_ours(text: &str) -> bool {
    matches!(parse(text), Ok(Document::List { plugins }) if plugins.iter().any(Plugin::is_ours))
}

/// The text with our plugin as the last one, and with no other of ours. One plugin becomes a list.
///
/// # Errors
/// When the text is not understood, or has no plugin but ours.
pub fn insert(text: &str, element: &Element) -> Result<String, NotUnderstood> {
    match parse(text)? {
        Document::Single { members, .. } => Ok(list_of(text, &members, element)),
        Document::List { plugins } => {
            let bare = without_ours(text, &plugins);
            match parse(&bare)? {
                Document::List { plugins } => Ok(append(&bare, &plugins, element)),
                Document::Single { .. } => Ok(bare),
            }
        }
    }
}

/// The list without our plugin; `None` if it has none.
///
/// # Errors
/// When the text is not understood.
pub fn remove(text: &str) -> Result<Option<String>, NotUnderstood> {
    match parse(text)? {
        Document::List { plugins } if plugins.iter().any(Plugin::is_ours) => {
            Ok(Some(without_ours(text, &plugins)))
        }
        _ => Ok(None),
    }
}

fn without_ours(text: &str, plugins: &[Plugin]) -> String {
    let spans: Vec<_> = plugins.iter().map(|plugin| plugin.span.clone()).collect();
    without(text, &spans, |index| plugins[index].is_ours())
}

/// The text without some of the items of a list or object; each goes with the comma that it brought.
fn without(text: &str, items: &[Range<usize>], goes: impl Fn(usize) -> bool) -> String {
    let mut text = text.to_owned();
    let leading = (0..items.len()).take_while(|index| goes(*index)).count();
    for index in (leading..items.len()).rev().filter(|index| goes(*index)) {
        text.replace_range(items[index - 1].end..items[index].end, "");
    }
    if leading > 0 {
        let end = items
            .get(leading)
            .map_or(items[leading - 1].end, |next| next.start);
        text.replace_range(items[0].start..end, "");
    }
    text
}

/// In the style of the plugin before: on lines of its own with the same indentation, or on the same line.
fn append(text: &str, plugins: &[Plugin], element: &Element) -> String {
    let Some(last) = plugins.last() else {
        return text.to_owned();
    };
    let before = &text[..last.span.start];
    let blank = &before[before.trim_end().len()..];
    let ours = match blank.rsplit_once('\n') {
        Some((_, indentation)) => indented(&element.in_list(), indentation),
        None => element.in_list().to_string(),
    };
    let (head, tail) = text.split_at(last.span.end);
    format!("{head},{blank}{ours}{tail}")
}

/// A list of one plugin, whose text stays, and ours. Its version goes: a list has one for all.
fn list_of(text: &str, members: &[Member], element: &Element) -> String {
    let spans: Vec<_> = members.iter().map(|member| member.span.clone()).collect();
    let single = without(text, &spans, |index| members[index].key == "cniVersion");
    // A text in JSON has no line breaks in it, so that indentation changes none.
    let single = single.trim().replace('\n', "\n    ");
    let ours = indented(&element.in_list(), "    ");
    format!(
        "{{\n  \"cniVersion\": \"{VERSION}\",\n  \"name\": \"{NETWORK}\",\n  \"plugins\": [\n    {single},\n    {ours}\n  ]\n}}\n"
    )
}

/// Over several lines, keys sorted; all lines but the first are indented.
fn indented(value: &Value, indentation: &str) -> String {
    format!("{value:#}").replace('\n', &format!("\n{indentation}"))
}
