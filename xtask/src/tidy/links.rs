//! Links between our documents lead to files that exist.

use std::collections::BTreeSet;

use super::tree::Tree;

pub(super) fn problems(tree: &Tree) -> Vec<String> {
    let documents: BTreeSet<&str> = tree.files("", ".md").map(|(path, _)| path).collect();
    let mut problems = Vec::new();
    for (path, file) in tree.files("", ".md") {
        let ours = targets(&file.text).filter(|target| target.ends_with(".md") && !target.contains("://"));
        let broken = ours.filter(|target| !documents.contains(resolve(path, target).as_str()));
        problems.extend(broken.map(|target| format!("{path}: the link to {target} leads nowhere")));
    }
    problems
}

/// What stands in the parentheses of `[text](target#anchor)`, without the anchor.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links.map(|link| link.split('#').next().unwrap_or(link))
}

/// The path from the root of a link in the document `from`.
fn resolve(from: &str, target: &str) -> String {
    let mut folders: Vec<&str> = from.split('/').collect();
    folders.pop();
    for part in target.split('/') {
        match part {
            "." => {}
            ".." => drop(folders.pop()),
            name => folders.push(name),
        }
    }
    folders.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_from_where_they_stand() {
        assert_eq!(resolve("docs/testing.md", "../README.md"), "README.md");
        assert_eq!(resolve("docs/testing.md", "./datapath.md"), "docs/datapath.md");
        assert_eq!(resolve("README.md", "docs/testing.md"), "docs/testing.md");
    }

    #[test]
    fn only_links_to_missing_documents_are_problems() {
        let mut tree = Tree::default();
        tree.add(
            "README.md",
            "[a](docs/a.md#top) [b](https://example.com/b.md) [c](#here) [d](docs/d.md)",
        );
        tree.add("docs/a.md", "[up](../README.md)");
        assert_eq!(
            problems(&tree),
            ["README.md: the link to docs/d.md leads nowhere"]
        );
    }
}
