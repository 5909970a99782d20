//! Connections all ways at a time, which prove that capture works: out of a pod and into a pod, by IPv4 and IPv6.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::mesh::Mesh;
use crate::pod::Pod;
use crate::process::Process;
use crate::proxy::Proxy;

/// Where the servers listen.
const PORT: u16 = 8080;
/// Connections each way.
const EACH: &str = "100";

/// Who dials whom.
pub type Ways<'a> = [(&'a Pod, SocketAddr); 4];

/// Out of the client and into the server, each to or from a pod outside the mesh.
#[must_use]
pub fn ways<'a>(client: &'a Pod, server: &'a Pod, outside: &'a Pod) -> Ways<'a> {
    let at = |ip| SocketAddr::new(ip, PORT);
    [
        (client, at(outside.v4())),
        (client, at(outside.v6())),
        (outside, at(server.v4())),
        (outside, at(server.v6())),
    ]
}

/// Starts the servers that [`ways`] needs.
///
/// # Errors
/// When one cannot listen.
pub fn serve(server: &Pod, outside: &Pod) -> Result<[Process; 2]> {
    let listen = |pod: &Pod| pod.serve(&["--listen", &format!("[::]:{PORT}"), "--reply", "echo"]);
    Ok([listen(server)?, listen(outside)?])
}

/// Makes short connections all ways.
///
/// # Errors
/// When one fails, or did not pass one of the proxies.
pub fn check(ways: &Ways<'_>, proxies: &[&Proxy]) -> Result<()> {
    let passed = || {
        let connections = proxies.iter().map(|proxy| Ok(proxy.connections()?.len()));
        connections.sum::<Result<usize>>()
    };
    let before = passed()?;
    let loads = ways
        .iter()
        .map(|(from, to)| from.spawn(&["crr", &to.to_string(), "--count", EACH]));
    let mut made = 0;
    for load in loads.collect::<Result<Vec<_>>>()? {
        let report: Value = { load }.json()?;
        let failed = report["failed"].as_object().context("failed")?;
        anyhow::ensure!(failed.is_empty(), "connections failed: {report}");
        made += report["ok"].as_u64().context("ok")? as usize;
    }
    let passed = passed()? - before;
    anyhow::ensure!(
        passed == made,
        "{made} connections were made, {passed} passed a proxy"
    );
    Ok(())
}

impl Mesh {
    /// Starts the servers that [`Mesh::check`] needs.
    ///
    /// # Errors
    /// When one cannot listen.
    pub fn serve(&self) -> Result<[Process; 2]> {
        serve(&self.server, &self.outside)
    }

    /// Proves that its pods are captured and served.
    ///
    /// # Errors
    /// As [`check`].
    pub fn check(&self) -> Result<()> {
        check(&ways(&self.client, &self.server, &self.outside), &[&self.proxy])
    }
}
