//! Every combination of what can be true of a pod: the plan ends, and where it ends, the pod is as wished.

use super::*;

const RULES: [Rules; 6] = [
    Rules::Unknown,
    Rules::Present,
    Rules::Failed,
    Rules::Draining,
    Rules::Due,
    Rules::Gone,
];

const PROXY: [ProxyView; 7] = [
    ProxyView::Untold,
    ProxyView::Asked,
    ProxyView::Awaited,
    ProxyView::Refused,
    ProxyView::Retry,
    ProxyView::Accepted,
    ProxyView::Leaving,
];

/// All pods whose namespace was sought by their present addresses.
fn every_pod() -> Vec<Have> {
    let here = |enabled| Some(entry(&capture(), HERE, enabled));
    let mut pods = Vec::new();
    for netns in [None, Some(HERE)] {
        for link in [
            Link::None,
            Link::Adopted(HERE),
            Link::Adopted(THERE),
            attached().link,
        ] {
            for entry in [
                None,
                here(true),
                here(false),
                Some(entry(&capture(), THERE, true)),
            ] {
                for proxy in PROXY {
                    for carries in [Redirection::Enabled, Redirection::Pending, Redirection::Absent] {
                        for write in [Write::Idle, Write::Running, Write::Failed] {
                            pods.extend(RULES.map(|rules| Have {
                                netns,
                                link,
                                entry: entry.clone(),
                                proxy,
                                carries,
                                write,
                                rules,
                                ..found()
                            }));
                        }
                    }
                }
            }
        }
    }
    pods
}

/// What is true when all steps have succeeded.
fn afterwards(mut have: Have, wish: &Wish) -> Have {
    for step in plan(&have, wish) {
        have.apply(&Event::Done(&step));
    }
    have
}

fn is_under_way(have: &Have) -> bool {
    matches!(have.proxy, ProxyView::Asked | ProxyView::Leaving) || have.write == Write::Running
}

#[test]
fn every_pod_that_is_unwanted_is_out_when_its_calls_are_answered() {
    for wish in [
        Wish::Gone,
        Wish::Outside(Reason::Terminal),
        Wish::Outside(Reason::HasSidecar),
    ] {
        for before in every_pod() {
            let after = afterwards(before.clone(), &wish);
            let is_told =
                after.carries == Redirection::Absent || after.owes_retry(&wish) || wish == Wish::Gone;
            let must_retry = matches!(wish, Wish::Outside(_)) && after.owes_retry(&wish);
            assert!(
                (after.is_clean() && is_told) || is_under_way(&after) || must_retry,
                "{wish:?} {before:?} {after:?}"
            );
        }
    }
}

#[test]
fn every_pod_that_is_wanted_is_captured_where_it_is_as_soon_as_the_proxy_has_answered() {
    for before in every_pod() {
        let after = afterwards(before.clone(), &wanted());
        let is_here = after.entry.as_ref().is_some_and(|entry| entry.netns == HERE);
        let is_attached = after.netns.is_none() || after.link == attached().link;
        let must_wait = matches!(after.proxy, ProxyView::Asked | ProxyView::Leaving);
        // Others capture it as long as no proxy takes it.
        let must_wait = must_wait
            || (after.rules == Rules::Present && after.owes_retry(&wanted()))
            || (after.rules == Rules::Present && after.proxy == ProxyView::Awaited);
        // Where nothing is known of a namespace, there is nothing to capture.
        let is_unfound = before.netns.is_none();
        assert!(
            (is_here && is_attached) || must_wait || is_unfound,
            "{before:?} {after:?}"
        );
    }
}

#[test]
fn no_pod_is_opened_that_the_proxy_has_not_taken() {
    for before in every_pod() {
        let was_enabled = before.is_enabled() == Some(true);
        let after = afterwards(before.clone(), &wanted());
        let is_enabled = after.is_enabled() == Some(true);
        assert!(
            !is_enabled || was_enabled || after.proxy == ProxyView::Accepted,
            "{before:?} {after:?}"
        );
    }
}

#[test]
fn no_captured_pod_is_released_for_what_is_not_known_yet() {
    for wish in [
        Wish::Outside(Reason::NoAddress),
        Wish::Outside(Reason::NamespaceUnknown),
    ] {
        for before in every_pod() {
            assert_eq!(afterwards(before.clone(), &wish).entry, before.entry);
        }
    }
}
