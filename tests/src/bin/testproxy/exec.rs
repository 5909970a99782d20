//! `--zds-only --exec`: lends ZDS to a proxy which has none (Envoy). The program runs in the first pod's network
//! namespace and in this process' cgroup, which is how the agent knows it.

use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::time::Duration;

use ::tests::sys::enter_on_exec;
use agent_common::ports;
use tokio::time::{Instant, sleep};

use crate::zds::Workloads;

/// How long the program may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The program, running or not.
pub(crate) struct Program {
    command: Vec<String>,
    running: Option<(String, Child)>,
}

impl Program {
    pub(crate) fn new(command: Vec<String>) -> Self {
        Self {
            command,
            running: None,
        }
    }

    fn start(&self, netns: OwnedFd) -> std::io::Result<Child> {
        let mut command = Command::new(&self.command[0]);
        enter_on_exec(&mut command, netns, None);
        command.args(&self.command[1..]).spawn()
    }
}

impl Workloads for Program {
    /// Starts the program and returns when it listens, as a pod must not be acked before.
    async fn add(&mut self, uid: &str, _namespace: &str, netns: OwnedFd) -> Result<(), String> {
        if let Some((served, _)) = &self.running {
            return if served == uid {
                Ok(())
            } else {
                Err("the program serves one pod only".to_owned())
            };
        }
        let child = self
            .start(netns)
            .map_err(|error| format!("starting {}: {error}", self.command[0]))?;
        let sockets = format!("/proc/{}/net/tcp6", child.id());
        let child = &mut self.running.insert((uid.to_owned(), child)).1;
        let deadline = Instant::now() + START_LIMIT;
        while !std::fs::read_to_string(&sockets).is_ok_and(|text| listens(&text)) {
            if let Ok(Some(status)) = child.try_wait() {
                self.running = None;
                return Err(format!("the program ended with {status}"));
            }
            if Instant::now() > deadline {
                return Err("the program does not listen".to_owned());
            }
            // The kernel tells nobody when a port begins to listen, and a trial connection would be in its log.
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    async fn del(&mut self, uid: &str) {
        if self.running.as_ref().is_some_and(|(served, _)| served == uid) {
            self.stop();
        }
    }

    fn uids(&self) -> Vec<String> {
        self.running.iter().map(|(uid, _)| uid.clone()).collect()
    }
}

impl Program {
    fn stop(&mut self) {
        if let Some((_, mut child)) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether both of the proxy's ports listen, by the text of /proc/net/tcp6 (proc_net_tcp.rst: state 0A).
fn listens(sockets: &str) -> bool {
    [ports::OUTBOUND, ports::INBOUND].into_iter().all(|port| {
        let port = format!(":{port:04X}");
        sockets.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            matches!(fields[..], [_, local, _, "0A", ..] if local.ends_with(&port))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_listens_when_both_ports_do() {
        let line =
            |port: &str, state: &str| format!("  0: {:032}:{port} {:032}:0000 {state} 0:0 00:0 0 0\n", 0, 0);
        let (outbound, inbound) = (line("3A99", "0A"), line("3A9E", "0A"));
        assert!(listens(&format!("{outbound}{inbound}")));
        assert!(!listens(&outbound));
        assert!(!listens(&format!("{outbound}{}", line("3A9E", "01"))));
        assert!(!listens("  sl  local_address\n"));
    }
}
