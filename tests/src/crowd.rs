//! Many connections of one pod at a time, held by as many processes as the limit of open files demands.

use anyhow::Result;
use serde::Deserialize;

use crate::pod::Pod;
use crate::process::Process;
use crate::tuning::open_files;

/// Descriptors that a process needs beside its connections.
const SPARE: usize = 100;

/// Connections that are held open.
#[derive(Debug)]
pub struct Crowd {
    holders: Vec<Process>,
    /// How many were opened.
    pub connected: usize,
    /// How many of them brought a byte there and back once all were open.
    pub alive: usize,
}

/// A line of `meshgate-load hold`.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(default)]
    connected: usize,
    alive: usize,
}

impl Crowd {
    /// Opens `total` connections from a pod to `destinations` in turns. The servers (`--reply echo`) and the proxies have
    /// limits of open files too: where [`open_files`] is small, share the load among several.
    ///
    /// # Errors
    /// When a process fails. Connections that fail do not count.
    pub fn open(pod: &Pod, total: usize, destinations: &[&str]) -> Result<Self> {
        let most = open_files() - SPARE;
        let mut crowd = Self {
            holders: Vec::new(),
            connected: 0,
            alive: 0,
        };
        while crowd.holders.len() * most < total {
            let count = most.min(total - crowd.holders.len() * most).to_string();
            let arguments = [&["hold", &count, "--check"], destinations].concat();
            let mut holder = pod.spawn(&arguments)?;
            let line: Line = holder.json()?;
            crowd.connected += line.connected;
            crowd.alive += line.alive;
            crowd.holders.push(holder);
        }
        Ok(crowd)
    }

    /// Closes all, and tells how many still brought a byte there and back before that.
    ///
    /// # Errors
    /// When a process failed.
    pub fn close(mut self) -> Result<usize> {
        let mut alive = 0;
        for holder in &mut self.holders {
            holder.close_stdin();
            alive += holder.json::<Line>()?.alive;
        }
        Ok(alive)
    }
}
