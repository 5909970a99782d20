//! ZDS, the protocol by which ztunnel learns which pods of its node to serve: the agent listens on a Unix socket,
//! proxies connect, and each gets a full snapshot and then the news. In reading order:

mod wire;

mod seqpacket;

mod pace;
mod peer;

mod call;
mod status;

mod registry;
mod task;

mod shared;

mod connection;
mod server;

mod proxy;

#[cfg(test)]
mod tests;

pub use pace::Pace;
pub use server::Zds;
pub use shared::{Config, OnConnect};
pub use status::{ConnectionStatus, Event, Generation, Stats};
