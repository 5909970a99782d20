//! The rules on the configurations in tests/data/cni, and on their like.

mod others;

use std::ffi::{OsStr, OsString};

use serde_json::{Value, json};

use super::edit::{insert, remove};
use super::element::{Element, PluginType};
use super::listing::{File, Folder};
use super::plan::{Goal, Mode, OWNED_FILE, Plan, STANDALONE_FILE, Step};
use super::undo::{Undo, undo};

macro_rules! data {
    ($name:literal) => {
        include_str!(concat!("../../../../tests/data/cni/", $name))
    };
}

const CALICO: &str = data!("calico.conflist");
const BRIDGE: &str = data!("bridge.conf");
const DBNET: &str = data!("dbnet.conflist");
const NO_VERSION: &str = data!("no-version.conflist");

/// No runtime uses these, each with what is wrong.
const BAD: [(&str, &str, &str); 6] = [
    ("a.conf", data!("not-json.conf"), "not a JSON object"),
    ("a.conf", data!("bridge-no-type.conf"), "\"type\" is missing"),
    ("a.conflist", data!("no-name.conflist"), "\"name\" is missing"),
    (
        "a.conflist",
        data!("misspelt-plugins.conflist"),
        "\"plugins\" is missing, or misspelt",
    ),
    ("a.conflist", data!("empty-map.conflist"), "\"name\" is missing"),
    ("a.conflist", data!("empty-list.conflist"), "not a JSON object"),
];

fn element() -> Element {
    Element {
        log_level: "info".to_owned(),
        run_dir: "/var/run/istio-cni".into(),
        excluded_namespaces: vec!["kube-system".to_owned()],
        pod_namespace: "istio-system".to_owned(),
        ..Element::default()
    }
}

fn folder(files: &[(&str, &str)]) -> Folder {
    let file = |(name, text): &(&str, &str)| File {
        name: name.into(),
        text: Ok((*text).to_owned()),
    };
    Folder {
        files: files.iter().map(file).collect(),
        ..Folder::default()
    }
}

fn plan(mode: Mode, files: &[(&str, &str)]) -> Plan {
    let element = element();
    Goal { mode, element }.plan(&folder(files), None)
}

