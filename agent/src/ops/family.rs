//! Metrics whose values are read when somebody asks: a name, what it means, and samples with labels.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Sort of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only grows; `_total` is added to its name.
    Counter,
}

/// A metric and its samples.
#[derive(Clone, Debug)]
pub struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    samples: Vec<Sample>,
}

/// Labels and value.
#[derive(Clone, Debug)]
struct Sample {
    labels: Vec<(&'static str, String)>,
    value: f64,
}

impl Family {
    /// A metric without samples; a counter's name without its `_total`.
    #[must_use]
    pub fn new(kind: Kind, name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            help,
            kind,
            samples: Vec::new(),
        }
    }

    /// A gauge with one sample and no labels.
    #[must_use]
    pub fn gauge(name: &'static str, help: &'static str, value: f64) -> Self {
        Self::new(Kind::Gauge, name, help).with(&[], value)
    }

    /// A counter with one sample and no labels.
    #[must_use]
    pub fn counter(name: &'static str, help: &'static str, value: f64) -> Self {
        Self::new(Kind::Counter, name, help).with(&[], value)
    }

    /// Adds a sample.
    #[must_use]
    pub fn with(mut self, labels: &[(&'static str, &str)], value: f64) -> Self {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned()));
        self.samples.push(Sample {
            labels: labels.collect(),
            value,
        });
        self
    }

    /// Adds a sample for each of these values of one label.
    #[must_use]
    pub fn by<'a>(self, label: &'static str, values: impl IntoIterator<Item = (&'a str, f64)>) -> Self {
        values
            .into_iter()
            .fold(self, |family, (name, value)| family.with(&[(label, name)], value))
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Gauge => MetricType::Gauge,
            Kind::Counter => MetricType::Counter,
        };
        let mut metric = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        for Sample { labels, value } in &self.samples {
            let mut sample = metric.encode_family(labels)?;
            match self.kind {
                Kind::Gauge => sample.encode_gauge(value)?,
                Kind::Counter => sample.encode_counter::<NoLabelSet, f64, f64>(value, None)?,
            }
        }
        Ok(())
    }
}
