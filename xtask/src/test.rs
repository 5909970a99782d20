//! The verb `test`: every check and test that can run here, one summary, one closing line.

use std::process::Command;
use std::thread;

use anyhow::Context as _;

use crate::build;
use crate::check;
use crate::command::cargo;
use crate::image;
use crate::kernels::{self, Kernel};
use crate::launch::{environment, require_root};
use crate::setup;
use crate::summary::Summary;
use crate::workspace::Workspace;

/// End-to-end tests at a time: most wait for the kernel, but a test with an API server needs half a GB and a core.
const PARALLEL_TESTS: usize = 4;
/// Passing tests tell there that they were skipped.
const SHOW_SKIPPED: &str = "--show-output";

/// What `test` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only what needs neither root nor network: format, tidy, lints, docs, unit tests
    #[arg(long)]
    fast: bool,
    /// Only the tests of the datapath, all of them, on this kernel in an emulator
    #[arg(long, value_enum, conflicts_with_all = ["fast", "filter"])]
    kernel: Option<Kernel>,
    /// Only tests whose names contain this, and no other checks
    filter: Option<String>,
}

/// The verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> anyhow::Result<bool> {
    if !args.fast {
        require_root("test").context("`cargo xtask test --fast` leaves out what needs root")?;
    }
    let mut summary = Summary::default();
    if args.fast {
        without_root(workspace, args, &mut summary);
        summary.skip("end to end", "--fast");
    } else if let Some(kernel) = args.kernel {
        elsewhere(workspace, kernel, &mut summary);
    } else {
        everything(workspace, args, &mut summary);
    }
    let well = summary.print();
    println!("\n{}", summary.closing_line());
    Ok(well)
}

/// Kubernetes' build is the longest of all and of low priority, so it runs beside everything else.
fn everything(workspace: &Workspace, args: &Args, summary: &mut Summary) {
    thread::scope(|scope| {
        let kube = scope.spawn(|| setup::ensure(workspace, &[setup::KUBE]));
        let ready = summary.step("setup", || {
            setup::ensure(workspace, &[setup::BUILD, setup::TESTS])
        });
        without_root(workspace, args, summary);
        let built = ready
            && summary.step("build", || {
                build::all(workspace)
                    .and_then(|()| image::of_built(workspace))
                    .and_then(|()| build::next(workspace))
            });
        let served = summary.step("kubernetes", || {
            kube.join()
                .unwrap_or_else(|_| anyhow::bail!("its build panicked"))
        });
        if built && served {
            summary.tests("end to end", &mut end_to_end(workspace, args));
            if args.filter.is_none() {
                on_other_kernels(workspace, summary);
            }
        } else {
            summary.step("end to end", || {
                anyhow::bail!("not run, because a step before it failed")
            });
        }
    });
}

/// They come from elsewhere than the rest: a machine that cannot have them is still tested itself.
fn on_other_kernels(workspace: &Workspace, summary: &mut Summary) {
    match setup::ensure(workspace, &[setup::KERNELS]) {
        Ok(()) => kernels::test(workspace, &Kernel::ALL, kernels::ESSENTIAL, summary),
        Err(error) => summary.skip("on other kernels", format!("{error:#}")),
    }
}

/// One other kernel only.
fn elsewhere(workspace: &Workspace, kernel: Kernel, summary: &mut Summary) {
    let built = summary.step("setup", || {
        setup::ensure(workspace, &[setup::BUILD, setup::TESTS, setup::KERNELS])
    }) && summary.step("build", || {
        build::all(workspace).and_then(|()| build::next(workspace))
    });
    if built {
        kernels::test(workspace, &[kernel], kernels::DATAPATH, summary);
    }
}

fn without_root(workspace: &Workspace, args: &Args, summary: &mut Summary) {
    if args.filter.is_none() {
        check::quick(workspace, summary);
        check::docs(workspace, summary);
    }
    let mut unit = cargo();
    unit.args(["test", "--no-fail-fast", "--", SHOW_SKIPPED])
        .args(&args.filter)
        .current_dir(&workspace.root);
    summary.tests("unit", &mut unit);
}

fn end_to_end(workspace: &Workspace, args: &Args) -> Command {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut tests = cargo();
    tests
        .args(["test", "--no-fail-fast", "--package", "tests", "--", SHOW_SKIPPED])
        .arg(format!("--test-threads={}", cores.min(PARALLEL_TESTS)))
        .args(&args.filter)
        .envs(environment(workspace))
        .current_dir(&workspace.root);
    tests
}
