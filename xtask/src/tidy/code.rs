//! Just enough of Rust's lexical rules to tell code from comments and literals, and items from each other.

/// The code of a Rust source: comments become blanks, string and character literals empty; lines stay lines.
pub(super) fn only(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let after_word = out.ends_with(is_word);
        let (taken, is_code) = match first {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), false),
            '/' if rest.starts_with("/*") => (block_comment(rest), false),
            '"' => (quoted(rest, '"'), false),
            'r' if !after_word || out.ends_with('b') || out.ends_with('c') => match raw_string(rest) {
                Some(length) => (length, false),
                None => (1, true),
            },
            '\'' => match character(rest) {
                Some(length) => (length, false),
                None => (1, true),
            },
            _ => (first.len_utf8(), true),
        };
        if is_code {
            out.push_str(&rest[..taken]);
        } else {
            out.push(' ');
            out.extend(rest[..taken].chars().filter(|c| *c == '\n'));
        }
        rest = &rest[taken..];
    }
    out
}

/// The code without its items under `#[cfg(test)]`.
pub(super) fn without_tests(code: &str) -> String {
    const TEST: &str = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(start) = rest.find(TEST) {
        let (before, item) = rest.split_at(start);
        let end = TEST.len() + item_end(&item[TEST.len()..]);
        out.push_str(before);
        out.extend(item[..end].chars().filter(|c| *c == '\n'));
        rest = &item[end..];
    }
    out.push_str(rest);
    out
}

/// Where the item ends that begins the code: behind its semicolon outside all brackets, or behind its closing brace if
/// no semicolon follows that.
pub(super) fn item_end(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, character) in code.char_indices() {
        depth = nested(depth, character);
        let ends = match character {
            ';' => true,
            '}' => !code[at + 1..].trim_start().starts_with(';'),
            _ => false,
        };
        if depth == 0 && ends {
            return at + 1;
        }
    }
    code.len()
}

/// How many brackets are open behind this character.
pub(super) fn nested(depth: usize, character: char) -> usize {
    match character {
        '{' | '(' | '[' => depth + 1,
        '}' | ')' | ']' => depth.saturating_sub(1),
        _ => depth,
    }
}

/// Whether the character can be part of an identifier.
pub(super) fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

/// The identifier at the beginning.
pub(super) fn word(code: &str) -> &str {
    code.split(|c| !is_word(c)).next().unwrap_or("")
}

/// Offsets at which `needle` stands in the code as a word of its own, not as part of a longer one.
pub(super) fn find_word<'a>(code: &'a str, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(needle)
        .map(|(at, _)| at)
        .filter(move |at| !code[..*at].ends_with(is_word) && !code[at + needle.len()..].starts_with(is_word))
}

/// Number of the line at this offset, from 1.
pub(super) fn line(code: &str, offset: usize) -> usize {
    code[..offset].matches('\n').count() + 1
}

/// Length of the block comment at the beginning; they nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Length of the literal at the beginning, which ends with the quote with which it begins.
fn quoted(text: &str, quote: char) -> usize {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == quote {
            return at + 1;
        }
    }
    text.len()
}

/// Length of the raw string at the beginning (`r"…"`, `r#"…"#`), if it is one.
fn raw_string(text: &str) -> Option<usize> {
    let hashes = text[1..].bytes().take_while(|b| *b == b'#').count();
    let body = text[1 + hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = body
        .find(&close)
        .map_or(text.len(), |at| 2 + hashes + at + close.len());
    Some(end)
}

/// Length of the character literal at the beginning, if it is one and not a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut characters = text.char_indices().skip(1);
    let (_, first) = characters.next()?;
    let (next, second) = characters.next()?;
    match (first, second) {
        ('\\', _) => Some(quoted(text, '\'')),
        (_, '\'') => Some(next + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blank_and_lines_stay() {
        for (source, code) in [
            ("a // unsafe\nb", "a  \nb"),
            ("a /* x /* y */ \n z */ b", "a  \n b"),
            (r#"f("a \" // b", c)"#, "f( , c)"),
            (r###"f(r#"a " b"#, r"\", br"x")"###, "f( ,  , b )"),
            (
                r"let c = '\''; let d = '/'; let e: &'static str;",
                "let c =  ; let d =  ; let e: &'static str;",
            ),
            ("let over = for_r;", "let over = for_r;"),
            ("\"never closed", " "),
        ] {
            assert_eq!(only(source), code, "{source}");
        }
    }

    #[test]
    fn items_of_tests_are_left_out() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { c() }\n}\nfn d() {}\n#[cfg(test)]\nuse x::{y};\nfn e() {}";
        assert_eq!(without_tests(code), "fn a() {}\n\n\n\n\nfn d() {}\n\n\nfn e() {}");
    }

    #[test]
    fn an_item_ends_at_its_own_brace_or_semicolon() {
        assert_eq!(
            item_end("pub struct A(pub [u8; 4]); rest"),
            "pub struct A(pub [u8; 4]);".len()
        );
        assert_eq!(
            item_end("const A: B = B { c: 1 }; rest"),
            "const A: B = B { c: 1 };".len()
        );
        assert_eq!(
            item_end("pub struct A { a: [u8; 4] } rest"),
            "pub struct A { a: [u8; 4] }".len()
        );
    }

    #[test]
    fn words_are_whole_words() {
        let code = "unsafe_code unsafe not_unsafe unsafe(x)";
        assert_eq!(find_word(code, "unsafe").collect::<Vec<_>>(), [12, 30]);
        assert_eq!(line("a\nb\nc", 4), 3);
        assert_eq!(word("abc::def"), "abc");
    }
}
