//! Just enough of HTTP to post an event and to read the answer. Version 1.0, so that an answer is never in chunks and
//! ends with the connection: a library would be larger than the whole plugin.

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    /// Status code.
    pub(crate) status: u16,
    /// Body in one line.
    pub(crate) text: String,
}

/// A request that posts JSON.
pub(crate) fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.0\r\nHost: unix\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Reads an answer, as far as it came; `None` when it ends before its body begins: the agent died meanwhile.
pub(crate) fn response(bytes: &[u8]) -> Option<Response> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut words = head.lines().next()?.split(' ');
    if !words.next()?.starts_with("HTTP/1.") {
        return None;
    }
    Some(Response {
        status: words.next()?.parse().ok()?,
        text: body.split_whitespace().collect::<Vec<_>>().join(" "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_how_long_it_is() {
        assert_eq!(
            post("/cmdadd", r#"{"a":"ä"}"#),
            "POST /cmdadd HTTP/1.0\r\nHost: unix\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{\"a\":\"ä\"}"
        );
    }

    #[test]
    fn an_answer_is_its_status_and_one_line() {
        for (bytes, status, text) in [
            ("HTTP/1.0 200 OK\r\n\r\n", 200, ""),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, ""),
            (
                "HTTP/1.1 500 Internal Server Error\r\nX: y\r\n\r\nno\n  proxy\n",
                500,
                "no proxy",
            ),
            ("HTTP/1.1 404\r\n\r\n", 404, ""),
        ] {
            let expected = Response {
                status,
                text: text.to_owned(),
            };
            assert_eq!(response(bytes.as_bytes()), Some(expected), "{bytes}");
        }
    }

    #[test]
    fn what_was_cut_off_or_is_no_http_is_no_answer() {
        for bytes in [
            "",
            "HTTP/1.1 200",
            "HTTP/1.1 200 OK\r\nContent-Le",
            "SSH-2.0 200 OK\r\n\r\n",
            "HTTP/1.1 OK\r\n\r\n",
        ] {
            assert_eq!(response(bytes.as_bytes()), None, "{bytes}");
        }
        assert_eq!(response(&[0xff; 40]), None);
    }
}
