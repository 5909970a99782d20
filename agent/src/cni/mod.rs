//! The agent's side of the CNI plugin: the socket on which it hears of each new sandbox. In reading order:

mod sandbox;

mod admissions;
mod server;

pub use admissions::{Admissions, Refusal};
pub use agent_core::cni::event::Event;
pub use server::PluginSocket;
