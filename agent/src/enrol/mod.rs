//! Enrolment: one worker that turns wishes into steps at the kernel, the proxy and the API server, each pod on its own
//! and in order. In reading order:

mod queue;

mod pod;
mod report;

mod apply;
mod worker;

mod handle;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

pub use apply::Ports;
pub use handle::{Admission, AdmissionError, Handle, Stopped};
pub use report::{Report, Reports};
pub use worker::Enrolment;
