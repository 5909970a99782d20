//! How many connections, requests and bytes a second.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::dns;
use crate::report::Tally;
use crate::socket::Client;

/// When to stop, whichever comes first. Without any: after one second.
#[derive(Args, Clone, Copy, Debug)]
struct Until {
    /// When stdin closes.
    #[arg(long)]
    stdin: bool,
    /// After so many.
    #[arg(long)]
    count: Option<u64>,
    /// After so many seconds.
    #[arg(long, value_name = "SECONDS")]
    duration: Option<f64>,
}

impl Until {
    /// The `number`th, counted from 0, after `elapsed` time: is it still wanted?
    fn goes_on(self, number: u64, elapsed: Duration) -> bool {
        let limited = self.count.is_some() || self.stdin;
        let seconds = self.duration.or((!limited).then_some(1.0));
        self.count.is_none_or(|count| number < count)
            && seconds.is_none_or(|limit| elapsed.as_secs_f64() < limit)
            && !(self.stdin && STDIN_CLOSED.load(Ordering::Relaxed))
    }

    /// Starts to watch stdin, if that is asked for.
    fn watch(self) {
        if self.stdin {
            std::thread::spawn(|| {
                let _ = io::stdin().read_to_end(&mut Vec::new());
                STDIN_CLOSED.store(true, Ordering::Relaxed);
            });
        }
    }
}

/// Whether stdin has closed, once [`Until::watch`] was called.
static STDIN_CLOSED: AtomicBool = AtomicBool::new(false);

/// Options of `crr`, for servers with `--reply echo`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CrrOptions {
    /// Where to, in turns.
    #[arg(required = true)]
    destinations: Vec<SocketAddr>,
    /// When each thread stops.
    #[command(flatten)]
    until: Until,
    /// Bytes of a request and of its response.
    #[arg(long, default_value_t = 1)]
    size: usize,
    /// How many threads do the same.
    #[arg(long, default_value_t = 1)]
    concurrency: usize,
    /// At most so many connections a second for each thread.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    #[command(flatten)]
    client: Client,
}

pub(crate) fn crr(options: &CrrOptions) -> Result<()> {
    options.until.watch();
    let began = Instant::now();
    let mut total = Tally::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.concurrency)
            .map(|_| scope.spawn(|| crr_thread(options)))
            .collect();
        for tally in threads {
            total.merge(tally.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?);
        }
        anyhow::Ok(())
    })?;
    println!("{}", total.json(began.elapsed()));
    Ok(())
}

fn crr_thread(options: &CrrOptions) -> Tally {
    let mut tally = Tally::default();
    let mut buffer = vec![b'.'; options.size];
    let began = Instant::now();
    for (number, destination) in (0_u64..).zip(options.destinations.iter().cycle()) {
        if !options.until.goes_on(number, began.elapsed()) {
            break;
        }
        if let Some(rate) = options.rate {
            let due = Duration::from_secs_f64(number as f64 / rate);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
        let started = Instant::now();
        let exchanged = options
            .client
            .dial(*destination)
            .and_then(|stream| exchange(&stream, &mut buffer));
        match exchanged {
            Ok(()) => tally.success(started.elapsed()),
            Err(error) => tally.failure(&error),
        }
    }
    tally
}

/// One request and its response, which is as long.
fn exchange(mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<()> {
    stream.write_all(buffer)?;
    stream.read_exact(buffer)
}

/// Options of `rr`, for servers with `--reply echo`.
#[derive(Args, Debug)]
pub(crate) struct RrOptions {
    /// Where to.
    destination: SocketAddr,
    #[command(flatten)]
    until: Until,
    /// Bytes of a request and of its response.
    #[arg(long, default_value_t = 1)]
    size: usize,
    #[command(flatten)]
    client: Client,
}

pub(crate) fn rr(options: &RrOptions) -> Result<()> {
    let stream = options.client.dial(options.destination).context("connecting")?;
    let (mut tally, mut buffer) = (Tally::default(), vec![b'.'; options.size]);
    options.until.watch();
    let began = Instant::now();
    for number in 0.. {
        if !options.until.goes_on(number, began.elapsed()) {
            break;
        }
        let started = Instant::now();
        match exchange(&stream, &mut buffer) {
            Ok(()) => tally.success(started.elapsed()),
            Err(error) => {
                tally.failure(&error);
                break;
            }
        }
    }
    println!("{}", tally.json(began.elapsed()));
    Ok(())
}

/// Options of `questions`.
#[derive(Args, Debug)]
pub(crate) struct QuestionOptions {
    #[command(flatten)]
    until: Until,
    #[command(flatten)]
    dns: dns::Options,
}

pub(crate) fn questions(options: &QuestionOptions) -> Result<()> {
    let mut tally = Tally::default();
    options.until.watch();
    let began = Instant::now();
    for number in 0.. {
        if !options.until.goes_on(number, began.elapsed()) {
            break;
        }
        let started = Instant::now();
        match options.dns.ask() {
            Ok(()) => tally.success(started.elapsed()),
            Err(error) => tally.failure(&error),
        }
    }
    println!("{}", tally.json(began.elapsed()));
    Ok(())
}

/// Options of `stream`.
#[derive(Args, Debug)]
pub(crate) struct StreamOptions {
    /// Where to.
    destination: SocketAddr,
    /// For how long.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    duration: f64,
    /// Which way the bytes go.
    #[arg(long, value_enum, default_value_t = Way::Up)]
    way: Way,
    #[command(flatten)]
    client: Client,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Way {
    /// To a server with `--reply sink`.
    Up,
    /// From a server with `--reply source`.
    Down,
}

/// Bytes of one write or read.
const CHUNK: usize = 128 * 1024;

pub(crate) fn stream(options: &StreamOptions) -> Result<()> {
    let mut stream = options.client.dial(options.destination).context("connecting")?;
    let limit = Duration::from_secs_f64(options.duration);
    let (mut buffer, mut bytes, began) = (vec![0_u8; CHUNK], 0, Instant::now());
    while began.elapsed() < limit {
        bytes += match options.way {
            Way::Up => stream.write(&buffer)?,
            Way::Down => match stream.read(&mut buffer)? {
                0 => anyhow::bail!("the server ended the stream"),
                count => count,
            },
        };
    }
    if matches!(options.way, Way::Up) {
        // The bytes count once the server has taken them all, which it tells by closing.
        stream.shutdown(Shutdown::Write)?;
        stream.read_to_end(&mut Vec::new())?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let rate = bytes as f64 / seconds / f64::from(1 << 20);
    println!(
        "{}",
        json!({ "bytes": bytes, "seconds": seconds, "mib_per_second": rate })
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_stops_at_whichever_limit_comes_first() {
        let goes_on = |stdin, count, duration, number, seconds| {
            let until = Until {
                stdin,
                count,
                duration,
            };
            until.goes_on(number, Duration::from_secs(seconds))
        };
        assert!(goes_on(false, None, None, 1_000_000, 0) && !goes_on(false, None, None, 1, 1));
        assert!(goes_on(false, Some(2), None, 1, 60) && !goes_on(false, Some(2), None, 2, 0));
        assert!(goes_on(true, None, None, 1, 60));
        assert!(goes_on(true, Some(2), Some(5.0), 1, 4));
        assert!(!goes_on(true, Some(2), Some(5.0), 1, 5) && !goes_on(true, Some(2), Some(5.0), 2, 1));
    }
}
