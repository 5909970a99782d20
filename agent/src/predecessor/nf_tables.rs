//! Rules in nf_tables: read, and removed in one transaction (linux/netfilter/nf_tables.h).

use std::io;

use agent_core::predecessor::nft::{Chain, Family, Removal, Rule, Table, removals};
use agent_core::predecessor::{CHAINS, Extent};
use rtnetlink::sys::protocols::NETLINK_NETFILTER;

use super::netlink::{Conversation, Message, attribute, attributes, each, string, text};

/// `NFNL_SUBSYS_NFTABLES`.
const SUBSYSTEM: u8 = 10;
/// Length of `struct nfgenmsg`, which each body begins with.
const PREFIX: usize = 4;
/// Verdict codes of a rule that goes on in another chain: `NFT_JUMP`, `NFT_GOTO`.
const JUMPS: [i32; 2] = [-3, -4];

/// Types of messages (`NFT_MSG_*`).
mod kind {
    pub(super) const GET_TABLE: u16 = 1;
    pub(super) const DELETE_TABLE: u16 = 2;
    pub(super) const GET_CHAIN: u16 = 4;
    pub(super) const DELETE_CHAIN: u16 = 5;
    pub(super) const GET_RULE: u16 = 7;
    pub(super) const DELETE_RULE: u16 = 8;
}

/// Types of attributes (`NFTA_*`).
mod attr {
    pub(super) const TABLE_NAME: u16 = 1;
    pub(super) const CHAIN_TABLE: u16 = 1;
    pub(super) const CHAIN_NAME: u16 = 3;
    pub(super) const CHAIN_TYPE: u16 = 7;
    pub(super) const RULE_TABLE: u16 = 1;
    pub(super) const RULE_CHAIN: u16 = 2;
    pub(super) const RULE_HANDLE: u16 = 3;
    pub(super) const RULE_EXPRESSIONS: u16 = 4;
    pub(super) const EXPRESSION_DATA: u16 = 2;
    pub(super) const IMMEDIATE_DATA: u16 = 2;
    pub(super) const DATA_VERDICT: u16 = 2;
    pub(super) const VERDICT_CODE: u16 = 1;
    pub(super) const VERDICT_CHAIN: u16 = 2;
}

/// Istio's rules of a pod.
#[derive(Debug, Default)]
pub(super) struct Ruleset {
    tables: Vec<Table>,
    rules: Vec<Rule>,
}

