//! The kernel side: programs, maps, links and their pins. The only module that knows aya. In reading order:

pub mod plan;
pub mod pins;
pub mod program_log;
pub mod object;
mod cgroups;
pub mod links;
pub mod tables;
pub mod rows;
pub mod orphans;
pub mod listeners;
pub mod wire;
pub mod settings;
pub mod namespaces;
mod clearing;
pub mod store;
pub mod kernel;
pub mod state;
pub mod usage;
pub mod features;
pub mod last;
pub mod remnants;
pub mod previous;
pub mod versions;
