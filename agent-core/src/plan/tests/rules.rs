//! Rules that Istio's agent left in a pod: they go when the pod is captured, and before it is let go.

use super::*;

fn with(rules: Rules, have: Have) -> Have {
    Have { rules, ..have }
}

fn wire() -> Wish {
    wanted_with(|capture| capture.options.wire = true)
}

#[test]
fn rules_go_behind_the_capture_and_before_the_release() {
    let outside = Wish::Outside(Reason::NoSelectorMatches);
    let ended = Wish::Outside(Reason::Terminal);
    let rows = [
        ("captured", with(Rules::Unknown, enrolled()), wanted(), "look"),
        (
            "captured, and rules are there",
            with(Rules::Present, enrolled()),
            wanted(),
            "clear",
        ),
        (
            "the proxy takes a pod that rules capture",
            with(Rules::Present, attached()),
            wanted(),
            "add capture-enabled clear enabled",
        ),
        (
            "not removed: later",
            with(Rules::Failed, enrolled()),
            wanted(),
            "",
        ),
        (
            "still in use: later",
            with(Rules::Draining, enrolled()),
            wanted(),
            "",
        ),
        ("a look again", with(Rules::Due, enrolled()), wanted(), "clear"),
        (
            "not before the capture",
            with(Rules::Present, asking(attached())),
            wanted(),
            "",
        ),
        ("closed", with(Rules::Present, pending()), wanted(), "clear"),
        (
            "un-enrol",
            with(Rules::Draining, enrolled()),
            outside.clone(),
            "clear-all absent release del detach-7",
        ),
        (
            "un-enrol, not removed",
            with(Rules::Failed, enrolled()),
            outside.clone(),
            "",
        ),
        (
            "ended",
            with(Rules::Unknown, enrolled()),
            ended,
            "release del detach-7 absent",
        ),
        (
            "gone",
            with(Rules::Unknown, enrolled()),
            Wish::Gone,
            "release del detach-7",
        ),
        ("a pod that nobody enrolled", found(), outside, ""),
    ];
    for (name, have, wish, expected) in rows {
        assert_eq!(words(&plan(&have, &wish)), expected, "{name}");
    }
}

#[test]
fn rules_hold_a_pod_as_long_as_no_proxy_takes_it() {
    for proxy in [ProxyView::Awaited, ProxyView::Refused] {
        for (rules, expected) in [
            (Rules::Present, ""),
            (Rules::Gone, "capture-closed pending"),
            (Rules::Failed, "capture-closed pending"),
        ] {
            let have = Have {
                carries: Redirection::Enabled,
                proxy,
                rules,
                ..attached()
            };
            assert_eq!(words(&plan(&have, &wanted())), expected, "{proxy:?} {rules:?}");
        }
    }
}

#[test]
fn a_pod_whose_capture_had_only_begun_is_held_by_rules_too() {
    let mut have = adopted_and_sought(false, Redirection::Enabled, Some(HERE));
    let entry = have.entry.as_mut().unwrap();
    (entry.addresses, entry.source4, entry.source6) = (Vec::new(), None, None);
    have.rules = Rules::Present;
    have.proxy = ProxyView::Awaited;
    assert_eq!(words(&plan(&have, &wanted())), "attach-7");
    have.proxy = ProxyView::Retry;
    assert_eq!(
        words(&plan(&have, &wanted())),
        "add attach-7 capture-enabled clear"
    );
}

#[test]
fn a_new_sandbox_has_no_rules_and_another_namespace_may_have() {
    let mut have = found();
    have.apply(&Event::Fresh);
    assert_eq!(
        words(&plan(&have, &wanted())),
        "attach-7 add capture-enabled enabled"
    );
    have.apply(&Event::Sought {
        addresses: &capture().addresses,
        netns: Some(THERE),
    });
    assert_eq!(have.rules, Rules::Unknown);
}

#[test]
fn a_pod_that_the_other_agent_enrolled_and_that_is_unwanted_now_is_sought_and_cleared() {
    let outside = Wish::Outside(Reason::NoSelectorMatches);
    let mut have = Have {
        carries: Redirection::Enabled,
        ..Have::default()
    };
    let addresses = capture().addresses;
    have.apply(&Event::Addresses(&addresses));
    assert_eq!(words(&plan(&have, &outside)), "find");
    let mut lost = have.clone();
    for (netns, expected) in [(None, "absent"), (Some(HERE), "clear-all absent")] {
        lost.apply(&Event::Sought {
            addresses: &addresses,
            netns,
        });
        assert_eq!(words(&plan(&lost, &outside)), expected);
    }
}

#[test]
fn packets_carry_the_client_only_when_no_rule_sees_them() {
    let first = |have: &Have| match next(have, &wire()) {
        Next::Do(Step::Attach(entry) | Step::Capture(entry)) => Some(entry.wire),
        _ => None,
    };
    assert_eq!(first(&with(Rules::Present, found())), Some(false));
    assert_eq!(first(&with(Rules::Failed, found())), Some(false));
    let present = with(Rules::Present, enrolled());
    assert_eq!(words(&plan(&present, &wire())), "clear attach-7 capture-enabled");
    for rules in [Rules::Draining, Rules::Due, Rules::Gone] {
        assert_eq!(first(&with(rules, enrolled())), Some(true), "{rules:?}");
    }
    // A restart changes nothing that is right.
    let mut adopted = adopted_and_sought(true, Redirection::Enabled, Some(HERE));
    adopted.entry.as_mut().unwrap().wire = true;
    (adopted.proxy, adopted.rules) = (ProxyView::Accepted, Rules::Present);
    assert_eq!(first(&adopted), Some(true));
    assert!(matches!(
        plan(&adopted, &wire()).get(1),
        Some(Step::Clear(
            HERE,
            Clearing {
                keeps_routes: true,
                waits: true
            }
        ))
    ));
}

#[test]
fn what_was_not_removed_is_tried_again() {
    let outside = Wish::Outside(Reason::NoSelectorMatches);
    for (rules, wish, owes) in [
        (Rules::Failed, wanted(), true),
        (Rules::Draining, wanted(), true),
        (Rules::Gone, wanted(), false),
        (Rules::Failed, outside, true),
        (Rules::Failed, Wish::Gone, false),
    ] {
        assert_eq!(
            with(rules, enrolled()).owes_retry(&wish),
            owes,
            "{rules:?} {wish:?}"
        );
    }
    let step = Step::Clear(
        HERE,
        Clearing {
            keeps_routes: false,
            waits: true,
        },
    );
    let rows: Vec<(Rules, Event<'_>, Rules)> = vec![
        (Rules::Unknown, Event::Looked(true), Rules::Present),
        (Rules::Present, Event::Done(&Step::Look), Rules::Present),
        (Rules::Unknown, Event::Looked(false), Rules::Gone),
        (Rules::Unknown, Event::Failed(&Step::Look), Rules::Failed),
        (Rules::Present, Event::Failed(&step), Rules::Failed),
        (Rules::Failed, Event::RetryDue, Rules::Unknown),
        (
            Rules::Present,
            Event::Cleared(Cleared::Draining(2)),
            Rules::Draining,
        ),
        (Rules::Draining, Event::Done(&step), Rules::Draining),
        (Rules::Draining, Event::RetryDue, Rules::Due),
        (Rules::Due, Event::Cleared(Cleared::Gone), Rules::Gone),
        (Rules::Gone, Event::RetryDue, Rules::Gone),
    ];
    for (before, event, after) in rows {
        let mut have = with(before, enrolled());
        have.apply(&event);
        assert_eq!(have.rules, after, "{before:?} {event:?}");
    }
}
