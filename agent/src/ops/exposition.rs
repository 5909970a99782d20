//! All metrics as text, in OpenMetrics or in Prometheus' own format, whichever the reader asks for.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text, text};
use prometheus_client::registry::Registry;

use super::family::Family;
use super::metrics::Metrics;
use super::process;

/// Media type of OpenMetrics' text.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, which every reader understands.
    Prometheus,
}

impl Format {
    /// What a reader with this `Accept` header takes.
    #[must_use]
    pub fn accepted(header: &str) -> Self {
        if header.contains("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Its media type.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => OPENMETRICS,
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// All metrics of the agent. Clones are the same.
#[derive(Clone, Debug)]
pub struct Exposition(Arc<Registry>);

/// Reads what is read at each scrape.
struct Scraped<F>(F);

impl<F> fmt::Debug for Scraped<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scraped")
    }
}

impl<F: Fn() -> Vec<Family> + Send + Sync + 'static> Collector for Scraped<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0)()
            .iter()
            .chain(&process::families())
            .try_for_each(|family| family.encode(&mut encoder))
    }
}

impl Exposition {
    /// The counters, and who else is asked at each scrape. `scrape` may read maps and files: it is called where that
    /// holds nobody up.
    #[must_use]
    pub fn new(
        scrape: impl FnOnce(&Metrics) -> Box<dyn Fn() -> Vec<Family> + Send + Sync>,
    ) -> (Self, Metrics) {
        let mut registry = Registry::default();
        let metrics = Metrics::registered(&mut registry);
        registry.register_collector(Box::new(Scraped(scrape(&metrics))));
        (Self(Arc::new(registry)), metrics)
    }

    /// The text.
    ///
    /// # Errors
    /// When it cannot be formatted.
    pub fn text(&self, format: Format) -> Result<String, fmt::Error> {
        let mut text = String::new();
        match format {
            Format::OpenMetrics => text::encode(&mut text, &self.0)?,
            Format::Prometheus => prometheus_text::encode(&mut text, &self.0)?,
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::metrics::Admitted;
    use super::*;
    use crate::ports::{Observer as _, Reconciled};

    fn exposition() -> Exposition {
        let pods =
            || Family::new(super::super::Kind::Gauge, "meshgate_pods", "Pods").by("state", [("a\"b", 2.0)]);
        let (exposition, metrics) = Exposition::new(move |_| Box::new(move || vec![pods()]));
        metrics.reconciled(Reconciled::Add);
        metrics.enrolled(Duration::from_millis(3));
        metrics.admitted(Admitted::Captured, Duration::from_millis(3));
        exposition
    }

    #[test]
    fn names_are_istios_in_both_formats() {
        let exposition = exposition();
        for format in [Format::OpenMetrics, Format::Prometheus] {
            let text = exposition.text(format).unwrap();
            for line in [
                "nodeagent_reconcile_events_total{type=\"add\"} 1",
                "nodeagent_reconcile_events_total{type=\"delete\"} 0",
                "meshgate_enrolment_seconds_bucket{le=\"0.005\"} 1",
                "meshgate_cni_admission_seconds_count{result=\"captured\"} 1",
                "meshgate_pods{state=\"a\\\"b\"} 2.0",
            ] {
                assert!(
                    text.lines().any(|found| found == line),
                    "{format:?}: {line} in\n{text}"
                );
            }
            assert!(text.contains("process_cpu_seconds_total "), "{text}");
            assert_eq!(text.ends_with("# EOF\n"), format == Format::OpenMetrics);
        }
    }

    #[test]
    fn the_reader_chooses_the_format() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        assert_eq!(Format::accepted("*/*"), Format::Prometheus);
        assert_eq!(Format::accepted(""), Format::Prometheus);
    }
}
