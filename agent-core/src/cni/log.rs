//! The plugin's log on its way to the agent, as Istio's plugin and agent speak it: a JSON list of texts, each of them a
//! line of JSON with `level`, `time`, `msg` and any labels.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Path of the request.
pub const PATH: &str = "/log";
/// More lines than one call of a plugin has to say.
const MOST_LINES: usize = 1000;
/// Longest message in bytes that is passed on.
const LONGEST_MESSAGE: usize = 4096;
/// Longest text of all labels of a line.
const LONGEST_LABELS: usize = 2048;

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A pod does not start.
    Error,
    /// Something that an operator should know.
    Warn,
    /// Something out of the ordinary.
    Info,
    /// Each call.
    Debug,
}

impl Level {
    /// The level of this name; Istio's `fatal` is an error to us.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "error" | "fatal" => Some(Self::Error),
            "warn" | "warning" => Some(Self::Warn),
            "info" => Some(Self::Info),
            "debug" | "trace" => Some(Self::Debug),
            _ => None,
        }
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How important it is.
    pub level: Level,
    /// When it was said (RFC 3339); as it came, empty if it did not.
    pub time: String,
    /// What is said.
    pub message: String,
    /// About what: names and values.
    pub labels: BTreeMap<String, String>,
}

impl Line {
    /// As it is written and sent.
    #[must_use]
    pub fn json(&self) -> String {
        let mut object = Map::new();
        object.insert("level".to_owned(), self.level.as_str().into());
        object.insert("time".to_owned(), self.time.as_str().into());
        object.insert("msg".to_owned(), self.message.as_str().into());
        for (key, value) in &self.labels {
            object.entry(key).or_insert_with(|| value.as_str().into());
        }
        Value::from(object).to_string()
    }

    /// Reads a line; `None` when it is not one. What is too long is cut, and what would not stay on one line of a log is
    /// made to.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let Ok(Value::Object(mut object)) = serde_json::from_str(text) else {
            return None;
        };
        let mut take = |key: &str| match object.remove(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (level, message) = (take("level")?, take("msg")?);
        let time = take("time").unwrap_or_default();
        Some(Self {
            level: Level::of(&level)?,
            time: printable(&time, 64),
            message: printable(&message, LONGEST_MESSAGE),
            labels: labels(object),
        })
    }
}

/// The labels of a line, as many as there is room for.
fn labels(object: Map<String, Value>) -> BTreeMap<String, String> {
    let mut room = LONGEST_LABELS;
    let mut labels = BTreeMap::new();
    for (key, value) in object {
        let value = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let (key, value) = (printable(&key, LONGEST_LABELS), printable(&value, LONGEST_LABELS));
        let Some(left) = room.checked_sub(key.len() + value.len()) else {
            break;
        };
        room = left;
        labels.insert(key, value);
    }
    labels
}

/// The text up to so many bytes, without control characters.
fn printable(text: &str, longest: usize) -> String {
    let text = &text[..text.floor_char_boundary(longest)];
    text.replace(char::is_control, " ")
}

/// What is posted.
#[must_use]
pub fn encode(lines: &[String]) -> String {
    serde_json::to_string(lines).expect("texts are always JSON")
}

/// What was posted.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    /// The lines.
    pub lines: Vec<Line>,
    /// How many others could not be read, or were too many.
    pub dropped: usize,
}

