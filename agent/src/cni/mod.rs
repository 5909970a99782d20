//! The agent's side of the CNI plugin: the socket on which it hears of each new sandbox, and the one on which it takes
//! the plugin's log. In reading order:

mod sandbox;
mod stats;

mod admissions;

mod http;
mod log_server;
mod server;

pub use admissions::{Admissions, Admitted, Refusal};
pub use agent_core::cni::event::Event;
pub use log_server::LogSocket;
pub use server::PluginSocket;
pub use stats::{Counters, Stats};
