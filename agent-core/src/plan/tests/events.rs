//! What each event makes of a pod.

use super::*;

#[test]
fn each_event_changes_what_the_proxy_is_believed_to_know() {
    use ProxyView::{Accepted, Asked, Awaited, Leaving, Refused, Retry, Untold};
    let snapshot = |refused| Event::Snapshot { refused };
    let rows: Vec<(ProxyView, Event<'_>, ProxyView)> = vec![
        (Untold, Event::Started(&Step::ProxyAdd), Asked),
        (Asked, Event::Done(&Step::ProxyAdd), Accepted),
        (Asked, Event::Failed(&Step::ProxyAdd), Refused),
        (Asked, Event::NoProxy, Awaited),
        (Accepted, Event::Started(&Step::ProxyDel), Leaving),
        (Leaving, Event::Done(&Step::ProxyDel), Untold),
        (Leaving, Event::Failed(&Step::ProxyDel), Retry),
        (Awaited, snapshot(false), Accepted),
        (Awaited, snapshot(true), Refused),
        (Accepted, snapshot(false), Accepted),
        (Accepted, snapshot(true), Refused),
        (Refused, snapshot(false), Retry),
        (Refused, snapshot(true), Refused),
        (Asked, snapshot(false), Asked),
        (Asked, snapshot(true), Asked),
        (Untold, snapshot(false), Untold),
        (Accepted, Event::LinkLost, Accepted),
        (Accepted, Event::ContainersChanged, Accepted),
        (Refused, Event::RetryDue, Retry),
        (Awaited, Event::RetryDue, Awaited),
        (Accepted, Event::RetryDue, Accepted),
    ];
    for (before, event, after) in rows {
        let mut have = Have {
            proxy: before,
            ..enrolled()
        };
        have.apply(&event);
        assert_eq!(have.proxy, after, "{before:?} {event:?}");
    }
}

#[test]
fn a_pod_that_was_closed_before_a_snapshot_is_asked_for_again() {
    let mut have = Have {
        proxy: ProxyView::Awaited,
        ..pending()
    };
    have.apply(&Event::Snapshot { refused: false });
    assert_eq!(words(&plan(&have, &wanted())), "add capture-enabled enabled");
}

#[test]
fn an_adopted_pod_that_the_snapshot_refuses_becomes_pending() {
    let mut have = adopted_and_sought(true, Redirection::Enabled, None);
    have.apply(&Event::Done(&Step::ProxyAdd));
    assert_eq!(
        next(&have, &wanted()),
        Next::Settled,
        "kept, and awaiting the snapshot"
    );
    have.apply(&Event::Snapshot { refused: true });
    assert_eq!(words(&plan(&have, &wanted())), "capture-closed pending");
}

#[test]
fn a_kept_pod_whose_namespace_is_found_later_is_told_to_the_proxy_with_it() {
    let mut have = adopted_and_sought(true, Redirection::Enabled, None);
    have.apply(&Event::Done(&Step::ProxyAdd));
    have.apply(&Event::Snapshot { refused: false });
    assert_eq!(next(&have, &wanted()), Next::Settled);
    assert!(have.owes_retry(&wanted()));
    have.apply(&Event::RetryDue);
    assert_eq!(words(&plan(&have, &wanted())), "find");
    have.apply(&Event::Sought {
        addresses: &capture().addresses,
        netns: Some(HERE),
    });
    assert_eq!(words(&plan(&have, &wanted())), "add look attach-7");
    assert_eq!(have.is_enabled(), Some(true), "without a gap");
}

#[test]
fn other_addresses_are_updated_in_place_even_if_the_namespace_is_not_found_by_them() {
    let wish = wanted_with(|capture| capture.addresses = ips(&["10.0.0.8"]));
    let mut have = enrolled();
    have.apply(&Event::Sought {
        addresses: &ips(&["10.0.0.8"]),
        netns: None,
    });
    assert_eq!(words(&plan(&have, &wish)), "capture-enabled");
    have.apply(&Event::Sought {
        addresses: &ips(&["10.0.0.8"]),
        netns: Some(THERE),
    });
    assert_eq!(
        words(&plan(&have, &wish)),
        "release del detach-7 look attach-8 add capture-enabled"
    );
}

#[test]
fn a_pod_whose_only_address_a_newer_one_has_is_sought_by_it_and_captured_without_it() {
    let wish = wanted_with(|capture| {
        let newer = capture.pod.clone();
        let owned = std::mem::take(&mut capture.addresses);
        capture.lost = owned.into_iter().map(|ip| (ip, newer.clone())).collect();
    });
    let Next::Do(Step::FindNetns(sought)) = next(&Have::default(), &wish) else {
        panic!("not sought");
    };
    assert_eq!(sought, capture().addresses);
    let mut have = Have::default();
    have.apply(&Event::Sought {
        addresses: &sought,
        netns: Some(HERE),
    });
    let steps = plan(&have, &wish);
    let written = steps.iter().find_map(|step| match step {
        Step::Capture(entry) => Some(entry),
        _ => None,
    });
    assert!(
        written.is_some_and(|entry| entry.enabled && entry.addresses.is_empty()),
        "{steps:?}"
    );
}

#[test]
fn entries_are_equal_whatever_the_order_and_leave_from_the_first_address_of_a_family() {
    let mut reordered = capture();
    reordered.addresses.reverse();
    assert_eq!(entry(&capture(), HERE, true), entry(&reordered, HERE, true));
    let mut several = capture();
    several.addresses = ips(&["10.0.0.9", "10.0.0.2"]);
    let entry = entry(&several, HERE, true);
    assert_eq!(entry.addresses, ips(&["10.0.0.2", "10.0.0.9"]));
    assert_eq!(
        (entry.source4, entry.source6),
        (Some("10.0.0.9".parse().unwrap()), None)
    );
}

#[test]
fn what_is_told_of_the_annotation_counts_unless_it_is_being_written() {
    let mut have = enrolled();
    have.apply(&Event::Told(Redirection::Absent));
    assert_eq!(words(&plan(&have, &wanted())), "enabled");
    have.apply(&Event::Started(&Step::Annotate(Redirection::Enabled)));
    have.apply(&Event::Told(Redirection::Pending));
    have.apply(&Event::Done(&Step::Annotate(Redirection::Enabled)));
    assert_eq!(next(&have, &wanted()), Next::Settled);
}

#[test]
fn a_pod_told_again_is_sought_again_until_it_is_found() {
    let mut have = Have::default();
    have.apply(&Event::Sought {
        addresses: &capture().addresses,
        netns: None,
    });
    assert_eq!(next(&have, &wanted()), Next::Settled);
    have.apply(&Event::Told(Redirection::Absent));
    assert_eq!(words(&plan(&have, &wanted())), "find");
    let mut have = enrolled();
    have.apply(&Event::Told(Redirection::Enabled));
    assert_eq!(next(&have, &wanted()), Next::Settled);
}
