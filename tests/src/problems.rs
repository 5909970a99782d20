//! What an agent finds wrong, as tests ask for it.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::agent::Agent;

impl Agent {
    /// Waits for the one problem with this object, and returns it.
    ///
    /// # Errors
    /// When none comes, there are several, or it says not what to do.
    pub fn wait_for_problem(&mut self, object: &str) -> Result<Value> {
        let found = self.wait_for(&format!("a problem of {object}"), |status| {
            let about = |problem: &&Value| {
                problem["object"]
                    .as_str()
                    .is_some_and(|told| told.contains(object))
            };
            let found: Vec<_> = status.problems.iter().filter(about).cloned().collect();
            (!found.is_empty()).then_some(found)
        })?;
        let [only] = found.as_slice() else {
            anyhow::bail!("several errors for {object}: {found:?}");
        };
        ensure!(
            !only["fix"].as_str().unwrap_or_default().is_empty(),
            "no fix: {only}"
        );
        Ok(only.clone())
    }

    /// Waits until nothing is wrong.
    ///
    /// # Errors
    /// When something stays wrong.
    pub fn wait_for_no_problem(&mut self) -> Result<()> {
        self.wait_for("no problem", |status| status.problems.is_empty().then_some(()))
    }

    /// Checks that `meshgate status` ends with 3 and names this.
    ///
    /// # Errors
    /// When it does not.
    pub fn says_in_status(&self, what: &str) -> Result<()> {
        let output = self.cli(&["status"])?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.code() == Some(3), "{}: {text}", output.status);
        ensure!(text.contains(what), "{what} is not in:\n{text}");
        Ok(())
    }
}
