//! One pod in every situation, for the tables of the plan.

use super::*;
use crate::enrolment::Options;
use crate::ids::PodRef;
use crate::predecessor::Cleared;

const HERE: NetnsCookie = NetnsCookie(7);
const THERE: NetnsCookie = NetnsCookie(8);

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn capture() -> Capture {
    Capture {
        pod: PodRef {
            uid: "u".into(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
        },
        service_account: "default".to_owned(),
        network: "".into(),
        addresses: ips(&["10.0.0.9", "fd00::9"]),
        lost: Vec::new(),
        options: Options {
            inbound: true,
            dns_capture: true,
            virtual_interfaces: Vec::new(),
            wire: false,
            warnings: Vec::new(),
        },
    }
}

fn wanted() -> Wish {
    Wish::Captured(capture())
}

fn wanted_with(change: impl FnOnce(&mut Capture)) -> Wish {
    let mut capture = capture();
    change(&mut capture);
    Wish::Captured(capture)
}

/// A pod whose namespace was found and nothing else was done.
fn found() -> Have {
    let mut have = Have::default();
    have.apply(&Event::Sought {
        addresses: &capture().addresses,
        netns: Some(HERE),
    });
    have
}

fn attached() -> Have {
    let mut have = found();
    have.apply(&Event::Done(&Step::Attach(Box::new(entry(
        &capture(),
        HERE,
        false,
    )))));
    have
}

fn captured(enabled: bool, proxy: ProxyView, carries: Redirection) -> Have {
    Have {
        entry: Some(entry(&capture(), HERE, enabled)),
        proxy,
        carries,
        rules: Rules::Gone,
        ..attached()
    }
}

fn enrolled() -> Have {
    captured(true, ProxyView::Accepted, Redirection::Enabled)
}

fn pending() -> Have {
    captured(false, ProxyView::Refused, Redirection::Pending)
}

fn adopted(enabled: bool, carries: Redirection) -> Have {
    Have {
        carries,
        ..Have::adopted(entry(&capture(), HERE, enabled))
    }
}

fn adopted_and_sought(enabled: bool, carries: Redirection, netns: Option<NetnsCookie>) -> Have {
    let mut have = adopted(enabled, carries);
    have.apply(&Event::Sought {
        addresses: &capture().addresses,
        netns,
    });
    have
}

fn asking(have: Have) -> Have {
    Have {
        proxy: ProxyView::Asked,
        ..have
    }
}

/// Short words for steps, in one line.
fn words(steps: &[Step]) -> String {
    let word = |step: &Step| match step {
        Step::FindNetns(_) => "find".to_owned(),
        Step::Attach(entry) => format!("attach-{}", entry.netns.0),
        Step::ProxyAdd => "add".to_owned(),
        Step::Capture(entry) => format!("capture-{}", if entry.enabled { "enabled" } else { "closed" }),
        Step::Look => "look".to_owned(),
        Step::Clear(_, clearing) if clearing.waits => "clear".to_owned(),
        Step::Clear(..) => "clear-all".to_owned(),
        Step::Annotate(state) => format!("{state:?}").to_lowercase(),
        Step::Release => "release".to_owned(),
        Step::ProxyDel => "del".to_owned(),
        Step::Detach(netns) => format!("detach-{}", netns.0),
    };
    steps.iter().map(word).collect::<Vec<_>>().join(" ")
}

mod ahead;
mod events;
mod every;
mod rules;
mod states;
