//! A name server outside the mesh: threads of the test in a pod's network namespace, which answer by UDP and TCP and
//! remember who asked.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use agent_common::ports;
use anyhow::Result;

use super::{Question, Zone};
use crate::pod::Pod;

/// How often a thread looks whether it shall end.
const PAUSE: Duration = Duration::from_millis(50);

/// Who asked for what.
type Asked = (SocketAddr, String);

/// A name server, which ends when it is dropped.
#[derive(Debug)]
pub struct NameServer {
    asked: Arc<Mutex<Vec<Asked>>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl NameServer {
    /// Answers at port 53 of these addresses of a pod.
    ///
    /// # Errors
    /// When the port cannot be opened there.
    pub fn start(pod: &Pod, addresses: &[IpAddr]) -> Result<Self> {
        let mut server = Self {
            asked: Arc::default(),
            is_over: Arc::default(),
            threads: Vec::new(),
        };
        for ip in addresses {
            let at = SocketAddr::new(*ip, ports::NAME_SERVER);
            let (udp, tcp) =
                pod.in_netns(|| Ok::<_, std::io::Error>((UdpSocket::bind(at)?, TcpListener::bind(at)?)))??;
            udp.set_read_timeout(Some(PAUSE))?;
            tcp.set_nonblocking(true)?;
            let (asked, is_over) = (server.asked.clone(), server.is_over.clone());
            server.threads.push(std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok((stream, from)) = tcp.accept() {
                        let _ = serve_stream(stream, from, &asked);
                    }
                    serve_datagram(&udp, &asked);
                }
            }));
        }
        Ok(server)
    }

    /// Everything that it was asked so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn answer(message: &[u8], from: SocketAddr, asked: &Mutex<Vec<Asked>>, by_stream: bool) -> Option<Vec<u8>> {
    let question = Question::read(message)?;
    let answer = Zone::OUTSIDE.answer(message, &question, by_stream);
    asked
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push((from, question.name));
    Some(answer)
}

fn serve_datagram(socket: &UdpSocket, asked: &Mutex<Vec<Asked>>) {
    let mut message = [0; 4096];
    if let Ok((length, from)) = socket.recv_from(&mut message)
        && let Some(answer) = answer(&message[..length], from, asked, false)
    {
        let _ = socket.send_to(&answer, from);
    }
}

/// One question; a stream has two bytes of length before each message (RFC 1035, 4.2.2).
fn serve_stream(mut stream: TcpStream, from: SocketAddr, asked: &Mutex<Vec<Asked>>) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message)?;
    if let Some(answer) = answer(&message, from, asked, true) {
        stream.write_all(&(answer.len() as u16).to_be_bytes())?;
        stream.write_all(&answer)?;
    }
    Ok(())
}
