//! Where and when the figures were taken.

use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

/// What is worth knowing of this machine.
pub(crate) struct Machine {
    kernel: String,
    processor: String,
    processors: usize,
    date: String,
}

impl Machine {
    /// This one, now.
    pub(crate) fn here() -> Result<Self> {
        let uname = rustix::system::uname();
        let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output()?;
        Ok(Self {
            kernel: uname.release().to_string_lossy().into_owned(),
            processor: model(&std::fs::read_to_string("/proc/cpuinfo")?),
            processors: std::thread::available_parallelism()?.get(),
            date: String::from_utf8_lossy(&date.stdout).trim().to_owned(),
        })
    }

    /// In one line.
    pub(crate) fn line(&self) -> String {
        format!("Linux {}, {}, {}", self.kernel, self.processor, self.date)
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        json!({
            "kernel": self.kernel,
            "processor": self.processor,
            "processors": self.processors,
            "date": self.date,
        })
    }
}

/// The first processor's name in the text of /proc/cpuinfo.
fn model(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    line.and_then(|rest| rest.split(':').nth(1))
        .map_or_else(|| "unknown processor".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_called_by_its_model() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nmodel name\t: Other\n";
        assert_eq!(model(cpuinfo), "Some CPU @ 2.00GHz");
        assert_eq!(model("processor : 0\n"), "unknown processor");
    }
}
