//! The demo and the benchmarks, run as a user runs them: what they show is checked by the demo itself.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use tests::cgroup;
use tests::leftovers::{PREFIX, Parts};
use tests::process::Process;
use tests::{programs, requires};

/// What the demo must have printed when all was as told.
fn assert_told(out: &str) {
    assert!(out.contains("All as told"), "{out}");
    assert!(!out.contains('✗') && !out.contains('\x1b'), "{out}");
    // Each family of: seven connections in the mesh, two after the label change, one without the agent, one at the end.
    let tried = out.lines().filter(|line| line.contains(":80 ")).count();
    assert_eq!(tried, 2 * 11, "{out}");
}

/// Runs a tool of ours to its end; its standard output, and what its process left behind.
fn run(name: &str, arguments: &[&str]) -> Result<(String, Vec<String>)> {
    let mut command = Command::new(programs::find(name)?);
    let child = command
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let id = child.id();
    let output = child.wait_with_output()?;
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    ensure!(
        output.status.success(),
        "{name} ended with {}: {err}{out}",
        output.status
    );
    Ok((out, remains(id)?))
}

/// What is left of all nodes of a process.
fn remains(process: u32) -> Result<Vec<String>> {
    let bpffs =
        cgroup::mount_of(&std::fs::read_to_string("/proc/self/mounts")?, "bpf").context("no bpffs")?;
    Ok(Parts::new(&format!("{PREFIX}{process}-1"), &cgroup::mount()?, &bpffs).remains())
}

#[test]
fn the_demo_ends_well_and_leaves_nothing() -> Result<()> {
    if !requires::root("the_demo_ends_well_and_leaves_nothing") {
        return Ok(());
    }
    let (out, remains) = run("meshgate-demo", &[])?;
    assert!(remains.is_empty(), "{remains:?}");
    assert_told(&out);
    Ok(())
}

#[test]
fn the_demo_with_a_real_api_server_ends_well_and_leaves_nothing() -> Result<()> {
    if requires::control_plane("the_demo_with_a_real_api_server_ends_well_and_leaves_nothing").is_none() {
        return Ok(());
    }
    let (out, remains) = run("meshgate-demo", &["--kube"])?;
    assert!(remains.is_empty(), "{remains:?}");
    assert!(out.contains("redirection: enabled"), "{out}");
    assert_told(&out);
    Ok(())
}

#[test]
fn a_kept_demo_ends_with_a_signal_and_leaves_nothing() -> Result<()> {
    if !requires::root("a_kept_demo_ends_with_a_signal_and_leaves_nothing") {
        return Ok(());
    }
    let mut command = Command::new(programs::find("meshgate-demo")?);
    let mut demo = Process::start_talking("meshgate-demo --keep", command.arg("--keep"))?;
    let id = demo.id();
    while !demo.line()?.contains("here is why") {}
    assert!(!remains(id)?.is_empty(), "it should run until it is told to stop");
    demo.signal(Signal::INT)?;
    assert!(demo.wait()?.success());
    assert_eq!(remains(id)?, Vec::<String>::new());
    Ok(())
}

#[test]
fn a_quick_comparison_has_the_documented_fields() -> Result<()> {
    if !requires::root("a_quick_comparison_has_the_documented_fields") {
        return Ok(());
    }
    let (out, remains) = run(
        "meshgate-bench",
        &["redirect", "--quick", "--path", "pod-to-pod", "-o", "json"],
    )?;
    assert!(remains.is_empty(), "{remains:?}");
    let report: Value = serde_json::from_str(&out)?;
    assert_eq!(report["bench"], "redirect");
    for field in ["kernel", "processor", "processors", "date"] {
        assert!(!report["machine"][field].is_null(), "{field}: {out}");
    }
    let rows = report["rows"].as_array().context("rows")?;
    // The test proxy in two families and three units, and the same for the real one if there is one.
    assert!(rows.len() == 6 || rows.len() == 12, "{out}");
    for row in rows {
        for variant in ["no_mesh", "iptables", "meshgate"] {
            for field in ["median", "min", "max", "cpu_us"] {
                assert!(
                    row["variants"][variant][field].as_f64() > Some(0.0),
                    "{variant} {field}: {row}"
                );
            }
        }
        for ratio in ["rate", "cpu"] {
            assert!(row["meshgate_to_iptables"][ratio].as_f64() > Some(0.0), "{row}");
        }
    }
    for row in report["outside"].as_array().context("outside")? {
        assert!(row["loss_percent"]["cpu"].is_f64(), "{row}");
    }
    for target in report["targets"].as_array().context("targets")? {
        for field in ["what", "bound", "wanted", "got", "met"] {
            assert!(!target[field].is_null(), "{field}: {target}");
        }
    }
    Ok(())
}

