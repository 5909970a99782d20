//! The verb `setup`: a list of items, each of which can say whether it is here and bring itself.

mod envoy;
mod kept;
mod kernels;
mod kube;
mod programs;
mod promtool;
mod runtime;

use clap::ValueEnum;

use crate::workspace::Workspace;

pub(crate) use envoy::ENVOY;
pub(crate) use kept::Kept;
pub(crate) use kube::find as kube;
pub(crate) use promtool::PROMTOOL;

/// What `setup` was asked.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only say what is missing and how to get it; exit code 1 when something is
    #[arg(long)]
    check: bool,
    /// Also bring what is not needed to build or test
    #[arg(long, value_enum)]
    with: Vec<Extra>,
}

/// Items that are left out unless named: they take minutes to build and nothing depends on them.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Extra {
    /// cargo-deny, which checks licences and duplicate crates in `check`
    Deny,
}

/// One thing that a machine can lack.
pub(crate) struct Item {
    name: &'static str,
    /// What cannot be done without it.
    purpose: &'static str,
    /// What is here, or what is wrong.
    find: fn(&Workspace) -> Result<String, String>,
    /// Brings it.
    bring: fn(&Workspace) -> anyhow::Result<()>,
    /// How a person brings it where `bring` cannot.
    by_hand: &'static str,
}

/// What building needs.
pub(crate) const BUILD: &[Item] = &[programs::LINTERS, programs::BPF_RUST, programs::BPF_LINKER];
/// What end-to-end tests, the demo and the benchmarks need, except for the API server.
pub(crate) const TESTS: &[Item] = &[
    programs::IP,
    programs::IPTABLES,
    programs::NFT,
    programs::BPFTOOL,
    programs::DIG,
    programs::MUSL,
    runtime::ITEM,
    envoy::ITEM,
    promtool::ITEM,
];
/// What tests with a real API server need; minutes the first time.
pub(crate) const KUBE: &[Item] = &[kube::ITEM];
/// What tests on other kernels need.
pub(crate) const KERNELS: &[Item] = &[kernels::QEMU, kernels::LINUX_6_1, kernels::LINUX_6_12];
/// Puts what belongs to a line of the list under its text.
const INDENT: &str = "                      ";
const DENY: &[Item] = &[programs::DENY];

/// The verb.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> anyhow::Result<bool> {
    let extra = if args.with.contains(&Extra::Deny) {
        DENY
    } else {
        &[]
    };
    let each = if args.check { check_one } else { bring_one };
    let missing = count_missing(workspace, &[BUILD, TESTS, KERNELS, KUBE, extra], each);
    match (missing, args.check) {
        (0, _) => println!("everything is here; next: `cargo xtask demo`, or `cargo xtask test`"),
        (_, true) => println!("{missing} missing; `cargo xtask setup` brings what it can"),
        (_, false) => println!("{missing} still missing: see above"),
    }
    Ok(missing == 0)
}

/// Brings every item of these groups that is missing, in order, and fails when one could not be brought.
pub(crate) fn ensure(workspace: &Workspace, groups: &[&[Item]]) -> anyhow::Result<()> {
    let missing = count_missing(workspace, groups, bring_one);
    anyhow::ensure!(
        missing == 0,
        "{missing} of the things needed could not be had: see above"
    );
    Ok(())
}

/// Does `each` for every item, also after one of them failed; for how many it said that they are not here.
fn count_missing(workspace: &Workspace, groups: &[&[Item]], each: fn(&Workspace, &Item) -> bool) -> usize {
    let mut missing = 0;
    for item in groups.iter().copied().flatten() {
        if !each(workspace, item) {
            missing += 1;
        }
    }
    missing
}

/// Prints the item's state, and how to get it; whether it is here.
fn check_one(workspace: &Workspace, item: &Item) -> bool {
    match (item.find)(workspace) {
        Ok(found) => {
            line("ok", item, &found);
            true
        }
        Err(why) => {
            line(
                "missing",
                item,
                &format!("{why} (for {})\n{INDENT}{}", item.purpose, item.by_hand),
            );
            false
        }
    }
}

/// Prints one line for an item that is here, and brings it otherwise; whether it is here now.
fn bring_one(workspace: &Workspace, item: &Item) -> bool {
    let why = match (item.find)(workspace) {
        Ok(found) => {
            line("ok", item, &found);
            return true;
        }
        Err(why) => why,
    };
    line("getting", item, &format!("{why} (for {})", item.purpose));
    let brought = (item.bring)(workspace).and_then(|()| (item.find)(workspace).map_err(anyhow::Error::msg));
    match &brought {
        Ok(found) => line("ok", item, found),
        Err(error) => line("failed", item, &format!("{error:#}\n{INDENT}{}", item.by_hand)),
    }
    brought.is_ok()
}

fn line(state: &str, item: &Item, text: &str) {
    eprintln!("{state:8} {:12} {text}", item.name);
}
