//! A client of the container runtime interface (CRI v1), the protocol by which kubelet has pods made.

mod messages;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use prost::Message;
use tokio::runtime::{self, Runtime};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

pub use messages::*;

/// How long a call may take: more than the CNI plugins wait for an agent, less than kubelet's two to four minutes.
const LIMIT: Duration = Duration::from_secs(60);

/// A request of the interface.
pub trait Call: Message + Sized + 'static {
    /// Its method.
    const PATH: &'static str;
    /// What is answered.
    type Answer: Message + Default + 'static;
}

/// A client of a runtime; each call is a connection of its own, so that it does not matter when the runtime restarts.
#[derive(Debug)]
pub struct Cri {
    runtime: Runtime,
    endpoint: Endpoint,
}

impl Cri {
    /// A client of the runtime that listens on this socket, now or later.
    ///
    /// # Errors
    /// When the path is not one.
    pub fn new(socket: &Path) -> Result<Self> {
        Ok(Self {
            runtime: runtime::Builder::new_current_thread().enable_all().build()?,
            endpoint: Endpoint::try_from(format!("unix://{}", socket.display()))?,
        })
    }

    /// Makes a call.
    ///
    /// # Errors
    /// What the runtime answers, or that it does not.
    pub fn call<C: Call>(&self, call: C) -> Result<C::Answer, Status> {
        self.runtime.block_on(self.send(call))
    }

    async fn send<C: Call>(&self, call: C) -> Result<C::Answer, Status> {
        let unavailable = |error: tonic::transport::Error| Status::unavailable(error.to_string());
        let mut grpc = Grpc::new(self.endpoint.connect().await.map_err(unavailable)?);
        grpc.ready().await.map_err(unavailable)?;
        let mut request = Request::new(call);
        request.set_timeout(LIMIT);
        let codec = ProstCodec::<C, C::Answer>::default();
        let answer = grpc
            .unary(request, PathAndQuery::from_static(C::PATH), codec)
            .await?;
        Ok(answer.into_inner())
    }
}
