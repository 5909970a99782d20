//! The kube source against an API server that misbehaves on purpose.

use std::time::{Duration, Instant};

use agent_core::facts::Fact;
use agent_core::ids::NodeRef;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::fake_api::{
    Answer, Fixture, Script, bookmark, healthy, list, metadata, pod, refusal, serve, source,
};
use super::view::View;
use crate::source::connection::Connection;
use crate::source::kube::KubeSource;

#[tokio::test]
async fn pods_of_this_node_and_all_namespaces_are_listed_and_watched_from_there() {
    let mut fixture = Fixture::new(|kind, _| healthy(kind)).await;
    fixture.view.until("the lists", View::current).await;
    assert_eq!(fixture.view.names(), ["a"]);
    assert_eq!(fixture.view.namespaces["shop"].labels["x"], "y");
    fixture
        .request(&[
            "/pods?",
            "watch=true",
            "fieldSelector=spec.nodeName%3Dn1",
            "resourceVersion=5",
        ])
        .await;
}

#[tokio::test]
async fn only_the_own_node_is_watched_and_its_pods_wait_for_it() {
    let mut fixture = Fixture::new(|kind, nth| match (kind, nth) {
        ("list nodes", 0) => list("5", &[]),
        ("watch nodes", 0) => Answer::Stays(vec![json!({"type": "ADDED", "object": metadata("n1")})]),
        _ => healthy(kind),
    })
    .await;
    fixture.view.until("the node", |view| view.names() == ["a"]).await;
    let is_node = |fact: &Fact| match fact {
        Fact::Bad(bad) => bad.object == "Node n1",
        Fact::Good { object } => object == "Node n1",
        _ => false,
    };
    let told: Vec<_> = fixture
        .view
        .told
        .iter()
        .filter(|fact| is_node(fact) || **fact == Fact::PodsListed)
        .collect();
    assert!(
        matches!(told[..], [Fact::Bad(_), Fact::Good { .. }, Fact::PodsListed]),
        "{told:?}"
    );
    fixture
        .request(&["/nodes?", "watch=true", "fieldSelector=metadata.name%3Dn1"])
        .await;
}

#[tokio::test]
async fn a_list_of_several_pages_is_told_as_one() {
    let mut fixture = Fixture::new(|kind, nth| match (kind, nth) {
        ("list pods", 0) => Answer::Body(
            200,
            json!({"metadata": {"continue": "more"}, "items": [pod("a", "1")]}),
        ),
        ("list pods", _) => list("5", &[pod("b", "2")]),
        _ => healthy(kind),
    })
    .await;
    fixture.view.until("the lists", View::current).await;
    assert_eq!((fixture.view.names(), fixture.view.lists), (vec!["a", "b"], 1));
    fixture.request(&["/pods?", "continue=more"]).await;
}

#[tokio::test]
async fn a_watch_that_ends_is_resumed_where_it_was() {
    let mut fixture = Fixture::new(|kind, nth| match (kind, nth) {
        ("watch pods", 0) => Answer::Ends(vec![
            json!({"type": "ADDED", "object": pod("b", "6")}),
            bookmark("9"),
        ]),
        ("watch pods", 1) => Answer::Stays(vec![json!({"type": "DELETED", "object": pod("a", "10")})]),
        _ => healthy(kind),
    })
    .await;
    fixture
        .view
        .until("both changes", |view| view.lists == 1 && view.names() == ["b"])
        .await;
    fixture
        .request(&["/pods?", "watch=true", "resourceVersion=9"])
        .await;
    assert_eq!(fixture.view.lists, 1);
    assert!(
        fixture.view.problem().is_none(),
        "the end of a watch is no problem"
    );
}

#[tokio::test]
async fn a_version_that_is_too_old_leads_to_a_new_list_and_is_no_problem() {
    let answers: [Script; 2] = [
        |kind, nth| match (kind, nth) {
            ("watch pods", 0) => Answer::Body(410, refusal(410, "too old resource version")),
            ("list pods", 1) => list("7", &[pod("b", "6")]),
            _ => healthy(kind),
        },
        |kind, nth| match (kind, nth) {
            ("watch pods", 0) => Answer::Stays(vec![
                json!({"type": "ERROR", "object": refusal(410, "too old resource version")}),
            ]),
            ("list pods", 1) => list("7", &[pod("b", "6")]),
            _ => healthy(kind),
        },
    ];
    for script in answers {
        let mut fixture = Fixture::new(script).await;
        fixture
            .view
            .until("the second list", |view| view.lists == 2 && view.current())
            .await;
        assert_eq!(fixture.view.names(), ["b"]);
        assert_eq!(fixture.view.states.len(), 1);
    }
}

