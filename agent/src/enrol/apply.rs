//! Steps at the ports: the kernel's at once, those of the proxy and the API server as calls that are answered later.

use std::sync::Arc;
use std::time::Duration;

use agent_core::plan::{Event, Step};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::timeout;

use super::pod::Pod;
use crate::ports::{Datapath, FindNetns, Netns, PodStatus, PortError, Proxy, Workload};

/// How long a pod waits for the proxy, queues included, before it is captured without: longer than a CNI plugin waits for its
/// pod, and a running pod is not left uncaptured for a slow proxy's sake.
const PATIENCE: Duration = Duration::from_secs(6);

/// What enrolment works on.
#[derive(Debug)]
pub struct Ports<D, P, S, F> {
    /// The kernel.
    pub datapath: D,
    /// The proxies.
    pub proxy: Arc<P>,
    /// Where the state of a pod is written.
    pub status: Arc<S>,
    /// Who finds network namespaces.
    pub finder: F,
}

/// What became of a step.
pub(super) enum Outcome {
    /// It is done, or has failed.
    Now(Result<(), PortError>),
    /// It is under way.
    Later(BoxFuture<'static, Result<(), PortError>>),
}

impl<D, P, S, F> Ports<D, P, S, F>
where
    D: Datapath,
    P: Proxy + 'static,
    S: PodStatus + 'static,
    F: FindNetns,
{
    /// Begins a step.
    pub(super) fn begin(&mut self, step: &Step, pod: &mut Pod) -> Outcome {
        match step {
            Step::FindNetns(addresses) => {
                let (found, result) = match self.finder.find(&pod.pod, addresses) {
                    Ok(found) => (found, Ok(())),
                    Err(error) => (None, Err(error)),
                };
                pod.sought(addresses, found);
                Outcome::Now(result)
            }
            Step::Attach(entry) => Outcome::Now(self.datapath.attach(held(pod), entry)),
            Step::Capture(entry) => Outcome::Now(self.datapath.capture(entry)),
            Step::Look => {
                let looked = self.datapath.has_rules(held(pod));
                Outcome::Now(looked.map(|found| pod.have.apply(&Event::Looked(found))))
            }
            Step::Clear(netns, clearing) => {
                let cleared = self.datapath.clear(*netns, pod.netns.as_ref(), *clearing);
                Outcome::Now(cleared.map(|cleared| pod.cleared(cleared)))
            }
            Step::Release => Outcome::Now(self.datapath.release(&pod.pod.uid)),
            Step::Detach(netns) => Outcome::Now(self.datapath.detach(*netns)),
            Step::ProxyAdd => Outcome::Later(self.add(pod)),
            Step::ProxyDel => {
                let (proxy, uid) = (self.proxy.clone(), pod.pod.uid.clone());
                Outcome::Later(async move { proxy.del(&uid).await }.boxed())
            }
            Step::Annotate(state) => {
                let (status, pod, state) = (self.status.clone(), pod.pod.clone(), *state);
                Outcome::Later(async move { status.write(&pod, state).await }.boxed())
            }
        }
    }

    fn add(&self, pod: &Pod) -> BoxFuture<'static, Result<(), PortError>> {
        let workload = Workload {
            pod: pod.pod.clone(),
            service_account: pod.service_account.clone(),
        };
        let netns = pod.netns.as_ref().map(|netns| netns.fd.clone());
        let proxy = self.proxy.clone();
        let late = PortError {
            operation: "ZDS Add",
            object: pod.pod.to_string(),
            cause: format!(
                "the proxy has not answered within {} s: it is slow or busy",
                PATIENCE.as_secs()
            ),
            retryable: true,
        };
        async move {
            timeout(PATIENCE, proxy.add(workload, netns))
                .await
                .unwrap_or(Err(late))
        }
        .boxed()
    }
}

/// The plan attaches only where a namespace was found, and [`Pod::sought`] holds what was found.
fn held(pod: &Pod) -> &Netns {
    pod.netns
        .as_ref()
        .expect("a namespace that is attached to is held")
}
