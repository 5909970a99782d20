//! What an operator sees of the running agent: its parts put together with what they tell.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use super::scrape::Scrape;
use crate::config::{Paths, RunArgs};
use crate::datapath::pins::Pins;
use crate::kept_socket::Tell;
use crate::ops::{Condition, Control, Endpoints, Exposition, Log, Metrics, Readiness};

/// Health, metrics and the control socket, open and not yet served.
pub(super) struct Operation {
    /// What the node needs to be ready.
    pub(super) readiness: Readiness,
    /// What happens is counted here.
    pub(super) metrics: Metrics,
    /// Holds once all pods are known and proxies get theirs.
    pub(super) watch: Condition,
    exposition: Exposition,
    endpoints: Endpoints,
    control: Control,
    log: Log,
    scrape: Arc<OnceLock<Scrape>>,
}

impl Operation {
    /// Opens ports and socket, before anything is changed on the node.
    pub(super) fn open(paths: &Paths, args: &RunArgs, log: &Log) -> anyhow::Result<Self> {
        let readiness = Readiness::default();
        let watch = readiness.require(
            "watch",
            "not all pods of the node are known yet; meshgate status tells how the source is",
        );
        let endpoints = Endpoints::open(args.ops.health()?, args.ops.monitoring()?)?;
        let scrape: Arc<OnceLock<Scrape>> = Arc::default();
        let (asked, pins, by_pod) = (scrape.clone(), Pins::new(&paths.bpffs), args.ops.pod_metrics);
        let state = readiness.clone();
        let (exposition, metrics) = Exposition::new(|metrics| {
            let metrics = metrics.clone();
            Box::new(move || {
                let mut families = vec![Scrape::install_ready(state.holds("install"))];
                families.extend(asked.get().into_iter().flat_map(|scrape| scrape.told(&metrics)));
                families.extend(Scrape::kernel(&pins, by_pod));
                families
            })
        });
        Ok(Self {
            readiness,
            metrics,
            watch,
            exposition,
            endpoints,
            control: Control::bind(&paths.run_dir)?,
            log: log.clone(),
            scrape,
        })
    }

    /// What a socket tells of itself, as a condition of this name.
    pub(super) fn socket(&self, name: &'static str) -> Tell {
        let condition = self.readiness.require(name, "it is not open yet");
        Box::new(move |trouble| match trouble {
            None => condition.holds(),
            Some(trouble) => condition.lacks(trouble),
        })
    }

    /// Serves for ever; `scrape` is what the parts tell when metrics are asked for.
    pub(super) async fn serve(self, scrape: Scrape) -> Infallible {
        let _ = self.scrape.set(scrape);
        tokio::select! {
            never = self.endpoints.serve(self.readiness, self.exposition) => never,
            never = self.control.serve(self.log) => never,
        }
    }
}
