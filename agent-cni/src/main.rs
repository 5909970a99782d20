//! The CNI plugin `meshgate-cni`: tells the node's agent of each new sandbox, and lets the pod go on when the agent says
//! that it is captured or not to be. It decides nothing and needs no API server. It is also called `istio-cni`, and does
//! the same under any name.
//!
//! Standard output carries the result or the error and nothing else.

mod invocation;

mod http;
mod notify;

mod log_file;
mod log;

mod add;

use std::any::Any;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use agent_core::cni::config::Config;
use agent_core::cni::error::{CniError, Code};
use agent_core::cni::log::Level;
use agent_core::cni::version::SpecVersion;
use serde_json::{Value, json};

use invocation::{Command, Invocation};
use log::Log;

/// More than any configuration has, whose largest part is the result of the plugin before.
const LONGEST_INPUT: u64 = 16 << 20;
/// How long `STATUS` waits for an agent that restarts: a node that is not ready for a moment costs more than the wait.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let mut log = Log::default();
    let ran = catch_unwind(AssertUnwindSafe(|| run(&mut log)));
    let (config, done) = ran.unwrap_or_else(|panic| (None, Err(bug(panic.as_ref()))));
    let (printed, exit) = match done {
        Ok(printed) => (printed, ExitCode::SUCCESS),
        Err(error) => {
            log.say(Level::Error, error.to_string());
            let version = config
                .as_ref()
                .map_or(SpecVersion::NEWEST, |config| config.version);
            (Some(error.json(version)), ExitCode::FAILURE)
        }
    };
    let is_said = print(printed.as_ref());
    log.write(config.as_ref());
    if is_said { exit } else { ExitCode::FAILURE }
}

/// Prints what the runtime is to read; whether that succeeded.
fn print(printed: Option<&Value>) -> bool {
    let text = printed.map_or_else(String::new, |value| format!("{value}\n"));
    std::io::stdout().write_all(text.as_bytes()).is_ok()
}

/// A panic fails the pod in the way that the runtime understands, with the text that can be reported.
fn bug(panic: &(dyn Any + Send)) -> CniError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    CniError::new(
        Code::Bug,
        "meshgate-cni has a bug, please report it",
        text.unwrap_or("it panicked"),
    )
}

/// Carries out the command; returns its configuration, if it could be read, and what is to be printed.
fn run(log: &mut Log) -> (Option<Config>, Result<Option<Value>, CniError>) {
    let called = || -> Result<_, CniError> {
        let invocation = Invocation::read(|name| std::env::var_os(name))?;
        Ok((invocation, input()?))
    };
    let (invocation, input) = match called() {
        Ok(called) => called,
        Err(error) => return (None, Err(error)),
    };
    log.label("command", invocation.command.as_str());
    if invocation.command == Command::Version {
        return (None, Ok(Some(versions(&input))));
    }
    match Config::parse(&input) {
        Ok(config) => {
            let done = execute(&invocation, &config, log);
            (Some(config), done)
        }
        Err(error) => (None, Err(error.into())),
    }
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
fn execute(invocation: &Invocation, config: &Config, log: &mut Log) -> Result<Option<Value>, CniError> {
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
        Command::Add => add::add(invocation, config, log).map(Some),
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
    fn a_panic_is_told_with_its_text() {
        for (panic, text) in [
            (Box::new("static") as Box<dyn Any + Send>, "static"),
            (Box::new("formatted".to_owned()), "formatted"),
            (Box::new(7), "it panicked"),
        ] {
            let error = bug(panic.as_ref());
            assert_eq!((error.code, error.details.as_str()), (Code::Bug, text));
        }
    }

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
