//! What lies ahead in each situation, if all goes well.

use super::*;

#[test]
fn what_lies_ahead_in_each_situation() {
    use Redirection::{Absent, Enabled, Pending};
    let outside = || Wish::Outside(Reason::NoSelectorMatches);
    let ended = || Wish::Outside(Reason::Terminal);
    let lost = || wanted_with(|capture| capture.addresses.clear());
    let wire = || wanted_with(|capture| capture.options.wire = true);
    let moved = || Have {
        netns: Some(THERE),
        ..enrolled()
    };
    let unlinked = || {
        let mut have = enrolled();
        have.apply(&Event::LinkLost);
        have
    };
    let restarted = || {
        let mut have = enrolled();
        have.apply(&Event::ContainersChanged);
        have
    };
    let failed_write = || Have {
        write: Write::Failed,
        ..enrolled()
    };
    let no_proxy = || Have {
        proxy: ProxyView::Awaited,
        ..attached()
    };
    let rows: Vec<(&str, Have, Wish, &str)> = vec![
        ("a new pod is sought first", Have::default(), wanted(), "find"),
        (
            "make before break",
            found(),
            wanted(),
            "look attach-7 add capture-enabled enabled",
        ),
        (
            "the ack is awaited before the capture",
            asking(attached()),
            wanted(),
            "look",
        ),
        (
            "no proxy: closed",
            no_proxy(),
            wanted(),
            "look capture-closed pending",
        ),
        (
            "refused: closed",
            Have {
                proxy: ProxyView::Refused,
                ..attached()
            },
            wanted(),
            "look capture-closed pending",
        ),
        (
            "refused and captured: nothing until the retry",
            pending(),
            wanted(),
            "",
        ),
        (
            "retry",
            Have {
                proxy: ProxyView::Retry,
                ..pending()
            },
            wanted(),
            "add capture-enabled enabled",
        ),
        ("enrolled", enrolled(), wanted(), ""),
        ("its containers are others", restarted(), wanted(), "find"),
        ("its link was removed", unlinked(), wanted(), "attach-7"),
        ("all addresses lost, not found", Have::default(), lost(), ""),
        (
            "all addresses lost, captured",
            enrolled(),
            lost(),
            "capture-enabled",
        ),
        (
            "another network, in place",
            enrolled(),
            wanted_with(|capture| capture.network = "n".into()),
            "capture-enabled",
        ),
        (
            "another order of addresses",
            enrolled(),
            wanted_with(|capture| capture.addresses = ips(&["fd00::9", "10.0.0.9"])),
            "",
        ),
        (
            "other addresses are sought",
            enrolled(),
            wanted_with(|c| c.addresses = ips(&["10.0.0.8"])),
            "find",
        ),
        (
            "wire: attached before it is captured",
            enrolled(),
            wire(),
            "attach-7 capture-enabled",
        ),
        (
            "DNS capture: an entry like any other",
            enrolled(),
            wanted_with(|capture| capture.options.dns_capture = false),
            "capture-enabled",
        ),
        (
            "changed while the proxy is asked",
            asking(enrolled()),
            wire(),
            "attach-7 capture-enabled",
        ),
        (
            "another namespace",
            moved(),
            wanted(),
            "release del detach-7 attach-8 add capture-enabled",
        ),
        (
            "another namespace while asked",
            asking(moved()),
            wanted(),
            "release",
        ),
        ("un-enrol", enrolled(), outside(), "absent release del detach-7"),
        (
            "un-enrol, the annotation cannot be written",
            failed_write(),
            outside(),
            "release del detach-7",
        ),
        (
            "un-enrol while asked",
            asking(enrolled()),
            outside(),
            "absent release",
        ),
        ("un-enrol half-done", attached(), outside(), "clear-all detach-7"),
        (
            "un-enrol while the annotation is written",
            Have {
                write: Write::Running,
                ..enrolled()
            },
            outside(),
            "",
        ),
        ("ended", enrolled(), ended(), "release del detach-7 absent"),
        ("ended while asked", asking(enrolled()), ended(), "release"),
        ("gone", enrolled(), Wish::Gone, "release del detach-7"),
        (
            "gone while the annotation is written",
            Have {
                write: Write::Running,
                ..enrolled()
            },
            Wish::Gone,
            "release del detach-7",
        ),
        (
            "adopted, namespace not told yet: kept",
            adopted(true, Enabled),
            Wish::Outside(Reason::NamespaceUnknown),
            "add",
        ),
        ("never enrolled", Have::default(), outside(), ""),
        (
            "stale annotation",
            Have {
                carries: Enabled,
                ..Have::default()
            },
            outside(),
            "absent",
        ),
        (
            "no address for a moment",
            enrolled(),
            Wish::Outside(Reason::NoAddress),
            "",
        ),
        (
            "namespace not told yet",
            enrolled(),
            Wish::Outside(Reason::NamespaceUnknown),
            "",
        ),
        ("adopted", adopted(true, Enabled), wanted(), "find"),
        (
            "adopted, found",
            adopted_and_sought(true, Enabled, Some(HERE)),
            wanted(),
            "add look attach-7",
        ),
        (
            "adopted, not found: kept",
            adopted_and_sought(true, Enabled, None),
            wanted(),
            "add",
        ),
        (
            "adopted, elsewhere",
            adopted_and_sought(true, Enabled, Some(THERE)),
            wanted(),
            "release detach-7 look attach-8 add capture-enabled",
        ),
        (
            "adopted, pending",
            adopted_and_sought(false, Pending, Some(HERE)),
            wanted(),
            "add look attach-7 capture-enabled enabled",
        ),
        (
            "adopted, no wish has it",
            adopted(true, Absent),
            Wish::Gone,
            "release detach-7",
        ),
    ];
    for (name, have, wish, expected) in rows {
        let steps = plan(&have, &wish);
        assert_eq!(words(&steps), expected, "{name}");
    }
}
