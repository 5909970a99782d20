//! Files of others that keep runtimes from ours.

use super::*;

#[test]
fn a_file_before_ours_is_told() {
    let files = [("01.conflist", CALICO), ("02.conflist", DBNET)];
    let told = plan(chained(Some("02.conflist")), &files).preempted_by;
    assert_eq!(told.as_deref(), Some(OsStr::new("01.conflist")));
    assert_eq!(plan(chained(Some("01.conflist")), &files).preempted_by, None);
    let with_ours = insert(CALICO, &element()).unwrap();
    let multus = r#"{"cniVersion": "1.0.0", "name": "all", "type": "multus-shim", "clusterNetwork": "/etc/02.conflist"}"#;
    for leads_to_ours in [("01.conflist", &*with_ours), ("01.conf", multus)] {
        let files = [leads_to_ours, ("02.conflist", DBNET)];
        let told = plan(chained(Some("02.conflist")), &files).preempted_by;
        assert_eq!(told, None, "{leads_to_ours:?}");
    }
}

#[test]
fn a_file_that_a_runtime_may_use_and_we_may_not_is_never_passed_over() {
    let list = |x: &str| format!(r#"{{"name": "n", "x": {x}, "plugins": [{{"type": "a"}}]}}"#);
    let deep = list(&("[".repeat(200) + &"]".repeat(200)));
    for (text, why) in [
        (
            r#"{"name": "n", "plugins": [{"type": "a"}], "plugins": [{"type": "b"}]}"#,
            "\"plugins\" stands there twice",
        ),
        (&deep, "\"x\" recursion limit"),
        (&list(r#""\ud800""#), "\"x\" unexpected end of hex escape"),
    ] {
        let files = [("01.conflist", text), ("02.conflist", CALICO)];
        let Step::Wait(obstacle) = plan(chained(None), &files).step else {
            panic!("{text}");
        };
        assert_eq!(obstacle.file.as_deref(), Some(OsStr::new("01.conflist")));
        assert!(obstacle.problem.contains(why), "{obstacle:?}");
        let behind = [("01.conflist", CALICO), ("02.conflist", text)];
        assert!(matches!(plan(chained(None), &behind).step, Step::Write { .. }));
    }
    let mut files = folder(&[("02.conflist", CALICO)]);
    files.files.push(File {
        name: "01.conflist".into(),
        text: Err("it is not UTF-8".to_owned()),
    });
    let goal = Goal {
        mode: chained(None),
        element: element(),
    };
    assert!(matches!(goal.plan(&files, None).step, Step::Wait(_)));
}