impl Ruleset {
    /// Reads what is Istio's in this namespace.
    pub(super) fn of_pod() -> io::Result<Self> {
        let Some(kernel) = Kernel::open()? else {
            return Ok(Self::default());
        };
        let candidates: Vec<_> = kernel
            .tables()?
            .into_iter()
            .filter(|table| table.is_istios() || table.is_shared())
            .collect();
        if candidates.is_empty() {
            return Ok(Self::default());
        }
        let chains = kernel.chains()?;
        let mut found = Self::default();
        for table in candidates {
            if !table.is_istios() {
                if !table.holds(&CHAINS, &chains) {
                    continue;
                }
                found.rules.extend(kernel.rules(&table, None)?);
            }
            found.tables.push(table);
        }
        Ok(found)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Removes so much of it, together or not at all.
    pub(super) fn remove(&self, extent: Extent) -> io::Result<()> {
        match (removals(&self.tables, &self.rules, extent), Kernel::open()?) {
            (removals, Some(kernel)) if !removals.is_empty() => kernel.remove(&removals),
            _ => Ok(()),
        }
    }
}

/// nf_tables of this namespace.
pub(super) struct Kernel(Conversation);

impl Kernel {
    /// `None` when the kernel has no netfilter.
    pub(super) fn open() -> io::Result<Option<Self>> {
        match Conversation::open(NETLINK_NETFILTER) {
            Ok(conversation) => Ok(Some(Self(conversation))),
            Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All tables; none when the kernel has no nf_tables.
    pub(super) fn tables(&self) -> io::Result<Vec<Table>> {
        match self.0.dump(message(kind::GET_TABLE, 0, &[])) {
            Ok(answers) => Ok(answers.iter().filter_map(table).collect()),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// All chains.
    pub(super) fn chains(&self) -> io::Result<Vec<Chain>> {
        let answers = self.0.dump(message(kind::GET_CHAIN, 0, &[]))?;
        Ok(answers.iter().filter_map(chain).collect())
    }

    /// The tables with a chain in which connections are translated.
    pub(super) fn translating(&self) -> io::Result<Vec<Table>> {
        let answers = self.0.dump(message(kind::GET_CHAIN, 0, &[]))?;
        let is_nat = |answer: &&Message| {
            let all = answer.body.get(PREFIX..).unwrap_or_default();
            string(all, attr::CHAIN_TYPE).as_deref() == Some("nat")
        };
        let nat = answers.iter().filter(is_nat).filter_map(chain);
        Ok(nat.map(|chain| chain.table).collect())
    }

    /// The rules of a table, or of one chain of it.
    pub(super) fn rules(&self, table: &Table, chain: Option<&str>) -> io::Result<Vec<Rule>> {
        let (table_name, chain) = (text(&table.name), chain.map(text));
        let mut wanted: Vec<(u16, &[u8])> = vec![(attr::RULE_TABLE, &table_name)];
        wanted.extend(chain.as_deref().map(|name| (attr::RULE_CHAIN, name)));
        let question = message(kind::GET_RULE, number(table.family), &wanted);
        Ok(self.0.dump(question)?.iter().filter_map(rule).collect())
    }

    /// Removes all of these, or none.
    pub(super) fn remove(&self, removals: &[Removal]) -> io::Result<()> {
        self.0.batch(SUBSYSTEM, removals.iter().map(order).collect())
    }
}

fn message(kind: u16, family: u8, wanted: &[(u16, &[u8])]) -> Message {
    Message {
        kind: u16::from(SUBSYSTEM) << 8 | kind,
        body: [vec![family, 0, 0, 0], attributes(wanted)].concat(),
    }
}

fn order(removal: &Removal) -> Message {
    let in_table = |kind, table: &Table, more: &[(u16, &[u8])]| {
        let name = text(&table.name);
        let all = [&[(attr::TABLE_NAME, name.as_slice())], more].concat();
        message(kind, number(table.family), &all)
    };
    match removal {
        Removal::Rule(chain, handle) => {
            let (name, handle) = (text(&chain.name), handle.to_be_bytes());
            let which: [(u16, &[u8]); 2] = [(attr::RULE_CHAIN, &name), (attr::RULE_HANDLE, &handle)];
            in_table(kind::DELETE_RULE, &chain.table, &which)
        }
        Removal::RulesOf(chain) => {
            let name = text(&chain.name);
            in_table(kind::DELETE_RULE, &chain.table, &[(attr::RULE_CHAIN, &name)])
        }
        Removal::Chain(chain) => {
            let name = text(&chain.name);
            in_table(kind::DELETE_CHAIN, &chain.table, &[(attr::CHAIN_NAME, &name)])
        }
        Removal::RulesOfTable(table) => in_table(kind::DELETE_RULE, table, &[]),
        Removal::Table(table) => in_table(kind::DELETE_TABLE, table, &[]),
    }
}

fn table(answer: &Message) -> Option<Table> {
    Some(Table {
        family: family(answer)?,
        name: string(answer.body.get(PREFIX..)?, attr::TABLE_NAME)?,
    })
}

fn chain(answer: &Message) -> Option<Chain> {
    let all = answer.body.get(PREFIX..)?;
    let table = Table {
        family: family(answer)?,
        name: string(all, attr::CHAIN_TABLE)?,
    };
    Some(Chain {
        table,
        name: string(all, attr::CHAIN_NAME)?,
    })
}

fn rule(answer: &Message) -> Option<Rule> {
    let all = answer.body.get(PREFIX..)?;
    let table = Table {
        family: family(answer)?,
        name: string(all, attr::RULE_TABLE)?,
    };
    let chain = Chain {
        table,
        name: string(all, attr::RULE_CHAIN)?,
    };
    Some(Rule {
        chain,
        handle: u64::from_be_bytes(attribute(all, attr::RULE_HANDLE)?.try_into().ok()?),
        jump: attribute(all, attr::RULE_EXPRESSIONS).and_then(jump),
    })
}

/// The chain that a rule's expressions jump to: an expression `immediate` with such a verdict.
fn jump(expressions: &[u8]) -> Option<String> {
    each(expressions).find_map(|expression| {
        let data = attribute(
            attribute(expression, attr::EXPRESSION_DATA)?,
            attr::IMMEDIATE_DATA,
        )?;
        let verdict = attribute(data, attr::DATA_VERDICT)?;
        let code = i32::from_be_bytes(attribute(verdict, attr::VERDICT_CODE)?.try_into().ok()?);
        JUMPS
            .contains(&code)
            .then(|| string(verdict, attr::VERDICT_CHAIN))
            .flatten()
    })
}

fn family(answer: &Message) -> Option<Family> {
    match answer.body.first()? {
        1 => Some(Family::Inet),
        2 => Some(Family::V4),
        10 => Some(Family::V6),
        _ => None,
    }
}

/// `NFPROTO_*`.
fn number(family: Family) -> u8 {
    match family {
        Family::Inet => 1,
        Family::V4 => 2,
        Family::V6 => 10,
    }
}
