//! The plugin's log: lines of JSON on standard error, in a file of the node, and to the agent, which passes them on. All
//! is gathered first and written when the pod's fate is decided and said, so that no log keeps a pod waiting.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, SystemTime};

use agent_core::cni::config::{Config, LOG_FILE, LOG_SOCKET};
use agent_core::cni::log::{self, Level, Line};
use agent_core::ids::SandboxPod;

use crate::log_file;
use crate::notify;

/// How long the agent may take to have room for the lines.
const AGENT_TIMEOUT: Duration = Duration::from_secs(1);

/// What was said in one call.
#[derive(Debug, Default)]
pub(crate) struct Log {
    labels: BTreeMap<String, String>,
    lines: Vec<Line>,
}

impl Log {
    /// From now on all lines tell this.
    pub(crate) fn label(&mut self, key: &str, value: &str) {
        self.labels.insert(key.to_owned(), value.to_owned());
    }

    /// From now on all lines tell of this pod.
    pub(crate) fn about(&mut self, pod: &SandboxPod) {
        self.label("pod", &pod.name);
        self.label("namespace", &pod.namespace);
        if let Some(uid) = &pod.uid {
            self.label("uid", uid.as_str());
        }
    }

    /// Says something.
    pub(crate) fn say(&mut self, level: Level, message: impl Into<String>) {
        self.lines.push(Line {
            level,
            time: humantime::format_rfc3339_micros(SystemTime::now()).to_string(),
            message: message.into(),
            labels: self.labels.clone(),
        });
    }

    /// Writes everything that is important enough; without a configuration only to standard error. What cannot be
    /// written is lost: there is nobody left to tell.
    pub(crate) fn write(&self, config: Option<&Config>) {
        let level = config.map_or(Some(Level::Info), |config| config.log_level);
        let text = self.text(level);
        if text.is_empty() {
            return;
        }
        let _ = std::io::stderr().write_all(text.concat().as_bytes());
        if let Some(config) = config {
            // The file is for what is worth keeping, whatever the level.
            let kept = self.text(level.map(|level| level.min(Level::Info)));
            let _ = log_file::append(&config.run_dir.join(LOG_FILE), kept.concat().as_bytes());
            let socket = config.run_dir.join(LOG_SOCKET);
            let _ = notify::drop_off(&socket, AGENT_TIMEOUT, log::PATH, &log::encode(&text));
        }
    }

    fn text(&self, level: Option<Level>) -> Vec<String> {
        self.lines
            .iter()
            .filter(|line| Some(line.level) <= level)
            .map(|line| format!("{}\n", line.json()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_below_the_level_are_left_out_and_labels_are_on_all() {
        let mut said = Log::default();
        said.label("command", "ADD");
        said.say(Level::Debug, "quick");
        said.about(&SandboxPod {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: Some("u-1".into()),
        });
        said.say(Level::Warn, "slow");
        for (level, messages) in [
            (None, &[][..]),
            (Some(Level::Error), &[]),
            (Some(Level::Info), &["slow"]),
            (Some(Level::Debug), &["quick", "slow"]),
        ] {
            let lines: Vec<_> = said
                .text(level)
                .iter()
                .map(|line| Line::parse(line).unwrap())
                .collect();
            let said: Vec<_> = lines.iter().map(|line| line.message.as_str()).collect();
            assert_eq!(said, messages, "{level:?}");
        }
        let last = Line::parse(said.text(Some(Level::Debug)).last().unwrap()).unwrap();
        let labels = [
            ("command", "ADD"),
            ("namespace", "shop"),
            ("pod", "web"),
            ("uid", "u-1"),
        ];
        assert_eq!(
            last.labels,
            labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into()
        );
        assert!(humantime::parse_rfc3339(&last.time).is_ok(), "{}", last.time);
    }
}
