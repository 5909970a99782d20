//! The node's CNI configuration, as the installer sees it: which file is to have our plugin, how the plugin is put into
//! it and taken out again. Texts in, texts out. In reading order:

pub mod element;
pub mod document;

pub mod edit;
pub mod listing;
pub mod plan;
pub mod undo;

pub mod kubeconfig;
pub mod throttle;

#[cfg(test)]
mod tests;
