//! DNS messages as far as the fixtures need them (RFC 1035; EDNS: RFC 6891), and the names that they know.

use std::net::{Ipv4Addr, Ipv6Addr};

mod server;

pub use server::NameServer;

/// Type `A`.
pub const A: u16 = 1;
/// Type `AAAA`.
pub const AAAA: u16 = 28;
/// Type `SRV`.
pub const SRV: u16 = 33;
/// Type `OPT`, which tells how long an answer may be.
const OPT: u16 = 41;
/// Class `IN`.
const INTERNET: u16 = 1;
/// How long a message may be where nothing else is said.
const SHORT: usize = 512;
/// Bytes of a header.
const HEADER: usize = 12;
/// `NXDOMAIN`.
const NO_SUCH_NAME: u8 = 3;
/// The name `big` has so many addresses: too many for any message by UDP.
pub const MANY: usize = 500;

/// A question, read from a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Name, without the dot at its end.
    pub name: String,
    /// Type.
    pub kind: u16,
    /// How long an answer by UDP may be.
    limit: usize,
    /// Where the question ends in the message.
    end: usize,
}

impl Question {
    /// Reads a message; `None` if it is no question.
    #[must_use]
    pub fn read(message: &[u8]) -> Option<Self> {
        if message.get(2)? & 0x80 != 0 {
            return None;
        }
        let (name, at) = name(message, HEADER)?;
        let kind = word(message, at)?;
        let end = at + 4;
        // Of further records only one is known in a question: OPT, of the root.
        let is_extended = message.get(end) == Some(&0) && word(message, end + 1) == Some(OPT);
        let limit = word(message, end + 3).filter(|_| is_extended);
        Some(Self {
            name,
            kind,
            limit: limit.map_or(SHORT, usize::from).max(SHORT),
            end,
        })
    }
}

/// A question as a message, with EDNS if `limit` says how long the answer may be.
#[must_use]
pub fn question(id: u16, name: &str, kind: u16, limit: Option<u16>) -> Vec<u8> {
    let more = u16::from(limit.is_some());
    let mut message = words(&[id, 0x0100, 1, 0, 0, more]);
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(words(&[kind, INTERNET]));
    if let Some(limit) = limit {
        message.push(0);
        message.extend(words(&[OPT, limit, 0, 0, 0]));
    }
    message
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Which question it is for.
    pub id: u16,
    /// It was too long, and the rest is to be asked for by TCP.
    pub is_cut: bool,
    /// 0 is well.
    pub code: u8,
    /// Records.
    pub count: u16,
    /// The first four bytes of the first record, which are an IPv4 address if it is of type A.
    pub first: Option<Ipv4Addr>,
}

impl Answer {
    /// Reads a message; `None` if it is no answer.
    #[must_use]
    pub fn read(message: &[u8]) -> Option<Self> {
        let (id, flags, count) = (word(message, 0)?, word(message, 2)?, word(message, 6)?);
        let (_, at) = name(message, HEADER)?;
        (flags & 0x8000 != 0).then_some(Self {
            id,
            is_cut: flags & 0x0200 != 0,
            code: (flags & 0xf) as u8,
            count,
            first: first(message, at + 4).filter(|_| count > 0),
        })
    }
}

/// The first four bytes of the record that begins here.
fn first(message: &[u8], at: usize) -> Option<Ipv4Addr> {
    // After its name come type, class, time to live and length.
    let data = after_name(message, at)? + 10;
    let bytes = message.get(data..data + 4)?;
    Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]))
}

/// Names below a domain, all with the same addresses: `big` has many, and `_http._tcp` is a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The domain.
    pub domain: &'static str,
    /// IPv4 address of every name.
    pub v4: Ipv4Addr,
    /// IPv6 address of every name.
    pub v6: Ipv6Addr,
}

