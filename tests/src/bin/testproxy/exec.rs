//! `--zds-only --exec`: lends ZDS to a proxy which has none (Envoy). The program runs in the first pod's network
//! namespace and in this process' cgroup, which is how the agent knows it.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::time::Duration;

use agent_common::ports;
use tests::sys::enter_on_exec;
use tokio::time::{Instant, sleep};

use crate::sockets::{Home, Pod};
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

    fn start(&self, pod: &Pod) -> std::io::Result<Child> {
        let mut command = Command::new(&self.command[0]);
        enter_on_exec(&mut command, pod.netns()?, None);
        command.args(&self.command[1..]).spawn()
    }
}

impl Workloads for Program {
    /// Starts the program and returns when it listens, as a pod must not be acked before.
    async fn add(&mut self, uid: &str, netns: OwnedFd) -> Result<(), String> {
        if let Some((served, _)) = &self.running {
            return if served == uid {
                Ok(())
            } else {
                Err("the program serves one pod only".to_owned())
            };
        }
        let pod = Pod::new(uid, netns).map_err(|error| error.to_string())?;
        let home = Home::new().map_err(|error| error.to_string())?;
        let child = self
            .start(&pod)
            .map_err(|error| format!("starting {}: {error}", self.command[0]))?;
        let child = &mut self.running.insert((uid.to_owned(), child)).1;
        let deadline = Instant::now() + START_LIMIT;
        let outbound = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::OUTBOUND));
        while home.within(&pod, || TcpStream::connect(outbound)).is_err() {
            if let Ok(Some(status)) = child.try_wait() {
                self.running = None;
                return Err(format!("the program ended with {status}"));
            }
            if Instant::now() > deadline {
                return Err(format!("the program does not listen on {outbound}"));
            }
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
