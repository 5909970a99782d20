//! What somebody unpins while the agent works is made again, for pods by their own next step.

use agent_core::plan::Event;

use super::Enrolment;
use crate::ports::{Datapath, FindNetns, PodStatus, PortError, Proxy};

impl<D, P, S, F> Enrolment<D, P, S, F>
where
    D: Datapath,
    P: Proxy + 'static,
    S: PodStatus + 'static,
    F: FindNetns,
{
    pub(super) fn repair(&mut self) -> Result<(), PortError> {
        let repaired = self.ports.datapath.repair()?;
        if repaired.moved > 0 {
            tracing::warn!(
                pins = repaired.moved,
                "the file system with the pins was taken away: they are in the one that is there now"
            );
        }
        for made in &repaired.made {
            tracing::warn!("somebody removed the pin of {made}: it is there again");
        }
        let mut count = (repaired.moved + repaired.made.len()) as u64;
        for (uid, pod) in &mut self.pods {
            if pod
                .have
                .link
                .netns()
                .is_some_and(|netns| repaired.lost.contains(&netns))
            {
                tracing::warn!(pod = %pod.pod, "somebody removed the pin of the pod's link: it is attached again");
                pod.have.apply(&Event::LinkLost);
                self.queue.push(uid);
                count += 1;
            }
        }
        if count > 0 {
            self.repairs.send_modify(|repairs| repairs.pins += count);
        }
        Ok(())
    }
}
