//! `meshgate-demo`: the main job from nothing, in namespaces of its own. Each line with a mark was checked: what is not
//! as told gets a ✗, and the exit code is 1.

mod interrupt;
mod keep;
mod scene;
mod screen;
mod stage;
mod story;
mod trial;
mod trials;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::interrupt::Interrupt;
use crate::screen::Screen;

/// Shows on this machine what Meshgate does: a node, three pods, a proxy, all in namespaces of their own.
#[derive(Debug, Parser)]
#[command(
    after_help = "Example: cargo xtask demo --keep\nNeeds root. Exits with 1 when something is not as told."
)]
struct Options {
    /// Leaves everything running until Ctrl-C, and tells what to try meanwhile
    #[arg(long)]
    keep: bool,
    /// Takes the pods from a real etcd and API server, whose programs KUBEBUILDER_ASSETS names, instead of manifests
    #[arg(long)]
    kube: bool,
}

fn main() -> ExitCode {
    let (options, screen) = (Options::parse(), Screen::of_stdout());
    match run(&options, &screen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            screen.failure(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, screen: &Screen) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "the demo makes network namespaces and loads programs into the kernel: run it as root"
    );
    let interrupt = Interrupt::listen()?;
    let assets = options.kube.then(assets).transpose()?;
    if options.keep {
        story::keep(screen, &interrupt, assets.as_deref())
    } else {
        story::whole(screen, &interrupt, assets.as_deref())
    }
}

/// The folder of etcd and kube-apiserver.
fn assets() -> Result<PathBuf> {
    let folder = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    folder.context("KUBEBUILDER_ASSETS is not set: `cargo xtask demo --kube` brings the programs and sets it")
}
