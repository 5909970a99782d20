//! Which of the agent's modules may import which: a table, and the check that the code keeps to it.

use std::collections::BTreeSet;

use super::code::{find_word, line, nested, word};
use super::tree::Tree;

/// A module of the agent and the others that it may import. Downwards only, in reading order: siblings on one level do
/// not know each other, and what enrolment needs of the outside are traits in `ports`.
const ALLOWED: &[(&str, &str)] = &[
    ("main", "cli"),
    (
        "cli",
        "app cgroup_ns chain config datapath install lock netns ops ports report socket_file sys",
    ),
    (
        "app",
        "blocking cni config datapath enrol inotify install kept_socket lock netns ops ports predecessor report source sys zds",
    ),
    // The plugin's socket hands each sandbox to enrolment.
    (
        "cni",
        "blocking chain enrol http kept_socket netns ports socket_file",
    ),
    ("ops", "http kept_socket ports socket_file"),
    ("enrol", "pod_log ports"),
    ("install", "blocking inotify report"),
    ("source", "inotify ports"),
    ("datapath", "chain netns ports predecessor sys"),
    ("zds", "kept_socket netns pod_log ports socket_file sys"),
    ("predecessor", "netns sys"),
    ("netns", "ports sys"),
    ("http", "chain kept_socket"),
    ("kept_socket", "inotify socket_file"),
    ("blocking", ""),
    ("cgroup_ns", ""),
    ("chain", ""),
    ("config", ""),
    ("inotify", ""),
    ("lock", ""),
    ("pod_log", ""),
    ("ports", ""),
    ("report", ""),
    ("socket_file", ""),
    ("sys", ""),
];
const SOURCE: &str = "agent/src/";
const TABLE: &str = "xtask/src/tidy/modules.rs";

pub(super) fn problems(tree: &Tree) -> Vec<String> {
    let modules: BTreeSet<&str> = tree
        .files(SOURCE, ".rs")
        .map(|(path, _)| module_of(path))
        .collect();
    let mut problems = Vec::new();
    for (path, file) in tree
        .files(SOURCE, ".rs")
        .filter(|(path, _)| *path != "agent/src/lib.rs")
    {
        let module = module_of(path);
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == module) else {
            problems.push(format!(
                "{path}: module `{module}` is not in the table in {TABLE}: what may it import?"
            ));
            continue;
        };
        for (at, import) in imports(&file.code, if module == "main" { "agent" } else { "crate" }) {
            // Other names are items of the crate's root, not modules.
            if modules.contains(import) && import != module && allowed.split(' ').all(|name| name != import) {
                let at = line(&file.code, at);
                problems.push(format!(
                    "{path}:{at}: `{module}` must not import `{import}` (table in {TABLE})"
                ));
            }
        }
    }
    problems
}

/// `agent/src/zds/wire.rs` and `agent/src/zds.rs` are in module `zds`.
fn module_of(path: &str) -> &str {
    word(&path[SOURCE.len()..])
}

/// The first name behind each `crate::` (or `agent::`), groups included, and where it stands.
fn imports<'a>(code: &'a str, root: &'a str) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for at in find_word(code, root).filter(|at| !code[..*at].ends_with('$')) {
        let Some(path) = code[at + root.len()..].strip_prefix("::") else {
            continue;
        };
        match path.strip_prefix('{') {
            Some(group) => found.extend(first_names(group).into_iter().map(|name| (at, name))),
            None => found.push((at, word(path))),
        }
    }
    found
}

/// The first names of the paths in a group, up to its closing brace: `a, b::{c, d}}` gives `a` and `b`.
fn first_names(group: &str) -> Vec<&str> {
    let (mut names, mut depth, mut start) = (Vec::new(), 1, 0);
    for (at, character) in group.char_indices() {
        depth = nested(depth, character);
        if depth == 0 || (depth == 1 && character == ',') {
            names.push(word(group[start..at].trim()));
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(code: &str) -> Vec<&str> {
        imports(code, "crate").into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn imports_are_found_in_paths_and_groups() {
        assert_eq!(
            names("use crate::ports::Netns; fn a() { crate::sys::b() }"),
            ["ports", "sys"]
        );
        assert_eq!(
            names("use crate::{ports::{A, B}, netns, zds::wire};"),
            ["ports", "netns", "zds"]
        );
        assert_eq!(
            names("pub(crate) fn a() { $crate::b!() } use other_crate::c;"),
            [""; 0]
        );
    }

    #[test]
    fn the_table_has_no_cycle_and_names_only_its_own_rows() {
        let below = |name: &str| ALLOWED.iter().position(|(module, _)| *module == name);
        for (row, (module, allowed)) in ALLOWED.iter().enumerate() {
            for other in allowed.split(' ').filter(|name| !name.is_empty()) {
                assert!(
                    below(other).is_some_and(|other| other > row),
                    "{module} → {other} does not point downwards"
                );
            }
        }
    }

    #[test]
    fn an_edge_that_is_not_in_the_table_is_a_problem() {
        let mut tree = Tree::default();
        tree.add("agent/src/lib.rs", "pub mod zds; pub mod ports; pub mod source;");
        tree.add("agent/src/ports.rs", "use agent_core::ids;");
        tree.add(
            "agent/src/source/mod.rs",
            "use crate::source::x; use crate::Root;",
        );
        tree.add(
            "agent/src/zds/wire.rs",
            "use crate::ports::A;\nuse crate::source::B;",
        );
        assert_eq!(
            problems(&tree),
            [format!(
                "agent/src/zds/wire.rs:2: `zds` must not import `source` (table in {TABLE})"
            )]
        );
        tree.add("agent/src/extra.rs", "");
        assert_eq!(problems(&tree).len(), 2);
    }
}
