//! What is logged: Istio's `scope:level,…` and tracing's `target=level,…` in one grammar, for the flag and at run time.

use std::fmt;

/// Levels of the whole agent and of parts of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLevels {
    /// Of all that no part speaks of.
    whole: &'static str,
    /// Modules (`agent::zds`) and libraries (`kube_client`), in the order in which they were given.
    parts: Vec<(String, &'static str)>,
}

/// A text that names no levels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no log level: expected none, error, warn, info, debug or trace, or a list of SCOPE:LEVEL such as \
     info,zds:debug"
)]
pub struct LogLevelError {
    text: String,
}

/// Modules of the agent that may be named alone.
const MODULES: &[&str] = &[
    "app", "cni", "datapath", "enrol", "install", "netns", "ops", "program", "source", "zds",
];

impl LogLevels {
    /// Reads a list of levels. What is not named is logged from `info` on; of two that speak of the same, the later one
    /// counts. Scopes of Istio that have no counterpart are kept and match nothing.
    ///
    /// # Errors
    /// When a level is none.
    pub fn parse(text: &str) -> Result<Self, LogLevelError> {
        let mut levels = Self {
            whole: "info",
            parts: Vec::new(),
        };
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let wrong = || LogLevelError {
                text: item.to_owned(),
            };
            let (scope, level) = split(item);
            let level = level_of(level).ok_or_else(wrong)?;
            match scope.map(str::trim) {
                None | Some("default" | "all") => levels.whole = level,
                Some(scope) if is_name(scope) => {
                    let target = target(scope);
                    levels.parts.retain(|(known, _)| *known != target);
                    levels.parts.push((target, level));
                }
                Some(_) => return Err(wrong()),
            }
        }
        Ok(levels)
    }
}

/// As directives of tracing's `EnvFilter`.
impl fmt::Display for LogLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.whole)?;
        self.parts
            .iter()
            .try_for_each(|(target, level)| write!(f, ",{target}={level}"))
    }
}

/// Scope and level. A target of Rust has `::` in it, which parts nothing.
fn split(item: &str) -> (Option<&str>, &str) {
    if let Some((scope, level)) = item.split_once('=') {
        return (Some(scope), level);
    }
    match item.rsplit_once(':') {
        Some((scope, level)) => (Some(scope), level),
        None => (None, item),
    }
}

fn level_of(text: &str) -> Option<&'static str> {
    Some(match text.trim().to_ascii_lowercase().as_str() {
        "none" | "off" => "off",
        "fatal" | "error" => "error",
        "warn" | "warning" => "warn",
        "info" => "info",
        "debug" => "debug",
        "trace" => "trace",
        _ => return None,
    })
}

fn is_name(scope: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    };
    scope.split("::").all(is_part)
}

/// The target of a scope: Istio's two, a module of ours, or a library.
fn target(scope: &str) -> String {
    match scope {
        "cni-agent" | "meshgate" => "agent".to_owned(),
        "cni-plugin" => "agent::cni".to_owned(),
        module if MODULES.contains(&module) => format!("agent::{module}"),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_istio_and_of_tracing_are_understood() {
        for (text, directives) in [
            ("", "info"),
            ("debug", "debug"),
            ("WARNING", "warn"),
            ("none", "off"),
            ("fatal", "error"),
            ("default:debug", "debug"),
            ("all:error", "error"),
            ("default:info,cni-agent:debug", "info,agent=debug"),
            (" cni-plugin:debug , info ", "info,agent::cni=debug"),
            (
                "zds:trace,enrol:debug",
                "info,agent::zds=trace,agent::enrol=debug",
            ),
            ("zds:trace,zds:warn", "info,agent::zds=warn"),
            ("warn,kube_client=debug", "warn,kube_client=debug"),
            ("agent::zds=debug", "info,agent::zds=debug"),
            ("agent::zds:debug", "info,agent::zds=debug"),
            ("ztunnel:debug", "info,ztunnel=debug"),
        ] {
            assert_eq!(
                LogLevels::parse(text).map(|levels| levels.to_string()),
                Ok(directives.to_owned()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn what_is_no_level_is_named() {
        for (text, named) in [
            ("loud", "loud"),
            ("info,zds:loud", "zds:loud"),
            ("zds:", "zds:"),
            (":debug", ":debug"),
            ("[span]=debug", "[span]=debug"),
            ("a b:debug", "a b:debug"),
        ] {
            let error = LogLevels::parse(text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{named:?} is no log level")),
                "{text:?}: {error}"
            );
        }
    }
}