fn chained(file: Option<&str>) -> Mode {
    Mode::Chained {
        file: file.map(OsString::from),
    }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn ours_is_the_last_plugin_and_the_rest_stays_byte_for_byte() {
    for text in [CALICO, DBNET, NO_VERSION] {
        let inserted = insert(text, &element()).unwrap();
        let (before, after) = (parsed(text), parsed(&inserted));
        let plugins = after["plugins"].as_array().unwrap();
        assert_eq!(plugins.last().unwrap(), &element().in_list());
        assert_eq!(
            plugins[..plugins.len() - 1],
            before["plugins"].as_array().unwrap()[..]
        );
        assert_eq!(
            (&after["name"], &after["cniVersion"]),
            (&before["name"], &before["cniVersion"])
        );
        assert_eq!(remove(&inserted).unwrap().as_deref(), Some(text), "after removal");
        assert_eq!(insert(&inserted, &element()).unwrap(), inserted, "twice is once");
    }
}

#[test]
fn one_plugin_becomes_a_list_with_unknown_keys_untouched() {
    let list = parsed(&insert(BRIDGE, &element()).unwrap());
    assert_eq!(list["name"], "k8s-pod-network");
    assert_eq!(list["cniVersion"], "0.3.1");
    assert_eq!(list["plugins"], json!([parsed(BRIDGE), element().in_list()]));
    let single = insert(
        r#"{"cniVersion": "1.0.0", "type": "a", "mtu": 123456789012345678901}"#,
        &element(),
    )
    .unwrap();
    assert!(single.contains("123456789012345678901"), "{single}");
    assert!(
        parsed(&single)["plugins"][0].get("cniVersion").is_none(),
        "a list has one for all"
    );
    let clean = remove(&insert(BRIDGE, &element()).unwrap()).unwrap().unwrap();
    assert_eq!(parsed(&clean)["plugins"], json!([parsed(BRIDGE)]));
}

#[test]
fn an_element_of_either_type_is_replaced_wherever_it_stands() {
    for old in [
        json!({"type": "istio-cni", "kubernetes": {}}),
        json!({"type": "meshgate-cni"}),
    ] {
        for place in 0..=2 {
            let mut list = parsed(CALICO);
            list["plugins"].as_array_mut().unwrap().insert(place, old.clone());
            let inserted = parsed(&insert(&list.to_string(), &element()).unwrap());
            assert_eq!(inserted, parsed(&insert(CALICO, &element()).unwrap()), "{place}");
            let removed = remove(&list.to_string()).unwrap().unwrap();
            assert_eq!(parsed(&removed), parsed(CALICO), "{place}");
        }
    }
}

#[test]
fn what_is_not_understood_is_never_changed() {
    for (name, text, why) in BAD {
        assert!(insert(text, &element()).is_err(), "{text}");
        assert!(remove(text).map_or(true, |none| none.is_none()), "{text}");
        let skipped = plan(chained(None), &[(name, text)]);
        assert!(matches!(skipped.step, Step::Wait(_)), "{text}");
        assert!(
            skipped.skipped[0].why.contains(why),
            "{why}: {:?}",
            skipped.skipped
        );
        let Step::Wait(obstacle) = plan(chained(Some(name)), &[(name, text)]).step else {
            panic!("{text}: written although named");
        };
        assert!(obstacle.problem.contains("it was left as it is"), "{obstacle:?}");
        assert!(undo(&folder(&[(name, text)]), &[]).is_empty(), "{text}");
    }
}

#[test]
fn the_first_valid_file_is_chosen_and_a_missing_one_waited_for() {
    type Case<'a> = (
        &'a str,
        Option<&'a str>,
        &'a [(&'a str, &'a str)],
        Option<&'a str>,
    );
    let cases: [Case<'_>; 11] = [
        ("empty", None, &[], None),
        ("other extension", None, &[("a.json", CALICO)], None),
        (
            "alphabetical",
            None,
            &[("02-b.conflist", DBNET), ("01-a.conflist", CALICO)],
            Some("01-a.conflist"),
        ),
        (
            "conf",
            None,
            &[("00.conf", BRIDGE), ("01.conflist", CALICO)],
            Some("00.conflist"),
        ),
        (
            "bad first",
            None,
            &[("00.conf", data!("not-json.conf")), ("01.conflist", CALICO)],
            Some("01.conflist"),
        ),
        (
            "two bad ones",
            None,
            &[
                ("00.conflist", data!("no-name.conflist")),
                ("01.conflist", data!("misspelt-plugins.conflist")),
                ("02.conflist", DBNET),
            ],
            Some("02.conflist"),
        ),
        (
            "named",
            Some("02.conflist"),
            &[("01.conflist", CALICO), ("02.conflist", DBNET)],
            Some("02.conflist"),
        ),
        (
            "named conf, is a list",
            Some("00.conf"),
            &[("00.conflist", CALICO)],
            Some("00.conflist"),
        ),
        (
            "named list, is a conf",
            Some("00.conflist"),
            &[("00.conf", BRIDGE)],
            Some("00.conflist"),
        ),
        (
            "named, missing",
            Some("00.conflist"),
            &[("01.conflist", CALICO)],
            None,
        ),
        (
            "named, other extension",
            Some("undetectable.file"),
            &[("undetectable.file", CALICO)],
            Some("undetectable.file"),
        ),
    ];
    for (name, wanted, files, expected) in cases {
        let written = match plan(chained(wanted), files).step {
            Step::Write { file, .. } => Some(file),
            Step::Convert { into, .. } => Some(into),
            Step::Wait(_) => None,
            Step::Keep { .. } => panic!("{name}"),
        };
        assert_eq!(written.as_deref(), expected.map(OsStr::new), "{name}");
    }
}

#[test]
fn a_file_with_our_plugin_stays_as_it_is() {
    let with_ours = insert(CALICO, &element()).unwrap();
    let goal = Goal {
        mode: chained(None),
        element: element(),
    };
    let files = folder(&[("10.conflist", &with_ours)]);
    assert!(matches!(goal.plan(&files, None).step, Step::Keep { .. }));
    let stripped = folder(&[("10.conflist", CALICO)]);
    assert!(
        matches!(
            goal.plan(&stripped, Some(OsStr::new("10.conflist"))).step,
            Step::Write { .. }
        ),
        "repaired"
    );
    let changed = Goal {
        element: Element {
            log_level: "debug".to_owned(),
            ..element()
        },
        ..goal
    };
    assert!(
        matches!(changed.plan(&files, None).step, Step::Write { .. }),
        "other settings are brought in"
    );
}

