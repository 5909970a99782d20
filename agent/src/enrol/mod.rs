//! Enrolment: one worker that turns wishes into steps at the kernel, the proxy and the API server, each pod on its own
//! and in order. In reading order:

mod queue;
mod observed;

mod pod;
mod report;

mod apply;
mod worker;

mod handle;
mod admission;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

pub use admission::{Admission, AdmissionError, Patience, Sandbox};
pub use apply::Ports;
pub use handle::{Handle, Repairs, Stopped};
pub use report::{Report, Reports};
pub use worker::Enrolment;