impl Zone {
    /// What the test proxy knows.
    pub const MESH: Self = Self {
        domain: "mesh.test",
        v4: Ipv4Addr::new(240, 240, 0, 1),
        v6: Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1),
    };
    /// What name servers outside know; they know the names of the mesh too, with these addresses.
    pub const OUTSIDE: Self = Self {
        domain: "test",
        v4: Ipv4Addr::new(198, 51, 100, 1),
        v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    };

    /// Whether a name is below the domain.
    #[must_use]
    pub fn knows(&self, name: &str) -> bool {
        name.strip_suffix(self.domain)
            .is_some_and(|rest| rest.ends_with('.'))
    }

    /// The answer to a question; by a stream it may be as long as it is.
    #[must_use]
    pub fn answer(&self, message: &[u8], question: &Question, by_stream: bool) -> Vec<u8> {
        let records = self.records(question);
        let code = if self.knows(&question.name) {
            0
        } else {
            NO_SUCH_NAME
        };
        let whole = respond(message, question, code, &records, false);
        if by_stream || whole.len() <= question.limit {
            return whole;
        }
        respond(message, question, code, &[], true)
    }

    fn records(&self, question: &Question) -> Vec<Vec<u8>> {
        if !self.knows(&question.name) {
            return Vec::new();
        }
        let count = if question.name.starts_with("big.") {
            MANY
        } else {
            1
        };
        match question.kind {
            A => vec![self.v4.octets().to_vec(); count],
            AAAA => vec![self.v6.octets().to_vec(); count],
            SRV if question.name.starts_with("_http._tcp.") => {
                let mut record = words(&[0, 0, 8080]);
                for label in ["web"].into_iter().chain(self.domain.split('.')) {
                    record.push(label.len() as u8);
                    record.extend(label.as_bytes());
                }
                record.push(0);
                vec![record]
            }
            _ => Vec::new(),
        }
    }
}

fn respond(message: &[u8], question: &Question, code: u8, records: &[Vec<u8>], is_cut: bool) -> Vec<u8> {
    let flags = 0x8180 | u16::from(code) | if is_cut { 0x0200 } else { 0 };
    let mut answer = message[..2].to_vec();
    answer.extend(words(&[flags, 1, records.len() as u16, 0, 0]));
    answer.extend(&message[HEADER..question.end]);
    for record in records {
        // A pointer to the question's name; one second to live.
        answer.extend(words(&[
            0xc00c,
            question.kind,
            INTERNET,
            0,
            1,
            record.len() as u16,
        ]));
        answer.extend(record);
    }
    answer
}

fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn word(message: &[u8], at: usize) -> Option<u16> {
    let bytes = message.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// A name without pointers, in small letters (resolvers may write them as they like), and where it ends.
fn name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        let label = message.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        at += length;
    }
}

/// Where a name ends that may point elsewhere (RFC 1035, 4.1.4).
fn after_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            0xc0.. => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str, kind: u16, limit: Option<u16>, by_stream: bool) -> Answer {
        let message = question(7, name, kind, limit);
        let read = Question::read(&message).unwrap();
        assert_eq!((read.name.as_str(), read.kind), (name, kind));
        Answer::read(&Zone::MESH.answer(&message, &read, by_stream)).unwrap()
    }

    #[test]
    fn a_name_of_the_domain_has_an_address() {
        let answer = asked("web.mesh.test", A, None, false);
        assert_eq!(
            (answer.id, answer.code, answer.count, answer.first),
            (7, 0, 1, Some(Zone::MESH.v4))
        );
        assert_eq!(asked("_http._tcp.web.mesh.test", SRV, None, false).count, 1);
        assert_eq!(asked("web.test", A, None, false).code, NO_SUCH_NAME);
    }

    #[test]
    fn a_long_answer_is_cut_by_udp_and_whole_by_tcp() {
        for limit in [None, Some(1232)] {
            let answer = asked("big.mesh.test", A, limit, false);
            assert!(answer.is_cut && answer.count == 0);
            assert_eq!(asked("big.mesh.test", A, limit, true).count, MANY as u16);
        }
    }

    #[test]
    fn what_is_no_question_is_not_read() {
        assert_eq!(Question::read(&[0; 12]), None);
        assert_eq!(Question::read(&[]), None);
        let message = question(7, "web.mesh.test", A, None);
        let read = Question::read(&message).unwrap();
        assert_eq!(Question::read(&Zone::MESH.answer(&message, &read, false)), None);
    }
}
