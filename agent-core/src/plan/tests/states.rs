//! What is told of a pod, and whether it is tried again.

use super::*;

#[test]
fn only_what_a_retry_can_change_owes_one() {
    let outside = Wish::Outside(Reason::HasSidecar);
    let failed_write = Have {
        write: Write::Failed,
        ..Have::default()
    };
    let no_proxy = captured(false, ProxyView::Awaited, Redirection::Pending);
    let rows = [
        ("not found", Have::default(), wanted(), true),
        ("refused", pending(), wanted(), true),
        ("no proxy", no_proxy, wanted(), false),
        ("enrolled", enrolled(), wanted(), false),
        (
            "annotation",
            Have {
                write: Write::Failed,
                ..enrolled()
            },
            wanted(),
            true,
        ),
        (
            "annotation of an outsider",
            failed_write.clone(),
            outside.clone(),
            true,
        ),
        ("outside", Have::default(), outside, false),
        (
            "annotation of a pod that is gone",
            failed_write,
            Wish::Gone,
            false,
        ),
    ];
    for (name, have, wish, owes) in rows {
        assert_eq!(have.owes_retry(&wish), owes, "{name}");
    }
}

#[test]
fn states_are_what_the_maps_and_the_proxy_say() {
    let outside = Wish::Outside(Reason::NoSelectorMatches);
    let rows = [
        (Have::default(), outside.clone(), State::Outside),
        (Have::default(), wanted(), State::Waiting),
        (asking(attached()), wanted(), State::Waiting),
        (pending(), wanted(), State::Pending),
        (adopted(true, Redirection::Enabled), wanted(), State::Pending),
        (enrolled(), wanted(), State::Enabled),
        (enrolled(), Wish::Outside(Reason::NoAddress), State::Enabled),
        (enrolled(), outside, State::Leaving),
        (enrolled(), Wish::Gone, State::Leaving),
    ];
    for (have, wish, state) in rows {
        assert_eq!(State::of(&have, &wish), state, "{have:?} {wish:?}");
    }
}
