//! The node agent `meshgate`. In reading order:

pub mod netns;
pub mod ports;
pub mod zds;
