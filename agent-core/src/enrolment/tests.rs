//! Each rule of enrolment, each precedence between rules, and each annotation, one named row each.

use super::*;
use crate::labels::DATAPLANE_MODE;
use crate::samples::{namespace, pod};

/// What a row changes of a pod that no rule excludes, in a namespace without labels.
type Change = fn(&mut World);

struct World {
    pod: PodFacts,
    namespace: Option<NamespaceFacts>,
    rules: Rules,
}

impl World {
    fn after(changes: &[Change]) -> Self {
        let mut world = Self {
            pod: pod("a"),
            namespace: Some(namespace("default")),
            rules: Rules::default(),
        };
        for change in changes {
            change(&mut world);
        }
        world
    }

    fn decide(&self) -> Decision {
        decide(&self.pod, self.namespace.as_ref(), &self.rules)
    }

    fn reason(&self) -> Option<Reason> {
        match self.decide() {
            Decision::Outside(reason) => Some(reason),
            Decision::Capture(_) => None,
        }
    }

    fn label_pod(&mut self, value: &str) {
        self.pod
            .labels
            .insert(DATAPLANE_MODE.to_owned(), value.to_owned());
    }

    fn label_namespace(&mut self, value: &str) {
        let labels = &mut self.namespace.as_mut().unwrap().labels;
        labels.insert(DATAPLANE_MODE.to_owned(), value.to_owned());
    }
}

const POD_AMBIENT: Change = |world| world.label_pod("ambient");
const POD_NONE: Change = |world| world.label_pod("none");
const POD_OTHER: Change = |world| world.label_pod("sidecar");
const NAMESPACE_AMBIENT: Change = |world| world.label_namespace("ambient");
const NAMESPACE_NONE: Change = |world| world.label_namespace("none");
const HOST_NETWORK: Change = |world| world.pod.host_network = true;
const EXCLUDED: Change = |world| world.rules.excluded_namespaces.extend(["default".to_owned()]);
const SIDECAR: Change = |world| {
    world
        .pod
        .annotations
        .insert(SIDECAR_STATUS.to_owned(), String::new());
};
const TERMINAL: Change = |world| world.pod.phase = Phase::Terminal;
const PENDING: Change = |world| world.pod.phase = Phase::Pending;
const NO_NAMESPACE: Change = |world| world.namespace = None;
const NO_ADDRESS: Change = |world| world.pod.ips.clear();
const NO_SELECTORS: Change = |world| world.rules.selectors.clear();
const EMPTY_SELECTOR: Change = |world| world.rules.selectors = vec![EnablementSelector::default()];

#[test]
fn each_rule_decides_as_in_istio() {
    use Reason::{
        ExcludedNamespace, HasSidecar, HostNetwork, NamespaceUnknown, NoAddress, NoSelectorMatches, Terminal,
    };
    let rows: &[(&str, &[Change], Option<Reason>)] = &[
        (
            "a pod without labels is not captured",
            &[],
            Some(NoSelectorMatches),
        ),
        ("the pod's label captures it", &[POD_AMBIENT], None),
        (
            "the namespace's label captures its pods",
            &[NAMESPACE_AMBIENT],
            None,
        ),
        (
            "the pod's ambient wins over the namespace's none",
            &[POD_AMBIENT, NAMESPACE_NONE],
            None,
        ),
        (
            "the pod's none wins over the namespace's ambient",
            &[POD_NONE, NAMESPACE_AMBIENT],
            Some(NoSelectorMatches),
        ),
        (
            "another value on the pod does not undo the namespace",
            &[POD_OTHER, NAMESPACE_AMBIENT],
            None,
        ),
        (
            "another value on the pod captures nothing",
            &[POD_OTHER],
            Some(NoSelectorMatches),
        ),
        (
            "the namespace's none captures nothing",
            &[NAMESPACE_NONE],
            Some(NoSelectorMatches),
        ),
        (
            "no selectors capture nothing",
            &[POD_AMBIENT, NO_SELECTORS],
            Some(NoSelectorMatches),
        ),
        (
            "an empty selector captures everything",
            &[POD_NONE, NAMESPACE_NONE, EMPTY_SELECTOR],
            None,
        ),
        ("a pod that starts is captured", &[POD_AMBIENT, PENDING], None),
        (
            "a pod on the node's network is never captured",
            &[POD_AMBIENT, HOST_NETWORK],
            Some(HostNetwork),
        ),
        (
            "an excluded namespace is never captured",
            &[POD_AMBIENT, EXCLUDED],
            Some(ExcludedNamespace),
        ),
        (
            "a sidecar of any status captures by itself",
            &[POD_AMBIENT, SIDECAR],
            Some(HasSidecar),
        ),
        (
            "a pod that has ended is not captured",
            &[POD_AMBIENT, TERMINAL],
            Some(Terminal),
        ),
        (
            "without its namespace nothing is decided",
            &[POD_AMBIENT, NO_NAMESPACE],
            Some(NamespaceUnknown),
        ),
        (
            "without its namespace not even an empty selector matches",
            &[EMPTY_SELECTOR, NO_NAMESPACE],
            Some(NamespaceUnknown),
        ),
        (
            "a pod without an address waits",
            &[POD_AMBIENT, NO_ADDRESS],
            Some(NoAddress),
        ),
        (
            "host network before excluded namespace",
            &[HOST_NETWORK, EXCLUDED],
            Some(HostNetwork),
        ),
        (
            "excluded namespace before sidecar",
            &[EXCLUDED, SIDECAR],
            Some(ExcludedNamespace),
        ),
        ("sidecar before phase", &[SIDECAR, TERMINAL], Some(HasSidecar)),
        (
            "phase before unknown namespace",
            &[TERMINAL, NO_NAMESPACE],
            Some(Terminal),
        ),
        ("phase before selectors", &[TERMINAL], Some(Terminal)),
        (
            "unknown namespace before missing address",
            &[NO_NAMESPACE, NO_ADDRESS],
            Some(NamespaceUnknown),
        ),
        (
            "selectors before missing address",
            &[NO_ADDRESS],
            Some(NoSelectorMatches),
        ),
        (
            "all at once: host network",
            &[
                HOST_NETWORK,
                EXCLUDED,
                SIDECAR,
                TERMINAL,
                NO_NAMESPACE,
                NO_ADDRESS,
            ],
            Some(HostNetwork),
        ),
    ];
    for (name, changes, expected) in rows {
        assert_eq!(World::after(changes).reason(), *expected, "{name}");
    }
}

