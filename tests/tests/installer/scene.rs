//! A node whose agent installs, and what is in its folders.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::{Agent, Node, programs, wait};

pub(crate) const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/cni");

/// A node whose agent installs.
pub(crate) struct Scene {
    pub(crate) agent: Agent,
    pub(crate) conf: PathBuf,
    pub(crate) bin: PathBuf,
    /// Dropped last.
    _node: Node,
}

impl Scene {
    /// The folder holds these files of tests/data/cni, each under another name; the agent starts with more flags.
    pub(crate) fn new(files: &[(&str, &str)], more: &[&str]) -> Result<Self> {
        let node = Node::new()?;
        let folder = |name: &str| node.run_dir().join(name);
        let (conf, bin, source) = (folder("net.d"), folder("bin"), folder("image"));
        for folder in [&conf, &bin, &source] {
            fs::create_dir_all(folder)?;
        }
        fs::copy(programs::find("meshgate-cni")?, source.join("meshgate-cni"))?;
        for (data, name) in files {
            fs::copy(Path::new(DATA).join(data), conf.join(name))?;
        }
        let text = |path: &Path| path.display().to_string();
        let flags = [
            ("--install-cni", "true".to_owned()),
            ("--mounted-cni-net-dir", text(&conf)),
            ("--cni-bin-source", text(&source)),
            ("--cni-bin-target", text(&bin)),
            ("--cni-agent-run-dir", text(&folder("istio-cni"))),
        ];
        let usual = flags.iter().flat_map(|(flag, value)| [*flag, value.as_str()]);
        let all: Vec<&str> = usual.chain(more.iter().copied()).collect();
        let manifests = format!("file:{}", node.manifests().display());
        let agent = Agent::start_with(&node, &manifests, &all)?;
        Ok(Self {
            agent,
            conf,
            bin,
            _node: node,
        })
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.conf.join(name)).unwrap_or_default()
    }

    /// Waits until a file of the folder satisfies this.
    pub(crate) fn until(&self, name: &str, what: &str, holds: impl Fn(&str) -> bool) -> Result<()> {
        let (path, name) = (self.conf.join(name), name.to_owned());
        wait::for_file(&path, None, &format!("{what} in {name}"), || {
            let text = fs::read_to_string(&path).unwrap_or_default();
            Ok(holds(&text).then_some(()))
        })
    }

    pub(crate) fn until_installed(&self, name: &str) -> Result<()> {
        self.until(name, "our plugin", |text| {
            types(text).last().is_some_and(|last| last == "meshgate-cni")
        })
    }

    /// Waits until the node is not ready for this reason.
    pub(crate) fn until_not_ready(&mut self, why: &str) -> Result<()> {
        self.agent.wait_for(&format!("not ready: {why}"), |status| {
            let missing = status.missing("install")?;
            missing.contains(why).then_some(())
        })
    }

    pub(crate) fn until_ready(&mut self) -> Result<()> {
        self.agent.wait_for("the plugin to be in its place", |status| {
            status.missing("install").is_none().then_some(())
        })
    }

    /// Stops the agent as at its removal.
    pub(crate) fn remove(&mut self) -> Result<()> {
        let status = self.agent.stop()?;
        ensure!(status.success(), "{status}: {}", self.agent.log());
        let left = |folder: &Path| {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect::<Vec<_>>()
        };
        ensure!(left(&self.bin).is_empty(), "{:?}", left(&self.bin));
        let unfinished: Vec<_> = left(&self.conf)
            .into_iter()
            .filter(|name| name.starts_with('.'))
            .collect();
        ensure!(unfinished.is_empty(), "{unfinished:?}");
        Ok(())
    }
}

/// The types of a configuration's plugins; one plugin is a list of one.
pub(crate) fn types(text: &str) -> Vec<String> {
    let config: Value = serde_json::from_str(text).unwrap_or_default();
    let of = |plugin: &Value| plugin["type"].as_str().unwrap_or_default().to_owned();
    match config["plugins"].as_array() {
        Some(plugins) => plugins.iter().map(of).collect(),
        None => vec![of(&config)],
    }
}

pub(crate) fn data(name: &str) -> Result<String> {
    fs::read_to_string(Path::new(DATA).join(name)).with_context(|| name.to_owned())
}
