//! Istio's rules in nf_tables, as iptables-nft makes them and as Istio's own nft backend does: what is to be removed, and
//! in which order.

use super::{ANSWERS, CHAINS, Extent, OPENINGS};

/// An address family of nf_tables (`NFPROTO_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A table, which both its family and its name tell from others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Table {
    /// Its family.
    pub family: Family,
    /// Its name.
    pub name: String,
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its table.
    pub table: Table,
    /// Its name.
    pub name: String,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its chain.
    pub chain: Chain,
    /// Its handle, which no other rule of the table ever has.
    pub handle: u64,
    /// The chain that it jumps or goes to.
    pub jump: Option<String>,
}

/// One thing to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// A rule.
    Rule(Chain, u64),
    /// All rules of a chain.
    RulesOf(Chain),
    /// A chain, which no rule refers to any more.
    Chain(Chain),
    /// All rules of a table; its chains stay.
    RulesOfTable(Table),
    /// A table with all that is in it.
    Table(Table),
}

/// The tables of Istio's nft backend: nobody else has anything in them.
const OWN_OPENINGS: [&str; 2] = ["istio-ambient-nat", "istio-ambient-raw"];
/// The one of them that answers need.
const OWN_ANSWERS: &str = "istio-ambient-mangle";

impl Table {
    /// Whether it is of Istio's nft backend.
    #[must_use]
    pub fn is_istios(&self) -> bool {
        let name = self.name.as_str();
        self.family == Family::Inet && (OWN_OPENINGS.contains(&name) || name == OWN_ANSWERS)
    }

    /// Whether iptables-nft may have put chains of Istio's into it, among others.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        let name = self.name.as_str();
        self.family != Family::Inet && (OPENINGS.contains(&name) || name == ANSWERS)
    }

    /// Whether it holds all chains of these names, if `chains` are all that there are.
    #[must_use]
    pub fn holds(&self, names: &[&str], chains: &[Chain]) -> bool {
        let has = |name: &&str| chains.iter().any(|c| c.table == *self && c.name == **name);
        names.iter().all(has)
    }

    fn goes_with(&self, extent: Extent) -> bool {
        extent == Extent::Everything || (self.name != ANSWERS && self.name != OWN_ANSWERS)
    }
}

/// What goes of these tables, which are all Istio's or hold chains of Istio's, if these are all their rules.
///
/// The chains of Istio's own nat table stay while connections are open, without rules: with the last nat chain of a
/// namespace the kernel stops to translate connections that are open.
#[must_use]
pub fn removals(tables: &[Table], rules: &[Rule], extent: Extent) -> Vec<Removal> {
    let mut removals = Vec::new();
    for table in tables.iter().filter(|table| table.goes_with(extent)) {
        match (table.is_istios(), extent) {
            (true, Extent::Openings) => removals.push(Removal::RulesOfTable(table.clone())),
            (true, Extent::Everything) => removals.push(Removal::Table(table.clone())),
            (false, _) => removals.extend(without(table, &CHAINS, rules)),
        }
    }
    removals
}

/// Takes chains of these names out of a table with these rules. First go the jumps, then the rules, then the chains: the
/// kernel removes no chain that is referred to.
#[must_use]
pub fn without(table: &Table, names: &[&str], rules: &[Rule]) -> Vec<Removal> {
    let jumps = rules.iter().filter(|rule| {
        rule.chain.table == *table
            && !names.contains(&rule.chain.name.as_str())
            && rule.jump.as_deref().is_some_and(|jump| names.contains(&jump))
    });
    let chains = names.iter().map(|name| Chain {
        table: table.clone(),
        name: (*name).to_owned(),
    });
    jumps
        .map(|rule| Removal::Rule(rule.chain.clone(), rule.handle))
        .chain(chains.clone().map(Removal::RulesOf))
        .chain(chains.map(Removal::Chain))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(family: Family, name: &str) -> Table {
        Table {
            family,
            name: name.to_owned(),
        }
    }

    fn chain(table: &Table, name: &str) -> Chain {
        Chain {
            table: table.clone(),
            name: name.to_owned(),
        }
    }

    fn rule(table: &Table, name: &str, handle: u64, jump: Option<&str>) -> Rule {
        Rule {
            chain: chain(table, name),
            handle,
            jump: jump.map(str::to_owned),
        }
    }

    #[test]
    fn a_table_is_istios_by_its_family_and_its_chains() {
        let rows = [
            (Family::V4, "nat", &CHAINS[..], true),
            (Family::V6, "mangle", &CHAINS[..], true),
            (Family::V4, "nat", &["ISTIO_OUTPUT", "ISTIO_INBOUND"][..], false),
            (Family::V4, "filter", &CHAINS[..], false),
            (Family::Inet, "nat", &CHAINS[..], false),
            (Family::V4, "raw", &["PREROUTING"][..], false),
        ];
        for (family, name, chains, expected) in rows {
            let table = table(family, name);
            let chains: Vec<_> = chains.iter().map(|name| chain(&table, name)).collect();
            assert_eq!(
                table.is_shared() && table.holds(&CHAINS, &chains),
                expected,
                "{family:?} {name} {chains:?}"
            );
        }
        let nat = table(Family::V4, "nat");
        let others = CHAINS.map(|name| chain(&table(Family::V6, "nat"), name));
        assert!(!nat.holds(&CHAINS, &others), "those of another family");
    }

    #[test]
    fn jumps_go_before_rules_and_rules_before_chains_and_nothing_else_goes() {
        let (nat, mangle) = (table(Family::V4, "nat"), table(Family::V4, "mangle"));
        let rules = [
            rule(&nat, "PREROUTING", 5, None),
            rule(&nat, "PREROUTING", 6, Some("ISTIO_PRERT")),
            rule(&nat, "OUTPUT", 7, Some("DOCKER")),
            rule(&nat, "OUTPUT", 8, Some("ISTIO_OUTPUT")),
            rule(&nat, "ISTIO_PRERT", 9, None),
            rule(&mangle, "PREROUTING", 6, Some("ISTIO_PRERT")),
        ];
        let tables = [mangle.clone(), nat.clone()];
        let openings = removals(&tables, &rules, Extent::Openings);
        assert_eq!(
            openings,
            [
                Removal::Rule(chain(&nat, "PREROUTING"), 6),
                Removal::Rule(chain(&nat, "OUTPUT"), 8),
                Removal::RulesOf(chain(&nat, "ISTIO_PRERT")),
                Removal::RulesOf(chain(&nat, "ISTIO_OUTPUT")),
                Removal::Chain(chain(&nat, "ISTIO_PRERT")),
                Removal::Chain(chain(&nat, "ISTIO_OUTPUT")),
            ]
        );
        let all = removals(&tables, &rules, Extent::Everything);
        assert_eq!(all.len(), 5 + 6);
        assert_eq!(all[0], Removal::Rule(chain(&mangle, "PREROUTING"), 6));
    }

    #[test]
    fn chains_of_istios_own_tables_stay_while_connections_are_open() {
        let tables = ["istio-ambient-mangle", "istio-ambient-nat", "istio-ambient-raw"]
            .map(|name| table(Family::Inet, name));
        assert!(tables.iter().all(Table::is_istios));
        assert_eq!(
            removals(&tables, &[], Extent::Openings),
            [
                Removal::RulesOfTable(tables[1].clone()),
                Removal::RulesOfTable(tables[2].clone())
            ]
        );
        assert_eq!(
            removals(&tables, &[], Extent::Everything),
            tables.map(Removal::Table)
        );
    }
}