fn options_with(annotations: &[(&str, &str)], node_dns: bool) -> Options {
    let mut world = World::after(&[POD_AMBIENT]);
    world.rules.dns_capture = node_dns;
    world.pod.annotations = annotations
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    match world.decide() {
        Decision::Capture(options) => options,
        Decision::Outside(reason) => panic!("{reason}"),
    }
}

#[test]
fn a_pod_without_annotations_is_captured_as_the_node_says() {
    for node_dns in [false, true] {
        let expected = Options {
            inbound: true,
            dns_capture: node_dns,
            virtual_interfaces: Vec::new(),
            wire: false,
            warnings: Vec::new(),
        };
        assert_eq!(options_with(&[], node_dns), expected);
    }
}

#[test]
fn booleans_are_those_of_go_and_others_are_ignored_with_a_warning() {
    for (values, expected) in [
        (["1", "t", "T", "true", "True", "TRUE"], Some(true)),
        (["0", "f", "F", "false", "False", "FALSE"], Some(false)),
        (["", "yes", "tRUE", " true", "2", "on"], None),
    ] {
        for value in values {
            assert_eq!(parse_bool(value), expected, "{value:?}");
        }
    }
    let options = options_with(&[(BYPASS_INBOUND_CAPTURE, "yes"), (DNS_CAPTURE, "on")], true);
    assert!(options.inbound && options.dns_capture);
    let texts: Vec<_> = options
        .warnings
        .iter()
        .map(|bad| format!("{}: {}", bad.object, bad.problem))
        .collect();
    assert_eq!(
        texts,
        [
            "pod default/a: annotation ambient.istio.io/bypass-inbound-capture is ignored: \"yes\" is not a boolean",
            "pod default/a: annotation ambient.istio.io/dns-capture is ignored: \"on\" is not a boolean",
        ]
    );
}

#[test]
fn each_annotation_changes_its_option() {
    assert!(!options_with(&[(BYPASS_INBOUND_CAPTURE, "true")], true).inbound);
    assert!(options_with(&[(BYPASS_INBOUND_CAPTURE, "false")], true).inbound);
    assert!(options_with(&[(DNS_CAPTURE, "t")], false).dns_capture);
    assert!(!options_with(&[(DNS_CAPTURE, "F")], true).dns_capture);
    let listed = options_with(&[(REROUTE_VIRTUAL_INTERFACES, " k6t-eth0,, docker0 ,")], true);
    assert_eq!(listed.virtual_interfaces, ["k6t-eth0", "docker0"]);
    assert!(options_with(&[(CLIENT_ADDRESS, "wire")], true).wire);
    assert!(!options_with(&[(CLIENT_ADDRESS, "socket")], true).wire);
}

#[test]
fn an_unknown_client_address_mode_is_the_default_with_a_warning() {
    let options = options_with(&[(CLIENT_ADDRESS, "Wire")], true);
    assert!(!options.wire);
    assert_eq!(options.warnings.len(), 1);
    assert!(
        options.warnings[0]
            .problem
            .contains("\"Wire\" is neither socket nor wire"),
        "{options:?}"
    );
}

#[test]
fn reasons_have_distinct_names_in_snake_case() {
    let all = [
        Reason::HostNetwork,
        Reason::ExcludedNamespace,
        Reason::HasSidecar,
        Reason::Terminal,
        Reason::NamespaceUnknown,
        Reason::NoSelectorMatches,
        Reason::NoAddress,
    ];
    let names: BTreeSet<_> = all.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(names.len(), all.len());
    assert!(
        names
            .iter()
            .all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
    );
}

#[test]
fn of_a_long_value_that_means_nothing_the_beginning_is_told() {
    let options = options_with(&[(DNS_CAPTURE, &"é".repeat(100_000))], true);
    let problem = &options.warnings[0].problem;
    assert!(
        problem.contains("éé…\" is not a boolean") && problem.len() < 250,
        "{problem}"
    );
}
