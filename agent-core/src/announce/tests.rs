//! What is told when, second by second.

use super::*;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn pod(name: &str) -> PodRef {
    PodRef {
        uid: name.into(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
    }
}

fn trouble(name: &str, note: &str) -> Trouble {
    Trouble {
        pod: pod(name),
        reason: Reason::CaptureFailed,
        note: note.to_owned(),
    }
}

/// Notes and counts of what is due.
fn due(announcer: &mut Announcer, now: Duration) -> Vec<(String, u32)> {
    let due = announcer.due(now).into_iter();
    due.map(|told| (told.note, told.count)).collect()
}

fn told(note: &str, count: u32) -> Vec<(String, u32)> {
    vec![(note.to_owned(), count)]
}

/// At each second the pod's trouble, and what is told then.
#[test]
fn a_trouble_is_told_when_it_stays_once_and_then_seldom() {
    let mut announcer = Announcer::default();
    for (second, note, expected) in [
        (0, Some("x"), vec![]),
        (2, Some("x"), vec![]),
        (3, Some("x"), told("x", 1)),
        (4, Some("x"), vec![]),
        // Another cause is news, but not within the minute.
        (10, Some("y"), vec![]),
        (63, Some("y"), told("y", 1)),
        (64, Some("y"), vec![]),
        // The same goes on.
        (63 + 1799, Some("y"), vec![]),
        (63 + 1800, Some("y"), told("y", 2)),
        // Over, and there again soon: the same once more, when it stays.
        (1870, None, vec![]),
        (1900, Some("y"), vec![]),
        (1922, Some("y"), vec![]),
        (1923, Some("y"), told("y", 3)),
    ] {
        let troubles = note.map(|note| trouble("a", note)).into_iter().collect();
        announcer.update(s(second), troubles, |_| false);
        assert_eq!(due(&mut announcer, s(second)), expected, "second {second}");
    }
}

#[test]
fn a_trouble_that_goes_by_itself_is_not_told() {
    let mut announcer = Announcer::default();
    announcer.update(s(0), vec![trouble("a", "x")], |_| false);
    assert_eq!(announcer.next(), Some(s(3)));
    announcer.update(s(2), vec![], |_| true);
    assert_eq!((due(&mut announcer, s(9)), announcer.next()), (vec![], None));
}

#[test]
fn the_end_is_told_once_and_only_of_a_pod_that_is_served_and_whose_trouble_was_told() {
    for (is_served, expected) in [(true, vec![Reason::Captured]), (false, vec![])] {
        let mut announcer = Announcer::default();
        announcer.update(s(0), vec![trouble("a", "x")], |_| false);
        assert_eq!(due(&mut announcer, s(3)), told("x", 1));
        announcer.update(s(5), vec![], |_| is_served);
        announcer.update(s(6), vec![], |_| is_served);
        let reasons: Vec<_> = announcer.due(s(6)).iter().map(|told| told.reason).collect();
        assert_eq!(reasons, expected);
        assert_eq!(due(&mut announcer, s(7)), []);
    }
    let mut announcer = Announcer::default();
    let ignored = Trouble {
        reason: Reason::AnnotationIgnored,
        ..trouble("a", "x")
    };
    announcer.update(s(0), vec![ignored], |_| true);
    assert_eq!(due(&mut announcer, s(3)), told("x", 1));
    announcer.update(s(5), vec![], |_| true);
    assert_eq!(due(&mut announcer, s(5)), [], "an annotation that was corrected");
}

#[test]
fn what_could_not_be_written_is_tried_again() {
    let mut announcer = Announcer::default();
    announcer.update(s(0), vec![trouble("a", "x")], |_| false);
    let announcement = announcer.due(s(3)).remove(0);
    announcer.failed(s(3), &announcement);
    assert_eq!(announcer.next(), Some(s(63)));
    assert_eq!(due(&mut announcer, s(62)), []);
    assert_eq!(due(&mut announcer, s(63)), told("x", 1));
}

#[test]
fn many_at_once_are_told_bit_by_bit_and_all_in_the_end() {
    let mut announcer = Announcer::default();
    let troubles = || (0..250).map(|number| trouble(&number.to_string(), "x")).collect();
    announcer.update(s(100), troubles(), |_| false);
    assert_eq!(due(&mut announcer, s(103)).len(), 50);
    let mut count = 50;
    let mut now = s(103);
    while count < 250 {
        now = announcer.next().unwrap();
        count += due(&mut announcer, now).len();
    }
    assert_eq!(now, s(303));
    // Nothing until the reminder of the first.
    assert_eq!(announcer.next(), Some(s(103 + 1800)));
}
