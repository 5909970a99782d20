//! The verb `image`: the static binaries as an OCI image archive, without a container engine and the same twice.

mod archive;
mod elf;
mod layer;
mod licences;
mod reference;
mod report;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::Output;
use crate::build;
use crate::command::{ask, say};
use crate::setup;
use crate::workspace::Workspace;
use archive::Image;
use layer::{Entry, Layer};
use reference::Reference;
use report::Report;

/// Where the agent is in the image.
const AGENT: &str = "usr/local/bin/meshgate";
/// What the agent's installer copies to the node: the plugin under both of its names.
const PLUGIN: &str = "opt/cni/bin/meshgate-cni";
const PLUGIN_ALIAS: &str = "opt/cni/bin/istio-cni";
/// Licences of what is in the binaries.
const LICENCES: &str = "usr/share/licenses/meshgate";
/// Our own.
const OWN_LICENCES: [(&str, &str); 3] = [
    ("LICENSE", "LICENSE"),
    ("agent-ebpf/LICENSE-GPL-2.0", "LICENSE-GPL-2.0"),
    ("agent-ebpf/LICENSE-BSD-2-Clause", "LICENSE-BSD-2-Clause"),
];

/// What `image` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the image: REGISTRY/REPOSITORY:TAG
    #[arg(long, value_name = "NAME", default_value = concat!("localhost/meshgate:", env!("CARGO_PKG_VERSION")))]
    name: Reference,
    /// The archive; default: image/meshgate-ARCHITECTURE.tar in cargo's target folder
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Also put the image's files into this folder, for a Dockerfile to copy
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Folder with static meshgate and meshgate-cni, of any architecture, instead of building them
    #[arg(long, value_name = "DIR")]
    binaries: Option<PathBuf>,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// The verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> anyhow::Result<()> {
    let binaries = match &args.binaries {
        Some(folder) => folder.clone(),
        None => {
            setup::ensure(workspace, &[setup::BUILD])?;
            build::shipped(workspace)?;
            workspace.binaries()
        }
    };
    let contents = Contents::collect(workspace, &binaries)?;
    if let Some(folder) = &args.tree {
        layer::write(&contents.entries, folder)?;
    }
    let report = contents.pack(workspace, &args.name, args.to.as_deref())?;
    match args.output {
        Output::Table => println!("{report}"),
        Output::Json => println!("{}", report.json()),
    }
    Ok(())
}

/// The archive that the tests import, of the binaries that are built already.
pub(crate) fn of_built(workspace: &Workspace) -> anyhow::Result<()> {
    let name = concat!("localhost/meshgate:", env!("CARGO_PKG_VERSION")).parse();
    let name: Reference = name.map_err(anyhow::Error::msg)?;
    let path = built(workspace);
    let contents = Contents::collect(workspace, &workspace.binaries())?;
    let report = contents.pack(workspace, &name, Some(&path))?;
    println!("{report}");
    Ok(())
}

/// Where [`of_built`] puts it.
pub(crate) fn built(workspace: &Workspace) -> PathBuf {
    workspace.target.join("image/meshgate.tar")
}

/// What goes into an image.
struct Contents {
    architecture: &'static str,
    entries: Vec<Entry>,
}

impl Contents {
    fn collect(workspace: &Workspace, binaries: &Path) -> anyhow::Result<Self> {
        let (agent, plugin) = (
            read(&binaries.join("meshgate"))?,
            read(&binaries.join("meshgate-cni"))?,
        );
        let architecture = elf::common_architecture(&[("meshgate", &agent), ("meshgate-cni", &plugin)])?;
        say("collecting the licences");
        let third_party = licences::of_dependencies(workspace)?;
        let mut entries = vec![
            Entry::program(AGENT, agent),
            Entry::program(PLUGIN, plugin),
            Entry::link(PLUGIN_ALIAS, PLUGIN),
            Entry::text(format!("{LICENCES}/THIRD-PARTY"), third_party),
        ];
        for (source, name) in OWN_LICENCES {
            let text = read(&workspace.root.join(source))?;
            entries.push(Entry::text(format!("{LICENCES}/{name}"), text));
        }
        Ok(Self {
            architecture,
            entries,
        })
    }

    fn pack(self, workspace: &Workspace, name: &Reference, to: Option<&Path>) -> anyhow::Result<Report> {
        let layer = Layer::pack(self.entries)?;
        let image = Image {
            name,
            architecture: self.architecture,
            layer: &layer,
            revision: revision(workspace),
        };
        let default = || {
            let file = format!("image/meshgate-{}.tar", self.architecture);
            workspace.target.join(file)
        };
        let to = to.map_or_else(default, Path::to_owned);
        let (digest, archive) = image.archive()?;
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        fs::write(&to, &archive).with_context(|| format!("cannot write {}", to.display()))?;
        Ok(Report::new(&image, digest, to, archive.len()))
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The commit that the working tree is at; nothing when it differs from it, or is no git working tree.
fn revision(workspace: &Workspace) -> Option<String> {
    let git = |args: &[&str]| {
        let mut command = std::process::Command::new("git");
        ask(command.args(args).current_dir(&workspace.root))
    };
    let unchanged = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    unchanged.then(|| git(&["rev-parse", "HEAD"])).flatten()
}
