//! What an agent tells on its ports: a GET from within the node, and metrics by name and labels.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::node::Node;

/// Port of /healthz and /readyz.
pub const HEALTH: u16 = 8000;
/// Port of /metrics.
pub const MONITORING: u16 = 15014;

/// An answer over HTTP.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers, as they were sent.
    pub headers: String,
    /// The body.
    pub body: String,
}

/// Asks a port of the node's loopback, as a process of the node does.
///
/// # Errors
/// When nobody answers there.
pub fn get(node: &Node, port: u16, path: &str, accept: &str) -> Result<Answer> {
    node.netns().run(|| -> Result<Answer> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: node\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (headers, body) = text.split_once("\r\n\r\n").context("an answer without a body")?;
        let status = headers.split(' ').nth(1).context("an answer without a status")?;
        Ok(Answer {
            status: status.parse()?,
            headers: headers.to_owned(),
            body: body.to_owned(),
        })
    })?
}

/// All metrics of a node's agent at a moment.
#[derive(Clone, Debug, Default)]
pub struct Scrape {
    /// Value by name and labels, as they are written.
    samples: BTreeMap<String, f64>,
    /// Type by the name that it was declared for.
    pub types: BTreeMap<String, String>,
}

impl Scrape {
    /// Asks for the metrics in Prometheus' own format.
    ///
    /// # Errors
    /// When there are none, or they break the rules of the format.
    pub fn of(node: &Node) -> Result<Self> {
        let answer = get(node, MONITORING, "/metrics", "text/plain")?;
        ensure!(answer.status == 200, "{answer:?}");
        Self::parse(&answer.body)
    }

    /// Reads text of either format and holds it to their rules: each metric is declared once, with its meaning, before
    /// its samples, which stand together, each once, under a name that its type allows.
    ///
    /// # Errors
    /// What breaks a rule.
    pub fn parse(text: &str) -> Result<Self> {
        let mut scrape = Self::default();
        let (mut family, mut helped) = (String::new(), BTreeSet::new());
        ensure!(text.ends_with('\n'), "the last line does not end");
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            match words[..] {
                ["#", "EOF"] => {}
                ["#", "HELP", name, meaning] => {
                    ensure!(!meaning.is_empty() && helped.insert(name.to_owned()), "{line}");
                }
                ["#", "TYPE", name, kind] => {
                    ensure!(helped.contains(name), "no meaning of {name}");
                    name.clone_into(&mut family);
                    let twice = scrape.types.insert(name.to_owned(), kind.to_owned());
                    ensure!(twice.is_none(), "{name} is declared twice");
                }
                _ => scrape.sample(line, &family)?,
            }
        }
        Ok(scrape)
    }

    fn sample(&mut self, line: &str, family: &str) -> Result<()> {
        let (key, value) = line
            .rsplit_once(' ')
            .with_context(|| format!("no value: {line}"))?;
        let name = key.split('{').next().unwrap_or_default();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
        ensure!(!name.is_empty() && name.bytes().all(is_name), "no name: {line}");
        let kind = self.types.get(family).map(String::as_str);
        let suffix = name
            .strip_prefix(family)
            .with_context(|| format!("not of {family}: {line}"))?;
        match (kind, suffix) {
            (Some("gauge"), "") | (Some("histogram"), "_bucket" | "_sum" | "_count") => {}
            // OpenMetrics declares the name without its end, Prometheus with it.
            (Some("counter"), "_total") => {}
            (Some("counter"), "") if name.ends_with("_total") => {}
            _ => bail!("no sample of a {kind:?} {family}: {line}"),
        }
        let value = value.parse().with_context(|| format!("no number: {line}"))?;
        let twice = self.samples.insert(key.to_owned(), value);
        ensure!(twice.is_none(), "twice: {line}");
        Ok(())
    }

    /// The value of a metric with these labels, as `name{label="value"}`; 0 if there is none.
    #[must_use]
    pub fn value(&self, key: &str) -> f64 {
        self.samples.get(key).copied().unwrap_or_default()
    }

    /// Names and labels that begin so.
    pub fn keys<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        let keys = self.samples.keys().map(String::as_str);
        keys.filter(move |key| key.starts_with(prefix))
    }
}
