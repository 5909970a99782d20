//! Results from and to each version, with literals from the specification's shapes.

use proptest::prelude::*;

use super::*;

fn newest() -> Value {
    json!({
        "cniVersion": "1.1.0",
        "interfaces": [
            {"name": "cali1", "mac": "ee:ee:ee:ee:ee:ee"},
            {"name": "eth0", "mac": "0a:00:00:00:00:01", "sandbox": "/var/run/netns/a", "mtu": 1450},
        ],
        "ips": [
            {"interface": 1, "address": "10.0.0.2/24", "gateway": "10.0.0.1"},
            {"interface": 1, "address": "fd00::2/64"},
        ],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1", "table": 7}, {"dst": "::/0"}],
        "dns": {"nameservers": ["10.96.0.10"]},
    })
}

fn of_1_0() -> Value {
    json!({
        "cniVersion": "1.0.0",
        "interfaces": [
            {"name": "cali1", "mac": "ee:ee:ee:ee:ee:ee"},
            {"name": "eth0", "mac": "0a:00:00:00:00:01", "sandbox": "/var/run/netns/a"},
        ],
        "ips": [
            {"interface": 1, "address": "10.0.0.2/24", "gateway": "10.0.0.1"},
            {"interface": 1, "address": "fd00::2/64"},
        ],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}, {"dst": "::/0"}],
        "dns": {"nameservers": ["10.96.0.10"]},
    })
}

fn of_0_4() -> Value {
    let mut result = of_1_0();
    result["cniVersion"] = "0.4.0".into();
    result["ips"][0]["version"] = "4".into();
    result["ips"][1]["version"] = "6".into();
    result
}

fn of_0_2() -> Value {
    json!({
        "cniVersion": "0.2.0",
        "ip4": {"ip": "10.0.0.2/24", "gateway": "10.0.0.1", "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}]},
        "ip6": {"ip": "fd00::2/64", "routes": [{"dst": "::/0"}]},
        "dns": {"nameservers": ["10.96.0.10"]},
    })
}

fn converted(result: &Value, version: SpecVersion) -> Value {
    NetworkResult::parse(result).unwrap().print(version)
}

#[test]
fn a_result_passes_unchanged_in_its_own_version() {
    for (result, version) in [
        (newest(), SpecVersion::V1_1_0),
        (of_1_0(), SpecVersion::V1_0_0),
        (of_0_4(), SpecVersion::V0_4_0),
        (of_0_2(), SpecVersion::V0_2_0),
    ] {
        assert_eq!(converted(&result, version), result);
    }
}

#[test]
fn a_newer_result_loses_what_an_older_version_cannot_say() {
    assert_eq!(converted(&newest(), SpecVersion::V1_0_0), of_1_0());
    assert_eq!(converted(&newest(), SpecVersion::V0_4_0), of_0_4());
    assert_eq!(converted(&newest(), SpecVersion::V0_2_0), of_0_2());
    for (version, name) in [(SpecVersion::V0_3_0, "0.3.0"), (SpecVersion::V0_3_1, "0.3.1")] {
        let mut expected = of_0_4();
        expected["cniVersion"] = name.into();
        assert_eq!(converted(&newest(), version), expected);
    }
    let mut expected = of_0_2();
    expected["cniVersion"] = "0.1.0".into();
    assert_eq!(converted(&newest(), SpecVersion::V0_1_0), expected);
}

#[test]
fn an_old_result_gets_the_lists_of_newer_versions() {
    let expected = json!({
        "cniVersion": "1.0.0",
        "ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1"}, {"address": "fd00::2/64"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}, {"dst": "::/0"}],
        "dns": {"nameservers": ["10.96.0.10"]},
    });
    assert_eq!(converted(&of_0_2(), SpecVersion::V1_0_0), expected);
}

#[test]
fn no_result_is_an_empty_one() {
    for version in SpecVersion::ALL {
        let expected = json!({"cniVersion": version.as_str(), "dns": {}});
        assert_eq!(NetworkResult::default().print(version), expected);
        assert_eq!(converted(&json!({"ips": null, "dns": null}), version), expected);
    }
}