#[test]
fn a_quick_enrolment_has_the_documented_fields() -> Result<()> {
    if !requires::root("a_quick_enrolment_has_the_documented_fields") {
        return Ok(());
    }
    let (out, remains) = run("meshgate-bench", &["enrol", "--quick", "-o", "json"])?;
    assert!(remains.is_empty(), "{remains:?}");
    let report: Value = serde_json::from_str(&out)?;
    let rows = report["rows"].as_array().context("rows")?;
    assert_eq!(rows.len(), 2, "{out}");
    for row in rows {
        assert!(row["pods"].is_u64(), "{row}");
        for who in ["meshgate", "meshgate_leave", "iptables"] {
            for field in ["wall_us", "cpu_us", "wall_us_per_pod", "cpu_us_per_pod"] {
                assert!(row[who][field].as_f64() > Some(0.0), "{who} {field}: {row}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_quick_measurement_of_the_plugin_has_the_documented_fields() -> Result<()> {
    if !requires::root("a_quick_measurement_of_the_plugin_has_the_documented_fields") {
        return Ok(());
    }
    let (out, remains) = run("meshgate-bench", &["cni", "--quick", "-o", "json"])?;
    assert!(remains.is_empty(), "{remains:?}");
    let report: Value = serde_json::from_str(&out)?;
    for row in ["nothing", "start", "outside", "inside", "at_once"] {
        for field in ["p50_ms", "p99_ms", "process_cpu_ms", "agent_cpu_ms"] {
            assert!(report["rows"][row][field].is_f64(), "{row} {field}: {out}");
        }
    }
    assert_eq!(report["targets"].as_array().context("targets")?.len(), 5, "{out}");
    Ok(())
}

#[test]
fn a_quick_measurement_of_questions_has_the_documented_fields() -> Result<()> {
    if !requires::root("a_quick_measurement_of_questions_has_the_documented_fields") {
        return Ok(());
    }
    let (out, remains) = run("meshgate-bench", &["dns", "--quick", "-o", "json"])?;
    assert!(remains.is_empty(), "{remains:?}");
    let report: Value = serde_json::from_str(&out)?;
    let rows = report["rows"].as_array().context("rows")?;
    assert_eq!(rows.len(), 4, "{out}");
    for row in rows {
        assert!(row["family"].is_string() && row["way"].is_string(), "{row}");
        for variant in ["iptables", "meshgate", "limit"] {
            for field in ["median", "min", "max", "cpu_us"] {
                let figure = &row["variants"][variant][field];
                assert!(figure.as_f64() > Some(0.0), "{variant} {field}: {row}");
            }
        }
        for field in ["meshgate_to_iptables", "meshgate_to_limit"] {
            assert!(row[field]["cpu"].is_f64() && row[field]["rate"].is_f64(), "{row}");
        }
    }
    Ok(())
}

#[test]
fn a_quick_run_of_sandboxes_has_the_documented_fields() -> Result<()> {
    if !requires::container_runtime("a_quick_run_of_sandboxes_has_the_documented_fields") {
        return Ok(());
    }
    let (out, remains) = run("meshgate-bench", &["cri", "--quick", "-o", "json"])?;
    assert!(remains.is_empty(), "{remains:?}");
    let report: Value = serde_json::from_str(&out)?;
    let rows = report["rows"].as_array().context("rows")?;
    assert_eq!(rows.len(), 6, "{out}");
    for row in rows {
        assert!(row["variant"].is_string() && row["at_once"].is_u64(), "{row}");
        for field in ["pods", "p50_ms", "p90_ms", "p99_ms"] {
            assert!(row[field].as_f64() > Some(0.0), "{field}: {row}");
        }
    }
    Ok(())
}

#[test]
fn the_benchmark_of_restarts_runs_and_tells_what_it_found() -> Result<()> {
    if !requires::root("the_benchmark_of_restarts_runs_and_tells_what_it_found") {
        return Ok(());
    }
    let (out, remains) = run("meshgate-bench", &["restart", "--quick", "-o", "json"])?;
    let report: Value = serde_json::from_str(&out)?;
    assert_eq!(report["bench"], "restart");
    for row in report["rows"].as_array().into_iter().flatten() {
        for field in ["pods", "ready_ms", "ready_ms_worst", "cpu_ms"] {
            assert!(
                row[field].as_f64().is_some_and(|value| value > 0.0),
                "{field}: {row}"
            );
        }
    }
    assert_eq!(remains, Vec::<String>::new());
    Ok(())
}

#[test]
fn a_quick_look_at_an_idle_agent_has_the_documented_fields() -> Result<()> {
    let name = "a_quick_look_at_an_idle_agent_has_the_documented_fields";
    if requires::control_plane(name).is_none() {
        return Ok(());
    }
    let (out, remains) = run("meshgate-bench", &["agent", "--quick", "-o", "json"])?;
    assert!(remains.is_empty(), "{remains:?}");
    let report: Value = serde_json::from_str(&out)?;
    assert_eq!(report["rows"].as_array().context("rows")?.len(), 4, "{out}");
    for field in [
        "resident_kib",
        "anonymous_kib",
        "peak_kib",
        "descriptors",
        "threads",
    ] {
        assert!(report["rows"][0][field].as_u64() > Some(0), "{field}: {out}");
    }
    Ok(())
}
