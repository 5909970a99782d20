//! What an operator looks at while the agent runs: health, metrics, the log's level. In reading order:

mod readiness;

mod family;
mod metrics;
mod process;
mod exposition;

mod http;
mod endpoints;

mod log;
mod control;

pub use control::{Control, ControlError, ask};
pub use endpoints::{EndpointError, Endpoints};
pub use exposition::{Exposition, Format};
pub use family::{Family, Kind};
pub use log::Log;
pub use metrics::{Admitted, Metrics};
pub use readiness::{Condition, Readiness, State};