#[test]
fn what_cannot_be_understood_is_named() {
    for (result, problem) in [
        (json!(7), "(all) is not an object"),
        (json!({"ips": {}}), "ips is not a list"),
        (json!({"ips": [7]}), "ips has an entry that is not an object"),
        (json!({"ips": [{}]}), r#"address "" is not ADDRESS/PREFIX"#),
        (json!({"ips": [{"address": "10.0.0.2"}]}), "is not ADDRESS/PREFIX"),
        (
            json!({"ips": [{"address": "10.0.0.2/33"}]}),
            "is not ADDRESS/PREFIX",
        ),
        (
            json!({"ips": [{"address": "fd00::2/129"}]}),
            "is not ADDRESS/PREFIX",
        ),
        (
            json!({"ips": [{"address": "10.0.0.2/24", "gateway": "x"}]}),
            r#"gateway "x" is not an address"#,
        ),
        (
            json!({"ips": [{"address": "10.0.0.2/24", "interface": -1}]}),
            "interface is not an index",
        ),
        (json!({"ip4": {"ip": "x"}}), r#"ip "x" is not ADDRESS/PREFIX"#),
        (json!({"ip4": []}), "ip4 is not an object"),
    ] {
        let error = NetworkResult::parse(&result).unwrap_err().to_string();
        assert!(error.contains(problem), "{result}: {error}");
    }
}

/// JSON with the keys of results, and values of any type.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        "[0-9a-f.:/]{0,12}".prop_map(Value::from),
        Just(Value::from("10.0.0.2/24")),
    ];
    let keys = "ips|ip4|ip6|ip|address|gateway|interface|interfaces|routes|dst|dns";
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(keys, inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// An address with its prefix, an address, or nothing.
fn ip(is_v4: bool) -> impl Strategy<Value = Value> {
    (
        any::<u16>(),
        0_u8..=32,
        proptest::option::of(0_u32..3),
        any::<bool>(),
    )
        .prop_map(move |(host, prefix, interface, has_gateway)| {
            let of = |host: u16| match is_v4 {
                true => std::net::Ipv4Addr::from(0x0a00_0000 | u32::from(host)).to_string(),
                false => std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, host).to_string(),
            };
            let mut ip = json!({"address": format!("{}/{prefix}", of(host))});
            if let Some(interface) = interface {
                ip["interface"] = interface.into();
            }
            if has_gateway {
                ip["gateway"] = of(1).into();
            }
            ip
        })
}

/// A result of 1.1.0 as plugins print it: what is empty is left out.
fn result() -> impl Strategy<Value = Value> {
    let list = |items: Vec<Value>| (!items.is_empty()).then(|| Value::from(items));
    let interface = ("[a-z0-9]{1,8}", proptest::option::of(68_u32..9000)).prop_map(|(name, mtu)| match mtu {
        None => json!({"name": name}),
        Some(mtu) => {
            json!({"name": name, "sandbox": "/var/run/netns/a", "mtu": mtu, "pciID": "0000:00:1f.6"})
        }
    });
    let route = (any::<bool>(), proptest::option::of(1_u32..255)).prop_map(|(is_v4, table)| {
        let mut route = json!({"dst": if is_v4 { "0.0.0.0/0" } else { "::/0" }});
        if let Some(table) = table {
            route["table"] = table.into();
            route["scope"] = 0.into();
        }
        route
    });
    let ips = proptest::collection::vec(any::<bool>().prop_flat_map(ip), 0..5);
    let lists = (
        proptest::collection::vec(interface, 0..3),
        ips,
        proptest::collection::vec(route, 0..3),
    );
    lists.prop_map(move |(interfaces, ips, routes)| {
        let mut result = json!({"cniVersion": "1.1.0", "dns": {"nameservers": ["10.96.0.10"]}});
        for (key, items) in [("interfaces", interfaces), ("ips", ips), ("routes", routes)] {
            if let Some(items) = list(items) {
                result[key] = items;
            }
        }
        result
    })
}

proptest! {
    #[test]
    fn a_result_that_goes_down_through_versions_is_the_one_that_goes_down_at_once(
        result in result(),
        (through, to) in (0..SpecVersion::ALL.len(), 0..SpecVersion::ALL.len()),
    ) {
        prop_assert_eq!(&converted(&result, SpecVersion::NEWEST), &result);
        let (through, to) = (SpecVersion::ALL[through.max(to)], SpecVersion::ALL[through.min(to)]);
        let direct = converted(&result, to);
        prop_assert_eq!(&converted(&converted(&result, through), to), &direct);
        // Up again and down again loses nothing more.
        prop_assert_eq!(&converted(&converted(&direct, through), to), &direct);
    }

    #[test]
    fn every_address_is_told_to_the_agent_whatever_version_it_came_in(result in result()) {
        let addresses = |result: &Value| NetworkResult::parse(result).unwrap().ips.iter().map(|ip| ip.address).collect::<Vec<_>>();
        let all = addresses(&result);
        for version in SpecVersion::ALL.into_iter().filter(|version| *version >= SpecVersion::V0_3_0) {
            prop_assert_eq!(&addresses(&converted(&result, version)), &all);
        }
        let first = |is_v4| all.iter().find(move |ip| ip.is_ipv4() == is_v4).copied();
        let oldest: Vec<_> = [first(true), first(false)].into_iter().flatten().collect();
        prop_assert_eq!(addresses(&converted(&result, SpecVersion::V0_1_0)), oldest);
    }

    #[test]
    fn garbage_never_panics_and_what_is_read_can_be_read_again(result in anything()) {
        if let Ok(parsed) = NetworkResult::parse(&result) {
            for version in SpecVersion::ALL {
                prop_assert!(NetworkResult::parse(&parsed.print(version)).is_ok());
            }
            prop_assert_eq!(NetworkResult::parse(&parsed.print(SpecVersion::NEWEST)), Ok(parsed));
        }
    }
}
