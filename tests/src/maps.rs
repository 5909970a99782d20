//! What the agent's maps hold, as `meshgate maps dump` prints it: also when the agent is dead.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::node::Node;
use crate::pod::{Pod, json_output};
use crate::{programs, wait};

/// How long to leave the kernel alone before it is asked again: it tells nobody of changes in a map.
const AGAIN: Duration = Duration::from_millis(20);

/// The maps of a node.
#[derive(Clone, Copy, Debug)]
pub struct Maps<'a>(&'a Node);

impl<'a> Maps<'a> {
    /// Those of the agent on this node.
    #[must_use]
    pub fn of(node: &'a Node) -> Self {
        Self(node)
    }

    /// Runs `meshgate` with these arguments on the node, whether or not an agent runs, and returns the JSON it prints.
    ///
    /// # Errors
    /// When it fails.
    pub fn meshgate(self, arguments: &[&str]) -> Result<Value> {
        let node = self.0;
        let mut command = node.command("cli", &programs::find("meshgate")?)?;
        command
            .args(arguments)
            .args(["-o", "json", "--bpffs"])
            .arg(node.bpffs());
        command.arg("--run-dir").arg(node.run_dir().join("agent"));
        command.arg("--cgroup-root").arg(node.cgroup());
        command.arg("--host-netns").arg(node.netns().path());
        json_output(&mut command)
    }

    /// The entries of a map.
    ///
    /// # Errors
    /// When it is not pinned.
    pub fn dump(self, map: &str) -> Result<Vec<Value>> {
        let dump = self.meshgate(&["maps", "dump", map])?;
        dump[map].as_array().cloned().context("a map is a list")
    }

    /// A counter of a pod, by its name in `agent_common::counters`.
    ///
    /// # Errors
    /// When the pod has no counters or there is none of this name.
    pub fn counter(self, pod: &Pod, name: &str) -> Result<u64> {
        let counter = self.counter_of(pod.netns().cookie()?, name);
        counter.with_context(|| pod.name().to_owned())
    }

    /// A counter of the pod in the network namespace with this cookie.
    ///
    /// # Errors
    /// As [`Maps::counter`].
    pub fn counter_of(self, cookie: u64, name: &str) -> Result<u64> {
        let rows = self.dump("COUNTERS")?;
        let row = rows.iter().find(|row| row["netns_cookie"] == cookie);
        let row = row.with_context(|| format!("the pod in {cookie} has no counters"))?;
        row["counters"][name]
            .as_u64()
            .with_context(|| format!("no counter {name}"))
    }

    /// Waits until a map has so many entries.
    ///
    /// # Errors
    /// When it does not in time; with its entries.
    pub fn wait_for_count(self, map: &str, count: usize) -> Result<()> {
        let deadline = Instant::now() + wait::LIMIT;
        loop {
            let entries = self.dump(map)?;
            if entries.len() == count {
                return Ok(());
            }
            if Instant::now() > deadline {
                let shown = &entries[..entries.len().min(5)];
                bail!(
                    "{map} has {} entries in place of {count}: {shown:?}",
                    entries.len()
                );
            }
            std::thread::sleep(AGAIN);
        }
    }
}
