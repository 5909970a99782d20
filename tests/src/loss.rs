//! Lost packets: a pod in which nobody reaches the proxy's outbound port.

use std::process::Command;

use anyhow::Result;

use crate::netns::feed;
use crate::pod::Pod;

/// While it lives, SYNs of one family to the proxy's outbound port get lost in this pod.
#[derive(Debug)]
pub struct Deaf<'a> {
    pod: &'a Pod,
    restore: &'static str,
}

impl<'a> Deaf<'a> {
    /// For IPv4, or for IPv6. The test must know the pod's filter table to be empty.
    ///
    /// # Errors
    /// When iptables is missing or refuses.
    pub fn new(pod: &'a Pod, v4: bool) -> Result<Self> {
        let restore = if v4 {
            "iptables-restore"
        } else {
            "ip6tables-restore"
        };
        let deaf = Self { pod, restore };
        deaf.rule("-A").map(|()| deaf)
    }

    fn rule(&self, verb: &str) -> Result<()> {
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            self.pod.netns().name(),
            self.restore,
            "--noflush",
        ]);
        let rule = format!("*filter\n{verb} INPUT -p tcp --dport 15001 -j DROP\nCOMMIT\n");
        feed(&mut command, &rule)
    }
}

impl Drop for Deaf<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.rule("-D") {
            eprintln!("{error:#}");
        }
    }
}
