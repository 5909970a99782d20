//! New connections all the time, in both directions and families, and the proof that each went through the proxy.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::Value;

use crate::escape::{Verdict, verdict};
use crate::process::Process;
use crate::proxy::Direction;
use crate::{Mesh, Pod, wait};

/// Connections per second of each load.
const RATE: &str = "100";

/// Servers and load in both directions.
#[derive(Debug)]
pub struct Steady {
    clients: Vec<Process>,
    _servers: [Process; 2],
    outside_log: PathBuf,
    server_log: PathBuf,
}

impl Steady {
    /// Starts it.
    ///
    /// # Errors
    /// When a process does not start.
    pub fn start(mesh: &Mesh) -> Result<Self> {
        let log = |name: &str| mesh.node.run_dir().join(format!("{name}-server.jsonl"));
        let (outside_log, server_log) = (log("outside"), log("server"));
        let serve = |pod: &Pod, log: &PathBuf| {
            let log = log.display().to_string();
            pod.serve(&["--listen", "[::]:8080", "--reply", "echo", "--log", &log])
        };
        let servers = [
            serve(&mesh.outside, &outside_log)?,
            serve(&mesh.server, &server_log)?,
        ];
        let mut clients = Vec::new();
        for (from, to) in [(&mesh.client, &mesh.outside), (&mesh.outside, &mesh.server)] {
            for ip in [to.v4(), to.v6()] {
                let destination = SocketAddr::new(ip, 8080).to_string();
                clients.push(from.spawn(&["crr", &destination, "--stdin", "--rate", RATE])?);
            }
        }
        Ok(Self {
            clients,
            _servers: servers,
            outside_log,
            server_log,
        })
    }

    /// Waits until each server has accepted so many more connections.
    ///
    /// # Errors
    /// When they do not come in time.
    pub fn wait_for_more(&self, count: usize) -> Result<()> {
        [&self.outside_log, &self.server_log]
            .into_iter()
            .try_for_each(|log| {
                let lines = || std::fs::read_to_string(log).map_or(0, |text| text.lines().count());
                let before = lines();
                wait::for_file(log, None, "more connections", || {
                    Ok((lines() > before + count).then_some(()))
                })
            })
    }

    /// Ends the load; returns how many connections there were and which failed.
    ///
    /// # Errors
    /// When a client failed.
    pub fn stop(&mut self) -> Result<Vec<Value>> {
        self.clients.iter_mut().for_each(Process::close_stdin);
        self.clients.iter_mut().map(Process::json).collect()
    }

    /// What the two servers and the proxy say: on the way out, on the way in.
    ///
    /// # Errors
    /// When a log is not ours.
    pub fn verdicts(&self, mesh: &Mesh) -> Result<[Verdict; 2]> {
        let proxied = mesh.proxy.connections()?;
        let (client, outside, server) = (&mesh.client, &mesh.outside, &mesh.server);
        Ok([
            verdict(
                &self.outside_log,
                &[client],
                &proxied,
                (Direction::Outbound, client, 8080),
            )?,
            verdict(
                &self.server_log,
                &[outside],
                &proxied,
                (Direction::Inbound, server, 8080),
            )?,
        ])
    }
}
