//! Names are answered by the proxy before, while and after a node is switched over, and no name server is asked for them.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::dns::{NameServer, Zone};
use tests::istio::remains;
use tests::{PodSpec, Proxy, wait};

use crate::scene::{Scene, backends};

/// The client asks a name server in every way, which the proxy answers in its name.
fn proxy_answers(scene: &Scene<Proxy>) -> Result<()> {
    for ip in scene.outside.ips() {
        for way in ["connected", "messages", "stream"] {
            let told = ask(scene, SocketAddr::new(*ip, 53), way)?;
            ensure!(told["first"] == json!(Zone::MESH.v4), "{ip} {way}: {told}");
        }
    }
    Ok(())
}

fn ask(scene: &Scene<Proxy>, server: SocketAddr, way: &str) -> Result<Value> {
    let told = scene
        .client
        .load(&["dns", &server.to_string(), "--way", way, "--timeout", "500"])?;
    Ok(told[0].clone())
}

#[test]
fn the_proxy_answers_questions_all_the_time_while_a_node_is_switched_over() -> Result<()> {
    for backend in backends("the_proxy_answers_questions_all_the_time_while_a_node_is_switched_over") {
        let mut scene = Scene::with(backend, PodSpec::new("server"), |node, [_, _, outside]| {
            let upstream = SocketAddr::new(outside.v4(), 53).to_string();
            Proxy::start(node, "proxy", &["--dns", &upstream])
        })?;
        let servers = NameServer::start(&scene.outside, scene.outside.ips())?;
        scene
            .client
            .set_annotation("ambient.istio.io/dns-capture", Some("true"));
        scene
            .node
            .apply(&[&scene.client, &scene.server, &scene.outside])?;
        proxy_answers(&scene)?;
        scene.end_istio();
        scene.agent.spawn()?;
        let server = SocketAddr::new(scene.outside.v4(), 53);
        wait::asking(wait::LIMIT, "nothing of Istio's in the client", || {
            // With the rules goes the way back of an answer that is under way, and a resolver asks again.
            let told = ask(&scene, server, "messages")?;
            let is_lost = told.get("answer").is_some();
            ensure!(
                is_lost || told["first"] == json!(Zone::MESH.v4),
                "{backend:?}: {told}"
            );
            Ok(remains(scene.client.netns(), backend)?.is_empty().then_some(()))
        })?;
        scene.wait_until_enabled()?;
        proxy_answers(&scene)?;
        ensure!(servers.asked().is_empty(), "{backend:?}: {:?}", servers.asked());
    }
    Ok(())
}
