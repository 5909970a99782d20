//! Follows one kind of objects at the API server: list, watch from there, resume, list again when the server has
//! forgotten the version.
//!
//! This is not `kube::runtime::watcher`, because that one does not say when a resumed watch works again, goes on for
//! ever with a version that HTTP 410 refuses, and starts watches that end at once as fast as it can.

use std::time::Duration;

use futures::StreamExt;
use kube::api::{ListParams, WatchParams};
use kube::core::WatchEvent;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::backoff::Backoff;
use super::problem::Problem;

/// Objects per page of a list.
const PAGE: u32 = 500;
/// How long a page of a list, or the first answer of a watch, may take.
const ANSWER: Duration = Duration::from_secs(30);
/// How long the server keeps a watch open, in seconds: below five minutes, where proxies on the way like to cut.
const WATCH_SECONDS: u32 = 290;
/// When a watch counts as dead: the server should have closed it.
const WATCH_DEAD: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);
/// A watch that lives shorter is followed by a delay.
const LIVED: Duration = Duration::from_secs(1);

/// What is told of the objects.
#[derive(Debug)]
pub(super) enum Event<K> {
    /// These are all that there are.
    All(Vec<K>),
    /// One is new or changed.
    There(K),
    /// One is gone.
    Gone(K),
    /// The server does not answer as it should, or does again.
    Problem(Option<Problem>),
}

/// Which objects to follow.
pub(super) struct ListWatch<K> {
    pub(super) api: Api<K>,
    /// Their name in RBAC rules.
    pub(super) resource: &'static str,
    /// Field selector.
    pub(super) fields: Option<String>,
}

/// Why a turn of list and watch ended early.
enum Stop {
    /// Nobody listens.
    Closed,
    Problem(Problem),
}

impl<T> From<mpsc::error::SendError<T>> for Stop {
    fn from(_: mpsc::error::SendError<T>) -> Self {
        Self::Closed
    }
}

impl<K> ListWatch<K>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    /// Follows until nobody listens.
    pub(super) async fn run(self, events: mpsc::Sender<Event<K>>) {
        let mut version = None;
        let mut backoff = Backoff::default();
        loop {
            let started = Instant::now();
            match self.turn(&mut version, &events).await {
                Err(Stop::Closed) => return,
                Err(Stop::Problem(problem)) => {
                    debug!(resource = self.resource, %problem, "watch failed");
                    if let Problem::Expired { .. } = problem {
                        version = None;
                    } else if events.send(Event::Problem(Some(problem))).await.is_err() {
                        return;
                    }
                }
                Ok(()) if started.elapsed() >= LIVED => {
                    backoff.succeeded();
                    continue;
                }
                Ok(()) => {}
            }
            sleep(backoff.failed()).await;
        }
    }

    /// Lists if there is no version to go on from, then watches until the watch ends.
    async fn turn(&self, version: &mut Option<String>, events: &mpsc::Sender<Event<K>>) -> Result<(), Stop> {
        let from = match version.take() {
            Some(from) => from,
            None => self.list(events).await?,
        };
        self.watch(version.insert(from), events).await
    }

    /// Tells all objects, once all pages are there: a list that breaks off says nothing. Returns its version.
    async fn list(&self, events: &mpsc::Sender<Event<K>>) -> Result<String, Stop> {
        let mut params = ListParams {
            field_selector: self.fields.clone(),
            limit: Some(PAGE),
            ..ListParams::default()
        };
        let mut objects = Vec::new();
        loop {
            let page = self.answer(self.api.list(&params), "list").await?;
            objects.extend(page.items);
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                events.send(Event::All(objects)).await?;
                return Ok(page.metadata.resource_version.unwrap_or_default());
            }
        }
    }

    /// Tells changes and keeps `version` at the newest one. A connection that breaks is the end of the watch; whether
    /// it is a problem is seen when the next one starts.
    async fn watch(&self, version: &mut String, events: &mpsc::Sender<Event<K>>) -> Result<(), Stop> {
        let params = WatchParams {
            field_selector: self.fields.clone(),
            timeout: Some(WATCH_SECONDS),
            ..WatchParams::default()
        };
        let mut stream = std::pin::pin!(self.answer(self.api.watch(&params, version), "watch").await?);
        events.send(Event::Problem(None)).await?;
        while let Ok(Some(event)) = timeout(WATCH_DEAD, stream.next()).await {
            match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    advance(version, &object);
                    events.send(Event::There(object)).await?;
                }
                Ok(WatchEvent::Deleted(object)) => {
                    advance(version, &object);
                    events.send(Event::Gone(object)).await?;
                }
                Ok(WatchEvent::Bookmark(bookmark)) => *version = bookmark.metadata.resource_version,
                Ok(WatchEvent::Error(status)) => {
                    return Err(Stop::Problem(Problem::of_status(&status, "watch", self.resource)));
                }
                Err(error) => {
                    debug!(resource = self.resource, %error, "watch broke off");
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Waits for an answer, but not for ever.
    async fn answer<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
        verb: &'static str,
    ) -> Result<T, Stop> {
        match timeout(ANSWER, request).await {
            Ok(answer) => answer.map_err(|error| Stop::Problem(Problem::of(&error, verb, self.resource))),
            Err(_) => {
                let cause = format!(
                    "no answer to {verb} {} within {} s",
                    self.resource,
                    ANSWER.as_secs()
                );
                Err(Stop::Problem(Problem::Unreachable { cause }))
            }
        }
    }
}

fn advance<K: Resource>(version: &mut String, object: &K) {
    if let Some(newer) = object.resource_version() {
        *version = newer;
    }
}
