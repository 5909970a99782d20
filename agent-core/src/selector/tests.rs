//! What selectors match, how they are read, and which are refused.

use super::*;

fn labels(pairs: &[(&str, &str)]) -> StringMap {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn parse(json: &str) -> Result<Vec<EnablementSelector>, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

fn requirement(operator: Operator, values: &[&str]) -> Requirement {
    Requirement {
        key: "tier".to_owned(),
        operator,
        values: values.iter().map(|&value| value.to_owned()).collect(),
    }
}

#[test]
fn each_operator_has_the_meaning_of_kubernetes() {
    use Operator::{DoesNotExist, Exists, In, NotIn};
    let absent = &[("app", "web")][..];
    let front = &[("tier", "front")][..];
    let empty = &[("tier", "")][..];
    let rows = [
        (In, &["front", "back"][..], front, true),
        (In, &["back"], front, false),
        (In, &["front"], absent, false),
        (In, &[""], absent, false),
        (In, &[""], empty, true),
        (NotIn, &["back"], front, true),
        (NotIn, &["back", "front"], front, false),
        (NotIn, &["front"], absent, true),
        (Exists, &[], front, true),
        (Exists, &[], empty, true),
        (Exists, &[], absent, false),
        (DoesNotExist, &[], front, false),
        (DoesNotExist, &[], empty, false),
        (DoesNotExist, &[], absent, true),
    ];
    for (operator, values, on, expected) in rows {
        let holds = requirement(operator, values).holds(&labels(on));
        assert_eq!(holds, expected, "{operator} {values:?} on {on:?}");
    }
}

#[test]
fn all_requirements_of_a_selector_must_hold_and_none_is_everything() {
    let selector = LabelSelector {
        match_labels: labels(&[("app", "web"), ("env", "prod")]),
        match_expressions: vec![
            requirement(Operator::Exists, &[]),
            requirement(Operator::NotIn, &["back"]),
        ],
    };
    assert!(selector.matches(&labels(&[
        ("app", "web"),
        ("env", "prod"),
        ("tier", "front"),
        ("x", "y")
    ])));
    assert!(!selector.matches(&labels(&[("app", "web"), ("tier", "front")])));
    assert!(!selector.matches(&labels(&[("app", "web"), ("env", "test"), ("tier", "front")])));
    assert!(!selector.matches(&labels(&[("app", "web"), ("env", "prod"), ("tier", "back")])));
    assert!(!selector.matches(&labels(&[("app", "web"), ("env", "prod")])));
    assert!(LabelSelector::default().matches(&StringMap::new()));
    assert!(LabelSelector::default().matches(&labels(&[("app", "web")])));
}

#[test]
fn the_defaults_are_those_of_the_chart_of_istio() {
    let chart = r#"[
        {"podSelector": {"matchLabels": {"istio.io/dataplane-mode": "ambient"}}},
        {"podSelector": {"matchExpressions":
            [{"key": "istio.io/dataplane-mode", "operator": "NotIn", "values": ["none"]}]},
         "namespaceSelector": {"matchLabels": {"istio.io/dataplane-mode": "ambient"}}}]"#;
    assert_eq!(parse(chart).unwrap(), istio_defaults());
    assert_eq!(validate(&istio_defaults()), Ok(()));
}

#[test]
fn what_is_written_is_read_again() {
    let written = serde_json::to_string(&istio_defaults()).unwrap();
    assert!(
        written.contains("podSelector") && written.contains("matchExpressions"),
        "{written}"
    );
    assert_eq!(parse(&written).unwrap(), istio_defaults());
}

#[test]
fn null_and_absent_fields_are_empty() {
    let everything = [EnablementSelector::default()];
    for json in [
        "[{}]",
        r#"[{"podSelector": null, "namespaceSelector": {}}]"#,
        r#"[{"podSelector": {"matchLabels": null, "matchExpressions": null}}]"#,
    ] {
        assert_eq!(parse(json).unwrap(), everything, "{json}");
    }
}

#[test]
fn mistakes_are_told_and_not_taken_as_empty() {
    let rows = [
        (
            r#"[{"podSelector": {"matchExpressions": [{"key": "a", "operator": "notin"}]}}]"#,
            "unknown operator \"notin\": use In, NotIn, Exists or DoesNotExist",
        ),
        (
            r#"[{"namespaceSelctor": {}}]"#,
            "unknown field `namespaceSelctor`",
        ),
        (
            r#"[{"podSelector": {"matchLabel": {}}}]"#,
            "unknown field `matchLabel`",
        ),
        (
            r#"[{"podSelector": {"matchExpressions": [{"key": "a"}]}}]"#,
            "missing field `operator`",
        ),
    ];
    for (json, expected) in rows {
        let error = parse(json).unwrap_err();
        assert!(error.contains(expected), "{json}: {error}");
    }
}

#[test]
fn validation_names_the_item_and_the_field() {
    let long = "a".repeat(64);
    let rows = [
        (
            r#"{"matchExpressions": [{"key": "a", "operator": "In"}]}"#.to_owned(),
            "matchExpressions[0].values: operator In needs at least one value",
        ),
        (
            r#"{"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}"#.to_owned(),
            "matchExpressions[0].values: operator Exists takes no values",
        ),
        (
            r#"{"matchExpressions": [{"key": "-a", "operator": "Exists"}]}"#.to_owned(),
            "matchExpressions[0].key: \"-a\" is no label key",
        ),
        (
            r#"{"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b", "c d"]}]}"#.to_owned(),
            "matchExpressions[0].values[1]: \"c d\" can be no label's value",
        ),
        (
            r#"{"matchLabels": {"Upper.org/a": "b"}}"#.to_owned(),
            "matchLabels[\"Upper.org/a\"]: ",
        ),
        (r#"{"matchLabels": {"": "b"}}"#.to_owned(), "matchLabels[\"\"]: "),
        (
            r#"{"matchLabels": {"a/b/c": "b"}}"#.to_owned(),
            "matchLabels[\"a/b/c\"]: ",
        ),
        (
            format!(r#"{{"matchLabels": {{"a": "{long}"}}}}"#),
            "matchLabels[\"a\"]: ",
        ),
        (
            r#"{"matchLabels": {"a": "b-"}}"#.to_owned(),
            "matchLabels[\"a\"]: ",
        ),
        (
            r#"{"matchLabels": {"-a.org/a": "b"}}"#.to_owned(),
            "matchLabels[\"-a.org/a\"]: ",
        ),
    ];
    for (selector, expected) in rows {
        let json = format!(r#"[{{}}, {{"namespaceSelector": {selector}}}]"#);
        let error = validate(&parse(&json).unwrap()).unwrap_err().to_string();
        let expected = format!("enablement selector: item 1, namespaceSelector.{expected}");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn validation_accepts_what_kubernetes_accepts() {
    for (key, value) in [
        ("a", ""),
        ("a.b/c_D-e.f", "v1.2_x"),
        ("kubernetes.io/metadata.name", "default"),
    ] {
        let selector = EnablementSelector {
            namespace_selector: LabelSelector {
                match_labels: labels(&[(key, value)]),
                match_expressions: Vec::new(),
            },
            ..EnablementSelector::default()
        };
        assert_eq!(validate(&[selector]), Ok(()), "{key}={value}");
    }
}
