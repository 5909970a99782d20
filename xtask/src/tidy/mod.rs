//! The verb `tidy`: rules that no compiler knows, each a pure function from the source tree to what is wrong in it.

mod code;
mod crates;
mod layouts;
mod links;
mod modules;
mod places;
mod shape;
mod tree;

use anyhow::bail;

use crate::workspace::Workspace;
use tree::Tree;

/// The verb.
pub(crate) fn run(workspace: &Workspace, bless: bool) -> anyhow::Result<bool> {
    if bless {
        println!("{}", layouts::bless(workspace)?);
    }
    check(workspace)?;
    println!("tidy: nothing to say");
    Ok(true)
}

/// Prints every problem; an error when there is one.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<()> {
    let tree = Tree::read(&workspace.root)?;
    let mut problems = shape::problems(&tree);
    problems.extend(places::problems(&tree));
    problems.extend(modules::problems(&tree));
    problems.extend(crates::problems(workspace)?);
    problems.extend(layouts::problems(&tree));
    problems.extend(links::problems(&tree));
    if problems.is_empty() {
        return Ok(());
    }
    for problem in &problems {
        eprintln!("{problem}");
    }
    bail!("{} problems, see above", problems.len())
}
