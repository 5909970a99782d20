//! Words of code that belong in certain places only: `unsafe`, the doors to the kernel and to other programs, `sleep`.

use super::code::{find_word, line, without_tests};
use super::tree::Tree;

/// A word and where it may stand.
struct Rule {
    word: &'static str,
    /// Paths under the rule.
    within: &'static [&'static str],
    /// Paths, among those, where the word may stand.
    allowed: &'static [&'static str],
    /// Whether tests are under the rule too.
    tests: bool,
    why: &'static str,
}

const AGENT: &[&str] = &["agent/src/", "agent-core/src/", "agent-cni/src/"];
const LOADERS: &[&str] = &["agent/src/datapath/", "agent/src/sys"];
const NAMESPACES: &[&str] = &["agent/src/cgroup_ns.rs", "agent/src/netns/", "agent/src/sys"];
const RULES: &[Rule] = &[
    Rule {
        word: "unsafe",
        within: &[""],
        allowed: &["agent-common/", "agent-ebpf/", "agent/src/sys", "tests/src/sys"],
        tests: true,
        why: "unsafe code stays where it is reviewed as such: agent/src/sys (tests/src/sys)",
    },
    Rule {
        word: "aya",
        within: &["agent/src/"],
        allowed: LOADERS,
        tests: true,
        why: "only datapath, and sys below it, knows how programs are loaded and maps are read",
    },
    Rule {
        word: "aya_obj",
        within: &["agent/src/"],
        allowed: LOADERS,
        tests: true,
        why: "only datapath, and sys below it, knows how programs are loaded and maps are read",
    },
    Rule {
        word: "setns",
        within: &["agent/src/"],
        allowed: NAMESPACES,
        tests: false,
        why: "a thread enters a namespace through netns, which never lets it come back to other work",
    },
    Rule {
        word: "move_into_link_name_space",
        within: &["agent/src/"],
        allowed: NAMESPACES,
        tests: false,
        why: "a thread enters a namespace through netns, which never lets it come back to other work",
    },
    Rule {
        word: "process::Command",
        within: AGENT,
        allowed: &[],
        tests: false,
        why: "the agent starts no other program: no iptables, nft, ip or tc binary",
    },
    Rule {
        word: "sleep",
        within: &["tests/tests/"],
        allowed: &[],
        tests: true,
        why: "a test waits for the event itself, not for a time",
    },
];

pub(super) fn problems(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, file) in tree.files("", ".rs") {
        for rule in RULES.iter().filter(|rule| rule.holds_in(path)) {
            let code = rule.code(path, &file.code);
            let places = find_word(&code, rule.word);
            problems.extend(
                places.map(|at| format!("{path}:{}: `{}`: {}", line(&code, at), rule.word, rule.why)),
            );
        }
    }
    problems
}

impl Rule {
    /// The code under the rule, line by line where it was.
    fn code(&self, path: &str, code: &str) -> String {
        let is_test = path.split('/').any(|part| part == "tests" || part == "tests.rs");
        match (self.tests, is_test) {
            (true, _) => code.to_owned(),
            (false, true) => String::new(),
            (false, false) => without_tests(code),
        }
    }

    /// Whether the file is under the rule.
    fn holds_in(&self, path: &str) -> bool {
        let under = |folders: &[&str]| folders.iter().any(|folder| path.starts_with(folder));
        under(self.within) && !under(self.allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, text: &str) -> Vec<String> {
        let mut tree = Tree::default();
        tree.add(path, text);
        problems(&tree)
    }

    #[test]
    fn unsafe_stays_in_its_places_even_in_tests() {
        let text = "//! A.\nfn a() { unsafe { b() } }\n";
        assert_eq!(of("agent/src/zds/wire.rs", text).len(), 1);
        assert!(of("agent/src/zds/wire.rs", text)[0].starts_with("agent/src/zds/wire.rs:2: "));
        for path in [
            "agent/src/sys/mod.rs",
            "agent/src/sys.rs",
            "agent-ebpf/src/main.rs",
            "tests/src/sys.rs",
        ] {
            assert_eq!(of(path, text), [""; 0], "{path}");
        }
        assert_eq!(
            of(
                "agent/src/zds/wire.rs",
                "#[cfg(test)]\nmod tests { unsafe fn a() {} }"
            )
            .len(),
            1
        );
        assert_eq!(
            of("agent/src/zds/wire.rs", "// unsafe\nconst A: &str = \"unsafe\";"),
            [""; 0]
        );
    }

    #[test]
    fn the_agent_starts_no_program_but_its_tests_may() {
        let text = "use std::process::Command;";
        assert_eq!(of("agent/src/source/file.rs", text).len(), 1);
        assert_eq!(
            of(
                "agent/src/source/file.rs",
                &format!("#[cfg(test)]\nmod tests {{ {text} }}")
            ),
            [""; 0]
        );
        for path in [
            "agent/src/zds/tests/garbage.rs",
            "agent/src/zds/tests.rs",
            "tests/src/node.rs",
        ] {
            assert_eq!(of(path, text), [""; 0], "{path}");
        }
    }

    #[test]
    fn only_the_datapath_knows_aya() {
        assert_eq!(of("agent/src/cli/status.rs", "use aya::maps::MapData;").len(), 1);
        assert_eq!(
            of("agent/src/datapath/pins.rs", "use aya::maps::MapData;"),
            [""; 0]
        );
    }
}
