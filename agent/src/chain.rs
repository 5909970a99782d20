//! Errors in one line: each with its causes, none said twice.

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.lines().take(4).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    #[test]
    fn a_cause_that_is_in_the_text_already_is_not_repeated() {
        let inner = Layer {
            text: "no such file",
            source: None,
        };
        let outer = Layer {
            text: "reading x: no such file",
            source: Some(Box::new(inner)),
        };
        assert_eq!(chain(&outer), "reading x: no such file");
        let inner = Layer {
            text: "denied",
            source: None,
        };
        let outer = Layer {
            text: "reading x",
            source: Some(Box::new(inner)),
        };
        assert_eq!(chain(&outer), "reading x: denied");
    }
}
