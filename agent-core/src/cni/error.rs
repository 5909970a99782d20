//! How a plugin says that it failed (CNI specification 1.1.0, "Error").

use serde_json::{Value, json};

use super::version::SpecVersion;

/// What sort of failure; the numbers are those of the specification, plugins' own begin at 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    /// The plugin does not speak the version of the configuration, or this version has no such command.
    IncompatibleVersion = 1,
    /// An environment variable is missing or wrong.
    InvalidEnvironment = 4,
    /// What came on standard input cannot be read.
    Io = 5,
    /// What came on standard input is not what it should be.
    Undecodable = 6,
    /// The configuration is wrong.
    InvalidConfig = 7,
    /// The same call can succeed later without any change.
    TryAgainLater = 11,
    /// `STATUS`: an `ADD` could not be served now.
    Unavailable = 50,
    /// The agent does not understand us.
    AgentRefuses = 100,
    /// The plugin panicked.
    Bug = 101,
}

/// A failure, as the runtime gets it; kubelet shows `msg` and `details` in an event of the pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{msg}: {details}")]
pub struct CniError {
    /// What sort.
    pub code: Code,
    /// What failed, short.
    pub msg: String,
    /// Why, and what to do.
    pub details: String,
}

impl CniError {
    /// A failure.
    pub fn new(code: Code, msg: impl Into<String>, details: impl Into<String>) -> Self {
        Self {
            code,
            msg: msg.into(),
            details: details.into(),
        }
    }

    /// What the plugin prints.
    #[must_use]
    pub fn json(&self, version: SpecVersion) -> Value {
        json!({
            "cniVersion": version.as_str(),
            "code": self.code as u32,
            "msg": self.msg,
            "details": self.details,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_printed_with_all_its_fields() {
        let error = CniError::new(Code::TryAgainLater, "asking the agent", "nobody listens");
        assert_eq!(
            error.json(SpecVersion::V0_4_0),
            json!({"cniVersion": "0.4.0", "code": 11, "msg": "asking the agent", "details": "nobody listens"})
        );
    }
}
