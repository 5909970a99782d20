//! Many pods, one of them slow.

use std::net::{IpAddr, Ipv4Addr};

use super::*;

const PODS: u8 = 250;

fn numbered(number: u8) -> PodFacts {
    PodFacts {
        ips: vec![IpAddr::V4(Ipv4Addr::new(10, 0, 1, number))],
        ..pod(&format!("p{number}"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_is_slow_with_one_pod_holds_up_no_other() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.fake.world().slow.insert("p0".into());
    for number in 0..PODS {
        let facts = numbered(number);
        node.fake
            .world()
            .netns
            .insert(facts.pod.uid.clone(), 1000 + u64::from(number));
        node.tell(Fact::Pod(Box::new(facts))).await;
    }
    node.quiet().await;
    let enabled = |node: &Node| {
        let reports = node.handle.reports();
        reports
            .borrow()
            .values()
            .filter(|report| report.state == State::Enabled)
            .count()
    };
    assert_eq!(enabled(&node), usize::from(PODS) - 1);
    assert_eq!(node.state("p0"), Some(State::Waiting));

    node.pass(Duration::from_secs(5)).await;
    assert_eq!(
        node.state("p0"),
        Some(State::Pending),
        "closed when the proxy does not answer"
    );
    node.fake.world().slow.clear();
    node.pass(Duration::from_secs(1)).await;
    assert_eq!(enabled(&node), usize::from(PODS));
}
