//! The pods that the proxy serves: three listening ports in each one's network namespace, and a DNS server if asked.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use agent_common::ports;
use tests::proxy::Direction;
use tokio::task::JoinHandle;

use crate::dns::Dns;
use crate::serve::Server;
use crate::sockets::{NetnsId, Pod};
use crate::zds::Workloads;

/// All pods.
pub(crate) struct Pods {
    server: Arc<Server>,
    /// Kubernetes namespaces that take nothing in clear text.
    strict: Vec<String>,
    dns: Option<Arc<Dns>>,
    served: HashMap<String, Served>,
}

struct Served {
    netns: NetnsId,
    ports: Vec<JoinHandle<()>>,
}

impl Pods {
    /// None yet.
    pub(crate) fn new(server: Arc<Server>, strict: Vec<String>, dns: Option<Arc<Dns>>) -> Self {
        Self {
            server,
            strict,
            dns,
            served: HashMap::new(),
        }
    }

    /// Closes all ports.
    pub(crate) async fn clear(&mut self) {
        for (_, served) in self.served.drain() {
            close(served).await;
        }
    }

    fn open(&self, pod: &Arc<Pod>) -> std::io::Result<Vec<JoinHandle<()>>> {
        let ports = [
            (Direction::Outbound, ports::OUTBOUND),
            (Direction::Inbound, ports::INBOUND),
            (Direction::Hbone, ports::HBONE),
        ];
        // All three first: a pod whose ports are taken is refused as a whole.
        let listeners = ports.map(|(direction, port)| Ok((direction, self.server.home().listen(pod, port)?)));
        let listeners = listeners.into_iter().collect::<std::io::Result<Vec<_>>>()?;
        let accept = |(direction, listener)| {
            tokio::spawn(self.server.clone().accept(listener, pod.clone(), direction))
        };
        let dns = self.dns.as_ref().map(|dns| dns.open(pod)).transpose()?;
        let ports = listeners.into_iter().map(accept);
        Ok(ports.chain(dns.into_iter().flatten()).collect())
    }
}

impl Workloads for Pods {
    /// The same pod in the same namespace again is fine; in another one it replaces the first.
    async fn add(&mut self, uid: &str, namespace: &str, netns: OwnedFd) -> Result<(), String> {
        let pod = Pod::new(uid, netns);
        let mut pod = pod.map_err(|error| format!("not a network namespace: {error}"))?;
        pod.strict = self.strict.iter().any(|strict| strict == namespace);
        if self
            .served
            .get(uid)
            .is_some_and(|served| served.netns == pod.id())
        {
            return Ok(());
        }
        self.del(uid).await;
        let pod = Arc::new(pod);
        let ports = self
            .open(&pod)
            .map_err(|error| format!("listening in the pod: {error}"))?;
        self.served.insert(
            uid.to_owned(),
            Served {
                netns: pod.id(),
                ports,
            },
        );
        Ok(())
    }

    async fn del(&mut self, uid: &str) {
        if let Some(served) = self.served.remove(uid) {
            close(served).await;
        }
    }

    fn uids(&self) -> Vec<String> {
        self.served.keys().cloned().collect()
    }
}

/// Closes the ports and returns when they are closed. Connections go on.
async fn close(served: Served) {
    for port in served.ports {
        port.abort();
        let _ = port.await;
    }
}