/// Reads what was posted.
///
/// # Errors
/// When it is no JSON list of texts.
pub fn decode(body: &[u8]) -> Result<Batch, serde_json::Error> {
    let texts: Vec<String> = serde_json::from_slice(body)?;
    let lines: Vec<_> = texts
        .iter()
        .take(MOST_LINES)
        .filter_map(|text| Line::parse(text))
        .collect();
    Ok(Batch {
        dropped: texts.len() - lines.len(),
        lines,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(message: &str, labels: &[(&str, &str)]) -> Line {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Line {
            level: Level::Warn,
            time: "2026-12-01T05:50:02.123456Z".to_owned(),
            message: message.to_owned(),
            labels: labels.iter().map(own).collect(),
        }
    }

    #[test]
    fn a_line_is_written_as_istios_plugin_does() {
        assert_eq!(
            line("slow", &[("pod", "shop/web")]).json(),
            r#"{"level":"warn","msg":"slow","pod":"shop/web","time":"2026-12-01T05:50:02.123456Z"}"#
        );
    }

    #[test]
    fn what_istios_plugin_sends_is_read_with_labels_of_any_type() {
        let sent = br#"["{\"level\":\"info\",\"time\":\"2026-12-01T05:50:02.1Z\",\"msg\":\"istio-cni ambient cmdAdd podName: web\",\"pod\":\"shop/web\",\"try\":2}\n"]"#;
        let batch = decode(sent).unwrap();
        let expected = Line {
            level: Level::Info,
            time: "2026-12-01T05:50:02.1Z".to_owned(),
            message: "istio-cni ambient cmdAdd podName: web".to_owned(),
            labels: [("pod", "shop/web"), ("try", "2")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        };
        assert_eq!((batch.lines, batch.dropped), (vec![expected], 0));
    }

    #[test]
    fn bad_lines_are_dropped_and_the_others_are_not() {
        let lines = [
            line("good", &[]).json(),
            "garbage".to_owned(),
            "[]".to_owned(),
            r#"{"level":"loud","msg":"x"}"#.to_owned(),
            r#"{"level":"info","msg":7}"#.to_owned(),
            r#"{"level":"info"}"#.to_owned(),
            r#"{"level":"INFO","msg":"also good"}"#.to_owned(),
        ];
        let batch = decode(encode(&lines).as_bytes()).unwrap();
        let said: Vec<_> = batch.lines.iter().map(|line| line.message.as_str()).collect();
        assert_eq!((said.as_slice(), batch.dropped), (&["good", "also good"][..], 5));
        for body in [&b""[..], b"{}", b"[1]", b"\xff"] {
            assert!(decode(body).is_err(), "{body:?}");
        }
    }

    #[test]
    fn what_is_too_long_is_cut_and_what_would_break_the_log_is_made_harmless() {
        let long = line(
            &"ä".repeat(LONGEST_MESSAGE),
            &[("a", &"x".repeat(LONGEST_LABELS - 1)), ("b", "y")],
        );
        let read = Line::parse(&long.json()).unwrap();
        assert_eq!(read.message.len(), LONGEST_MESSAGE);
        assert_eq!(read.labels.keys().collect::<Vec<_>>(), ["a"]);
        let read = Line::parse(&line("two\nlines \x1b[31mred", &[("k", "v\n")]).json()).unwrap();
        assert_eq!(
            (read.message.as_str(), read.labels["k"].as_str()),
            ("two lines  [31mred", "v ")
        );
        let many = vec![line("x", &[]).json(); MOST_LINES + 3];
        let batch = decode(encode(&many).as_bytes()).unwrap();
        assert_eq!((batch.lines.len(), batch.dropped), (MOST_LINES, 3));
    }

    proptest! {
        #[test]
        fn the_agent_reads_what_the_plugin_says(message in "[ -~ä]{0,100}", labels in proptest::collection::btree_map("[a-l]{1,8}", "[ -~]{0,30}", 0..4)) {
            let said = Line { labels, ..line(&message, &[]) };
            let batch = decode(encode(&[said.json()]).as_bytes()).unwrap();
            prop_assert_eq!(batch, Batch { lines: vec![said], dropped: 0 });
        }

        #[test]
        fn garbage_never_panics(body in r#"\[("(\\"|[{}:a-z0-9,])*",?)*\]|.{0,40}"#) {
            let _ = decode(body.as_bytes());
        }
    }
}
