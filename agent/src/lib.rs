//! The node agent `meshgate`. In reading order:

pub mod sys;
pub mod netns;
pub mod ports;
pub mod zds;
pub mod datapath;