#[test]
fn the_owned_file_is_a_copy_of_the_primary_one_with_ours() {
    let owned = |primary: Option<&str>, file: &str| Mode::Owned {
        primary: primary.map(OsString::from),
        file: file.into(),
    };
    for (primary, file) in [
        (None, OWNED_FILE),
        (Some("10.conflist"), "01-istio-conf.conflist"),
    ] {
        let Step::Write {
            file: written,
            base,
            text,
        } = plan(owned(primary, file), &[("10.conflist", CALICO)]).step
        else {
            panic!("{file}");
        };
        assert_eq!((written.as_os_str(), base), (OsStr::new(file), None));
        assert_eq!(text, insert(CALICO, &element()).unwrap());
        let both = [("10.conflist", CALICO), (file, text.as_str())];
        assert!(
            matches!(plan(owned(primary, file), &both).step, Step::Keep { .. }),
            "{file}"
        );
    }
    let alone = plan(
        owned(None, OWNED_FILE),
        &[(OWNED_FILE, &insert(CALICO, &element()).unwrap())],
    );
    assert!(
        matches!(alone.step, Step::Wait(_)),
        "the primary one is waited for"
    );
    let before = plan(
        owned(None, OWNED_FILE),
        &[("01.conflist", DBNET), ("10.conflist", CALICO)],
    );
    assert_eq!(before.preempted_by.as_deref(), Some(OsStr::new("01.conflist")));
}

#[test]
fn a_file_of_our_own_is_one_plugin_and_takes_nobody_elses_place() {
    let alone = |file: &str| Mode::Standalone { file: file.into() };
    let Step::Write { text, .. } = plan(alone(STANDALONE_FILE), &[("10.conflist", CALICO)]).step else {
        panic!("not written");
    };
    assert_eq!(parsed(&text)["type"], "meshgate-cni");
    assert_eq!(parsed(&text)["name"], "istio-cni");
    assert_eq!(parsed(&text)["cniVersion"], "0.3.1");
    assert!(
        text.ends_with("}\n") && text.starts_with("{\n  \"cniVersion\""),
        "{text}"
    );
    let kept = [(STANDALONE_FILE, text.as_str())];
    assert!(matches!(
        plan(alone(STANDALONE_FILE), &kept).step,
        Step::Keep { .. }
    ));
    assert!(
        matches!(
            plan(alone("bridge.conf"), &[("bridge.conf", BRIDGE)]).step,
            Step::Wait(_)
        ),
        "another's"
    );
}

#[test]
fn istios_plugin_finds_its_own_keys_under_its_own_type() {
    let istio = Element {
        plugin: PluginType::Istio,
        ..element()
    }
    .in_list();
    let keys = [
        "ambient_enabled",
        "enablement_selectors",
        "native_nftables",
        "enable_ambient_detection_retry",
    ];
    assert_eq!(
        (&istio["type"], &istio["ambient_enabled"]),
        (&json!("istio-cni"), &json!(true))
    );
    for key in keys {
        assert!(istio.get(key).is_some(), "{key}");
        assert!(
            element().in_list().get(key).is_none(),
            "{key} has no meaning to ours"
        );
    }
}

#[test]
fn removal_takes_our_files_away_and_our_plugin_out_of_others() {
    let with_ours = insert(CALICO, &element()).unwrap();
    let files = folder(&[
        ("10.conflist", &with_ours),
        (OWNED_FILE, &with_ours),
        (STANDALONE_FILE, &element().alone_text()),
        ("20.conflist", DBNET),
    ]);
    let undos = undo(&files, &[OsStr::new(OWNED_FILE)]);
    let of = |name: &str| {
        undos
            .iter()
            .find(|undo: &&Undo| undo.file == name)
            .map(|undo| undo.text.clone())
    };
    assert_eq!(of("10.conflist"), Some(Some(CALICO.to_owned())));
    assert_eq!(
        (of(OWNED_FILE), of(STANDALONE_FILE), of("20.conflist")),
        (Some(None), Some(None), None)
    );
}
