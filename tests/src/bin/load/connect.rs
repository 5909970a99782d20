//! One connection: what connect said, which addresses the client sees, and what the server answered.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use tests::sys::peer_name;

use crate::report::errno;
use crate::socket::Client;

/// Options of `connect`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Where to.
    destination: SocketAddr,
    #[command(flatten)]
    client: Client,
    #[command(flatten)]
    exchange: Exchange,
}

/// What is said on a connection.
#[derive(Args, Clone, Debug)]
pub(crate) struct Exchange {
    /// Sends this line first.
    #[arg(long, value_name = "TEXT")]
    send: Option<String>,
    /// Does not wait for the server's line.
    #[arg(long)]
    no_read: bool,
    /// Then ends its own direction and reads on until the server ends the other one.
    #[arg(long)]
    half_close: bool,
    /// Then writes until that fails, or the timeout is over.
    #[arg(long)]
    flood: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let began = Instant::now();
    let connected = options.client.dial(options.destination);
    let took = began.elapsed();
    let mut report = tell(connected, &options.exchange).1;
    report["connect_us"] = json!(took.as_micros() as u64);
    println!("{report}");
    Ok(())
}

/// Talks on a connection, if there is one, and reports: `connect` is `ok` or the error, `local` and `peer` are what the
/// client sees (`so_peername` too), `read` is `ok`, `eof` or the error, `reply` is the server's line (parsed if it is JSON), and with
/// `--half-close` `rest` is what came after it, and with `--flood` `flood` is the error that ended it. The connection is still open when it is returned.
pub(crate) fn tell(connected: io::Result<TcpStream>, exchange: &Exchange) -> (Option<TcpStream>, Value) {
    let stream = match connected {
        Ok(stream) => stream,
        Err(error) => return (None, json!({ "connect": errno(&error) })),
    };
    let address = |address: io::Result<SocketAddr>| address.map_or_else(|e| errno(&e), |a| a.to_string());
    let mut report = json!({
        "connect": "ok",
        "local": address(stream.local_addr()),
        "peer": address(stream.peer_addr()),
        "so_peername": address(peer_name(&stream)),
    });
    let mut reader = BufReader::new(&stream);
    match talk(&mut reader, exchange, &mut report) {
        Ok(read) => report["read"] = json!(read),
        Err(error) => report["read"] = json!(errno(&error)),
    }
    (Some(stream), report)
}

fn talk(
    reader: &mut BufReader<&TcpStream>,
    exchange: &Exchange,
    report: &mut Value,
) -> io::Result<&'static str> {
    let mut stream = *reader.get_ref();
    if let Some(text) = &exchange.send {
        stream.write_all(format!("{text}\n").as_bytes())?;
    }
    let mut outcome = "ok";
    if !exchange.no_read {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            outcome = "eof";
        }
        let line = line.trim_end();
        report["reply"] = serde_json::from_str(line).unwrap_or_else(|_| json!(line));
    }
    if exchange.half_close {
        stream.shutdown(Shutdown::Write)?;
        let mut rest = String::new();
        reader.read_to_string(&mut rest)?;
        report["rest"] = json!(rest);
    }
    if exchange.flood {
        let failed = loop {
            if let Err(error) = stream.write_all(&[0; 1024]) {
                break error;
            }
        };
        report["flood"] = json!(errno(&failed));
    }
    Ok(outcome)
}
