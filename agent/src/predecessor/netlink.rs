//! Netlink messages as bytes: attributes, questions with many answers, and batches that the kernel takes as a whole or not at
//! all (netlink(7), linux/netfilter/nfnetlink.h).

use std::io;

use rtnetlink::packet_core::{
    DefaultNla, Emitable as _, NLA_HEADER_SIZE, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST,
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlaBuffer,
    NlasIterator,
};
use rtnetlink::sys::{Socket, SocketAddr};

/// Messages begin at multiples of this (`NLMSG_ALIGNTO`).
const ALIGNMENT: usize = 4;
/// `NFNL_MSG_BATCH_BEGIN` and `NFNL_MSG_BATCH_END`.
const BATCH: [u16; 2] = [0x10, 0x11];

/// A message: its type and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// `nlmsg_type`.
    pub(super) kind: u16,
    /// What follows the header.
    pub(super) body: Vec<u8>,
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        self.body.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.body);
    }
}

impl NetlinkDeserializable for Message {
    type Error = std::convert::Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        Ok(Self {
            kind: header.message_type,
            body: payload.to_vec(),
        })
    }
}

/// Attributes, each of a type and bytes.
pub(super) fn attributes(all: &[(u16, &[u8])]) -> Vec<u8> {
    let all: Vec<_> = all
        .iter()
        .map(|(kind, value)| DefaultNla::new(*kind, value.to_vec()))
        .collect();
    let mut bytes = vec![0; all.as_slice().buffer_len()];
    all.as_slice().emit(&mut bytes);
    bytes
}

/// A text as the kernel reads it.
pub(super) fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// The bytes of the first attribute of a type.
pub(super) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut all = NlasIterator::new(bytes).filter_map(Result::ok);
    all.find(|attribute| attribute.kind() == kind).and_then(value)
}

/// The bytes of each attribute.
pub(super) fn each(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    NlasIterator::new(bytes).filter_map(Result::ok).filter_map(value)
}

fn value(attribute: NlaBuffer<&[u8]>) -> Option<&[u8]> {
    let length = usize::from(attribute.length());
    attribute.into_inner().get(NLA_HEADER_SIZE..length)
}

/// A text of the kernel's.
pub(super) fn string(bytes: &[u8], kind: u16) -> Option<String> {
    let value = attribute(bytes, kind)?;
    let value = value.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// A socket of one of netlink's protocols, in the namespace of the calling thread.
pub(super) struct Conversation(Socket);

impl Conversation {
    pub(super) fn open(protocol: isize) -> io::Result<Self> {
        let socket = Socket::new(protocol)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Asks for all of something, and reads what the kernel has.
    pub(super) fn dump(&self, question: Message) -> io::Result<Vec<Message>> {
        self.0.send(&bytes(question, NLM_F_REQUEST | NLM_F_DUMP), 0)?;
        let mut answers = Vec::new();
        loop {
            let (packet, _) = self.0.recv_from_full()?;
            for message in messages(&packet)? {
                // What it told was changed meanwhile.
                if message.header.flags & NLM_F_DUMP_INTR != 0 {
                    return Err(io::Error::from(io::ErrorKind::Interrupted));
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    NetlinkPayload::Done(done) if done.code < 0 => {
                        return Err(io::Error::from_raw_os_error(-done.code));
                    }
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    _ => {}
                }
            }
        }
    }

    /// Gives one order, and waits for its outcome.
    pub(super) fn order(&self, order: Message) -> io::Result<()> {
        self.0.send(&bytes(order, NLM_F_REQUEST | NLM_F_ACK), 0)?;
        self.outcomes(1)
    }

    /// Gives orders of a subsystem of netfilter, which are carried out together or not at all.
    pub(super) fn batch(&self, subsystem: u8, orders: Vec<Message>) -> io::Result<()> {
        let [begin, end] = BATCH.map(|kind| Message {
            kind,
            body: vec![0, 0, 0, subsystem],
        });
        let count = orders.len();
        let mut all = bytes(begin, NLM_F_REQUEST);
        for order in orders {
            all.extend(bytes(order, NLM_F_REQUEST | NLM_F_ACK));
        }
        all.extend(bytes(end, NLM_F_REQUEST));
        self.0.send(&all, 0)?;
        self.outcomes(count)
    }

    /// Reads so many outcomes, up to the first failure.
    fn outcomes(&self, count: usize) -> io::Result<()> {
        let mut done = 0;
        while done < count {
            let (packet, _) = self.0.recv_from_full()?;
            for message in messages(&packet)? {
                if let NetlinkPayload::Error(error) = message.payload {
                    match error.code {
                        None => done += 1,
                        Some(_) => return Err(error.to_io()),
                    }
                }
            }
        }
        Ok(())
    }
}

fn bytes(message: Message, flags: u16) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len().next_multiple_of(ALIGNMENT)];
    message.serialize(&mut bytes);
    bytes
}

fn messages(packet: &[u8]) -> io::Result<Vec<NetlinkMessage<Message>>> {
    let (mut rest, mut all) = (packet, Vec::new());
    while !rest.is_empty() {
        let message = NetlinkMessage::deserialize(rest).map_err(io::Error::other)?;
        let length = (message.header.length as usize).next_multiple_of(ALIGNMENT);
        all.push(message);
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(all)
}
