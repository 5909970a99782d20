//! `wire` mode: what a pod's network namespace needs so that the application sees the client's address in the packets.
//!
//! The proxy then speaks to the application from the client's address, and the answers must come back to the proxy
//! instead of going to the client: they carry a mark (see `settings`), and a rule leads marked packets to a table in
//! which everything is local. See docs/decisions.md for why this is not the default.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use agent_common::ports::{MARK_MASK, RETURN_MARK, RETURN_RULE_PRIORITY, RETURN_TABLE};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol, RouteScope, RouteType};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Error, Handle, RouteMessageBuilder};

/// Index of `lo` in every network namespace.
const LOOPBACK_INDEX: u32 = 1;

/// Adds (or removes) the rules and routes in the namespace that this thread is in; what is there (or missing) is fine.
///
/// # Errors
/// When the kernel refuses; the caller tries again.
pub fn route_back(wanted: bool) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let done = routing(&handle, wanted).await;
        connection.abort();
        done
    })
}

async fn routing(handle: &Handle, wanted: bool) -> io::Result<()> {
    let families = [
        (rule(AddressFamily::Inet), route4()),
        (rule(AddressFamily::Inet6), route6()),
    ];
    for (rule, mut route) in families {
        if wanted {
            accept(
                handle.route().add(route).replace().execute().await,
                &[libc::EEXIST, libc::EAFNOSUPPORT],
            )?;
            let mut add = handle.rule().add();
            *add.message_mut() = rule;
            accept(add.execute().await, &[libc::EEXIST, libc::EAFNOSUPPORT])?;
        } else {
            let gone = [libc::ENOENT, libc::ESRCH, libc::EAFNOSUPPORT];
            accept(handle.rule().del(rule).execute().await, &gone)?;
            // Whoever has made it: another agent's is the same.
            route.header.protocol = RouteProtocol::Unspec;
            accept(handle.route().del(route).execute().await, &gone)?;
        }
    }
    Ok(())
}

fn rule(family: AddressFamily) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = family;
    rule.header.action = RuleAction::ToTable;
    rule.header.table = RETURN_TABLE as u8;
    rule.attributes = vec![
        RuleAttribute::Priority(RETURN_RULE_PRIORITY),
        RuleAttribute::FwMark(RETURN_MARK),
        RuleAttribute::FwMask(MARK_MASK),
    ];
    rule
}

fn route4() -> RouteMessage {
    RouteMessageBuilder::<Ipv4Addr>::new()
        .kind(RouteType::Local)
        .scope(RouteScope::Host)
        .table_id(RETURN_TABLE)
        .output_interface(LOOPBACK_INDEX)
        .build()
}

fn route6() -> RouteMessage {
    RouteMessageBuilder::<Ipv6Addr>::new()
        .kind(RouteType::Local)
        .table_id(RETURN_TABLE)
        .output_interface(LOOPBACK_INDEX)
        .build()
}

/// Takes certain refusals of the kernel for success.
fn accept(result: Result<(), Error>, fine: &[i32]) -> io::Result<()> {
    match result {
        Err(Error::NetlinkError(message)) if fine.contains(&message.raw_code().abs()) => Ok(()),
        Err(error) => Err(io::Error::other(error)),
        Ok(()) => Ok(()),
    }
}
