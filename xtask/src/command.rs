//! Running other programs: loudly, quietly with progress, or only to ask them something.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

/// A quiet step says this often that it still runs.
const PROGRESS: Duration = Duration::from_secs(15);
/// So many of the last lines of a failed quiet step are shown.
const TAIL: usize = 30;

/// Cargo as it runs us, so that a chosen toolchain stays chosen.
pub(crate) fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Says what a verb does now.
pub(crate) fn say(text: impl AsRef<str>) {
    eprintln!("==> {}", text.as_ref());
}

/// Runs with our stdout and stderr.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let text = display(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{text}`"))?;
    succeeded(&text, status)
}

/// Runs with the output in the file `log`, tells the elapsed seconds now and then, and shows the end of the output when
/// the command fails.
pub(crate) fn run_quietly(what: &str, command: &mut Command, log: &Path) -> anyhow::Result<()> {
    let text = display(command);
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let copy = file.try_clone().context("cannot share the log file")?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(copy)
        .spawn()
        .with_context(|| format!("cannot start `{text}`"))?;

    let start = Instant::now();
    let mut next = PROGRESS;
    let status = loop {
        if let Some(status) = child.try_wait().with_context(|| format!("lost `{text}`"))? {
            break status;
        }
        if start.elapsed() >= next {
            eprintln!("    {:>4} s  {what}", next.as_secs());
            next += PROGRESS;
        }
        thread::sleep(Duration::from_millis(100));
    };
    if !status.success() {
        eprintln!("{}", tail(&fs::read_to_string(log).unwrap_or_default()));
        eprintln!("(all of it: {})", log.display());
    }
    succeeded(&text, status)
}

/// What the command prints on stdout, trimmed; nothing when it cannot be started or fails.
pub(crate) fn ask(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The program of this name in PATH, in the folders that only root's PATH has, or where `cargo install` puts it.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .chain(cargo_home.map(|home| home.join("bin")))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// The command as one would type it, without its environment.
pub(crate) fn display(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words: Vec<_> = std::iter::once(name)
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    words.join(" ")
}

fn succeeded(text: &str, status: ExitStatus) -> anyhow::Result<()> {
    if !status.success() {
        bail!("`{text}` failed ({status})");
    }
    Ok(())
}

fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_long_output_is_shown() {
        let long: Vec<_> = (0..100).map(|n| n.to_string()).collect();
        assert!(tail(&long.join("\n")).starts_with("70\n"));
        assert_eq!(tail("one\ntwo"), "one\ntwo");
        assert_eq!(tail(""), "");
    }

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        assert_eq!(
            display(Command::new("/usr/bin/cargo").args(["test", "-p", "tests"])),
            "cargo test -p tests"
        );
    }

    #[test]
    fn a_question_to_a_missing_or_failing_program_has_no_answer() {
        assert_eq!(ask(Command::new("echo").arg(" yes ")), Some("yes".to_owned()));
        assert_eq!(ask(&mut Command::new("false")), None);
        assert_eq!(ask(&mut Command::new("/nonexistent")), None);
    }
}