#[tokio::test]
async fn a_refusal_is_told_once_with_its_cure_until_it_is_over() {
    let table: [(Script, &[&str]); 3] = [
        (
            |kind, nth| match kind {
                "list pods" if nth < 4 => Answer::Body(403, refusal(403, "pods is forbidden: User \"u\"")),
                _ => healthy(kind),
            },
            &[
                "may not list pods",
                "User \"u\"",
                "add to its role",
                r#"resources: ["pods"]"#,
            ],
        ),
        (
            |kind, nth| match kind {
                "list pods" if nth < 4 => Answer::Body(401, refusal(401, "Unauthorized")),
                _ => healthy(kind),
            },
            &["does not accept the agent's credentials", "Unauthorized"],
        ),
        (
            |kind, nth| match kind {
                "list pods" if nth < 4 => Answer::Body(500, refusal(500, "etcdserver: no leader")),
                _ => healthy(kind),
            },
            &["HTTP 500", "etcdserver: no leader"],
        ),
    ];
    for (script, parts) in table {
        let mut fixture = Fixture::new(script).await;
        fixture
            .view
            .until("the problem", |view| view.problem().is_some())
            .await;
        let problem = fixture.view.problem().unwrap().to_owned();
        assert!(
            parts.iter().all(|part| problem.contains(part)),
            "{parts:?} in {problem}"
        );
        fixture.view.until("the end of it", View::current).await;
        assert_eq!(fixture.view.names(), ["a"]);
        assert_eq!(
            fixture.view.states.len(),
            2,
            "once per change, not per retry: {:?}",
            fixture.view.states
        );
    }
}

#[tokio::test]
async fn a_forbidden_watch_is_not_hidden_by_a_list_that_works() {
    let mut fixture = Fixture::new(|kind, nth| match kind {
        "watch pods" if nth < 3 => Answer::Body(403, refusal(403, "no")),
        _ => healthy(kind),
    })
    .await;
    fixture.view.until("the end of the problem", View::current).await;
    assert_eq!(
        (fixture.view.lists, fixture.view.states.len()),
        (1, 2),
        "{:?}",
        fixture.view.states
    );
}

#[tokio::test]
async fn watches_that_end_at_once_are_not_started_as_fast_as_possible() {
    let mut fixture = Fixture::new(|kind, _| match kind {
        "watch pods" => Answer::Ends(vec![bookmark("9")]),
        _ => healthy(kind),
    })
    .await;
    let started = Instant::now();
    for _ in 0..5 {
        fixture.request(&["/pods?", "watch=true"]).await;
    }
    assert!(
        started.elapsed() >= Duration::from_millis(50 + 100 + 200 + 400),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_pod_that_does_not_decode_is_bad_and_hides_no_other() {
    let mut fixture = Fixture::new(|kind, nth| match (kind, nth) {
        ("list pods", 0) => {
            let mut odd = pod("odd", "1");
            odd["spec"]["containers"] = json!("none");
            list("5", &[odd, pod("b", "2")])
        }
        ("watch pods", 0) => Answer::Stays(vec![json!({"type": "MODIFIED", "object": pod("odd", "6")})]),
        _ => healthy(kind),
    })
    .await;
    fixture
        .view
        .until("the repair", |view| view.names() == ["b", "odd"])
        .await;
    fixture
        .view
        .until("the end of the trouble", |view| view.bad.is_empty())
        .await;
    assert!(
        fixture
            .view
            .told
            .iter()
            .any(|fact| matches!(fact, Fact::Bad(bad) if bad.object == "Pod shop/odd"))
    );
}

#[tokio::test]
async fn a_server_that_comes_late_is_found() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let folder = TempDir::new().unwrap();
    let mut view = source(&folder, &address.to_string());
    view.until("the problem", |view| {
        view.problem()
            .is_some_and(|problem| problem.contains("cannot be reached"))
    })
    .await;
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(serve(
        listener,
        |kind, _| healthy(kind),
        mpsc::unbounded_channel().0,
    ));
    view.until("the lists", View::current).await;
    assert_eq!((view.names(), view.states.len()), (vec!["a"], 2));
}

#[tokio::test]
async fn a_kubeconfig_that_comes_late_is_found() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("later");
    let (facts, receiver) = mpsc::channel(64);
    let node = NodeRef {
        cluster: "Kubernetes".into(),
        name: "n1".into(),
    };
    tokio::spawn(KubeSource::new(Connection::new(Some(path.clone())), node).run(facts));
    let mut view = View::new(receiver);
    let missing = |view: &View| view.problem().is_some_and(|problem| problem.contains("later"));
    view.until("the problem", missing).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let _unused = source(&folder, &listener.local_addr().unwrap().to_string());
    tokio::spawn(serve(
        listener,
        |kind, _| healthy(kind),
        mpsc::unbounded_channel().0,
    ));
    std::fs::rename(folder.path().join("config"), path).unwrap();
    view.until("the lists", View::current).await;
    assert_eq!(view.names(), ["a"]);
}
