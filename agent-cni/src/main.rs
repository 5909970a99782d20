//! The CNI plugin `meshgate-cni`: tells the node's agent of each new sandbox, and lets the pod go on when the agent says
//! that it is captured or not to be. It decides nothing and needs no API server.
//!
//! Standard output carries the result or the error and nothing else.

mod invocation;

mod http;
mod notify;

mod add;

use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::Duration;

use agent_core::cni::config::Config;
use agent_core::cni::error::{CniError, Code};
use agent_core::cni::version::SpecVersion;
use serde_json::{Value, json};

use invocation::{Command, Invocation};

/// More than any configuration has, whose largest part is the result of the plugin before.
const LONGEST_INPUT: u64 = 16 << 20;
/// How long `STATUS` waits for an agent that restarts: a node that is not ready for a moment costs more than the wait.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let (printed, exit) = match run() {
        Ok(printed) => (printed, ExitCode::SUCCESS),
        Err(failure) => (Some(failure.error.json(failure.version)), ExitCode::FAILURE),
    };
    let text = printed.map_or_else(String::new, |value| format!("{value}\n"));
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => exit,
        Err(_) => ExitCode::FAILURE,
    }
}

/// An error, and the version in which the runtime expects it.
struct Failure {
    version: SpecVersion,
    error: CniError,
}

impl Failure {
    /// One that came before the runtime's version was known.
    fn early(error: impl Into<CniError>) -> Self {
        Self {
            version: SpecVersion::NEWEST,
            error: error.into(),
        }
    }
}

/// Carries out the command; returns what is to be printed.
fn run() -> Result<Option<Value>, Failure> {
    let invocation = Invocation::read(|name| std::env::var(name).ok()).map_err(Failure::early)?;
    let input = input().map_err(Failure::early)?;
    if invocation.command == Command::Version {
        return Ok(Some(versions(&input)));
    }
    let config = Config::parse(&input).map_err(Failure::early)?;
    execute(&invocation, &config).map_err(|error| Failure {
        version: config.version,
        error,
    })
}

fn input() -> Result<Vec<u8>, CniError> {
    let mut input = Vec::new();
    let read = std::io::stdin().take(LONGEST_INPUT).read_to_end(&mut input);
    read.map(|_| input)
        .map_err(|error| CniError::new(Code::Io, "reading standard input", error.to_string()))
}

/// `VERSION`. The version of the answer is the caller's, if it says one that is spoken.
fn versions(input: &[u8]) -> Value {
    let asked = serde_json::from_slice::<Value>(input).unwrap_or_default();
    let version = asked["cniVersion"].as_str().and_then(SpecVersion::of);
    json!({
        "cniVersion": version.unwrap_or(SpecVersion::NEWEST).as_str(),
        "supportedVersions": SpecVersion::ALL.map(SpecVersion::as_str),
    })
}

/// Every other command. What the agent did for a pod goes with the pod, which the agent sees for itself: so there is
/// nothing to do for `DEL`, `CHECK` and `GC`, as in Istio's plugin.
fn execute(invocation: &Invocation, config: &Config) -> Result<Option<Value>, CniError> {
    let command = invocation.command;
    if config.version < command.since() {
        let details = format!(
            "CNI {} has no {}; it came with {}",
            config.version,
            command.as_str(),
            command.since()
        );
        return Err(CniError::new(
            Code::IncompatibleVersion,
            "carrying out the command",
            details,
        ));
    }
    match command {
        Command::Add => add::add(invocation, config).map(Some),
        Command::Status => notify::reach(&config.socket(), config.timeout.min(STATUS_TIMEOUT))
            .map(|()| None)
            .map_err(|error| CniError::new(Code::Unavailable, "reaching the node agent", error.to_string())),
        Command::Del | Command::Check | Command::Gc | Command::Version => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_answered_in_the_callers_version() {
        let all = json!(["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]);
        for (input, version) in [
            (r#"{"cniVersion": "0.4.0"}"#, "0.4.0"),
            (r#"{"cniVersion": "9.9.9"}"#, "1.1.0"),
            ("", "1.1.0"),
            ("garbage", "1.1.0"),
        ] {
            assert_eq!(
                versions(input.as_bytes()),
                json!({"cniVersion": version, "supportedVersions": all}),
                "{input}"
            );
        }
    }
}
