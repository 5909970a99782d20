//! The layouts in agent-common are recorded with `ABI_VERSION`: whoever changes one must decide about the other.
//!
//! Maps outlive the agent that pinned them. The next agent finds them by the version in their path, so a layout that
//! changes under one version makes it read its predecessor's maps wrongly.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::Context as _;

use super::code::{is_word, item_end, without_tests};
use super::tree::Tree;
use crate::fnv::fnv1a;
use crate::workspace::Workspace;

const SOURCE: &str = "agent-common/src/";
const RECORD: &str = "agent-common/layouts.lock";
const HEADER: &str = "# What ABI_VERSION stands for; written by `cargo xtask tidy --bless`.\n";
/// What a layout is made of: types, constants (sizes, flags, ports), and counters, which a macro declares.
const ITEMS: [&str; 4] = ["#[repr(", "pub struct ", "pub const ", "counters! "];

/// A version and a hash of the layouts in each file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Layouts {
    version: String,
    files: BTreeMap<String, String>,
}

pub(super) fn problems(tree: &Tree) -> Vec<String> {
    let recorded = parse(tree.text(RECORD).unwrap_or_default());
    compare(&recorded, &Layouts::of(tree)).into_iter().collect()
}

/// Records the layouts as they are; what was done.
pub(super) fn bless(workspace: &Workspace) -> anyhow::Result<String> {
    let tree = Tree::read(&workspace.root)?;
    let (recorded, now) = (parse(tree.text(RECORD).unwrap_or_default()), Layouts::of(&tree));
    fs::write(workspace.root.join(RECORD), now.print()).with_context(|| format!("cannot write {RECORD}"))?;
    let mut done = format!("recorded the layouts of version {} in {RECORD}", now.version);
    if recorded.version == now.version && recorded != now {
        done.push_str("\nABI_VERSION is the same as before: right only if no release had the old layouts");
    }
    Ok(done)
}

/// What is wrong, if anything.
fn compare(recorded: &Layouts, now: &Layouts) -> Option<String> {
    if recorded == now {
        return None;
    }
    if recorded.version != now.version {
        return Some(format!(
            "{RECORD}: ABI_VERSION is {} now: run `cargo xtask tidy --bless`",
            now.version
        ));
    }
    let names = recorded.files.keys().chain(now.files.keys());
    let changed: Vec<_> = names
        .filter(|name| recorded.files.get(*name) != now.files.get(*name))
        .collect();
    let changed: BTreeMap<_, ()> = changed.into_iter().map(|name| (name.as_str(), ())).collect();
    let changed: Vec<_> = changed.into_keys().collect();
    Some(format!(
        "{RECORD}: layouts changed in {} while ABI_VERSION is still {}: maps pinned by a running agent would be read \
         wrongly by the next one. Raise ABI_VERSION in {SOURCE}lib.rs, then run `cargo xtask tidy --bless`",
        changed.join(", "),
        now.version
    ))
}

impl Layouts {
    fn of(tree: &Tree) -> Self {
        let mut layouts = Self::default();
        for (path, file) in tree.files(SOURCE, ".rs") {
            let text = definitions(&without_tests(&file.code));
            if let Some(version) = text
                .lines()
                .find_map(|line| line.strip_prefix("pub const ABI_VERSION:u32="))
            {
                version.trim_end_matches(';').clone_into(&mut layouts.version);
            } else if !text.is_empty() {
                let hash = format!("{:016x}", fnv1a([text.as_bytes()]));
                layouts.files.insert(path[SOURCE.len()..].to_owned(), hash);
            }
        }
        layouts
    }

    fn print(&self) -> String {
        let mut text = format!("{HEADER}version {}\n", self.version);
        for (file, hash) in &self.files {
            // Writing into a String cannot fail.
            let _ = writeln!(text, "{file} {hash}");
        }
        text
    }
}

fn parse(text: &str) -> Layouts {
    let mut layouts = Layouts::default();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.split_once(' ') {
            Some(("version", version)) => version.clone_into(&mut layouts.version),
            Some((file, hash)) => drop(layouts.files.insert(file.to_owned(), hash.to_owned())),
            None => {}
        }
    }
    layouts
}

/// The definitions in a file's code, one a line, without blanks that mean nothing.
fn definitions(code: &str) -> String {
    let mut lines = String::new();
    let mut rest = code;
    while let Some(start) = ITEMS.iter().filter_map(|item| rest.find(item)).min() {
        rest = &rest[start..];
        let end = if rest.starts_with("#[") {
            rest.find(']').map_or(rest.len(), |at| at + 1)
        } else {
            item_end(rest)
        };
        if !rest.starts_with("pub const fn ") {
            lines.push_str(&squeeze(&rest[..end]));
            lines.push('\n');
        }
        rest = &rest[end..];
    }
    lines
}

/// One blank between words, none elsewhere.
fn squeeze(code: &str) -> String {
    let mut out = String::new();
    for piece in code.split_whitespace() {
        if out.ends_with(is_word) && piece.starts_with(is_word) {
            out.push(' ');
        }
        out.push_str(piece);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(version: u32, flow: &str) -> Tree {
        let mut tree = Tree::default();
        tree.add(
            "agent-common/src/lib.rs",
            format!("pub mod flow;\npub const ABI_VERSION: u32 = {version};"),
        );
        tree.add("agent-common/src/flow.rs", flow);
        tree
    }

    fn recorded(mut tree: Tree, now: &Tree) -> Tree {
        tree.add(RECORD, Layouts::of(now).print());
        tree
    }

    const FLOW: &str = "/// A.\n#[repr(C)]\npub struct Flow { /// B.\n pub a: u64 }\nimpl Flow { fn f() {} }";

    #[test]
    fn comments_format_and_functions_are_no_layout() {
        let other =
            "#[repr(C)] pub struct Flow {\n    pub a: u64\n}\nimpl Flow { pub const fn g() -> u32 { 1 } }";
        assert_eq!(problems(&recorded(tree(1, other), &tree(1, FLOW))), [""; 0]);
    }

    #[test]
    fn fields_constants_and_repr_are_layout() {
        for changed in ["pub a: u32", "pub a: u64, pub b: u64"] {
            let changed = tree(1, &FLOW.replace("pub a: u64", changed));
            let problem = problems(&recorded(changed, &tree(1, FLOW))).join("");
            assert!(
                problem.contains("layouts changed in flow.rs while ABI_VERSION is still 1"),
                "{problem}"
            );
        }
        let packed = tree(1, &FLOW.replace("repr(C)", "repr(C, packed)"));
        assert_eq!(problems(&recorded(packed, &tree(1, FLOW))).len(), 1);
        let flag = tree(
            1,
            &format!("{FLOW}\npub mod flags {{ pub const WIRE: u32 = 1; }}"),
        );
        assert_eq!(problems(&recorded(flag, &tree(1, FLOW))).len(), 1);
        let counter = |name: &str| tree(1, &format!("counters! {{ {name}, }}"));
        assert_eq!(problems(&recorded(counter("b"), &counter("a"))).len(), 1);
    }

    #[test]
    fn a_new_version_must_be_recorded() {
        let problem = problems(&recorded(tree(2, FLOW), &tree(1, FLOW))).join("");
        assert!(problem.contains("ABI_VERSION is 2 now"), "{problem}");
        assert_eq!(problems(&recorded(tree(2, FLOW), &tree(2, FLOW))), [""; 0]);
    }

    #[test]
    fn a_missing_record_is_a_problem() {
        assert_eq!(problems(&tree(1, FLOW)).len(), 1);
    }
}
