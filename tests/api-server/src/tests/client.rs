//! A client that sees every byte: answers, chunks, and how they end.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;

use super::ApiServer;

/// A client without any library, so that nothing is smoothed over.
pub(super) struct Client(pub(super) BufReader<TcpStream>);

impl Client {
    /// Asks for `path` with `query`.
    pub(super) fn ask(server: &ApiServer, path: &str, query: &str) -> Self {
        Self::ask_with(server, path, query, "")
    }

    /// The same with header lines, each with its line end.
    pub(super) fn ask_with(server: &ApiServer, path: &str, query: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        write!(
            stream,
            "GET {path}?{query} HTTP/1.1\r\nHost: x\r\n{headers}\r\n"
        )
        .unwrap();
        Self(BufReader::new(stream))
    }

    /// The status line's number and the headers.
    pub(super) fn head(&mut self) -> io::Result<(u16, String)> {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if line == "\r\n" {
                break;
            }
            head.push_str(&line.to_lowercase());
        }
        Ok((head[9..12].parse().unwrap(), head))
    }

    /// The next chunk; `None` at a proper end.
    pub(super) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut size = String::new();
        if self.0.read_line(&mut size)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        self.0.read_exact(&mut chunk)?;
        chunk.truncate(size);
        Ok((size > 0).then_some(chunk))
    }

    /// The body up to its end; whether that is a proper one.
    pub(super) fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            match self.chunk() {
                Ok(Some(chunk)) => body.extend(chunk),
                Ok(None) => return (body, true),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return (body, false),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Lines of a watch until `wanted` accepts one.
    pub(super) fn events(&mut self, mut last: impl FnMut(&Value) -> bool) -> Vec<Value> {
        let (mut text, mut events) = (Vec::new(), Vec::new());
        while let Some(chunk) = self.chunk().unwrap() {
            text.extend(chunk);
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                events.push(serde_json::from_slice::<Value>(&line).unwrap());
                if events.last().is_some_and(&mut last) {
                    return events;
                }
            }
        }
        panic!("the watch ended after {events:?}")
    }
}

/// Status and body of an answer that ends.
pub(super) fn get(server: &ApiServer, path: &str, query: &str) -> (u16, Value) {
    let mut client = Client::ask(server, path, query);
    let (status, head) = client.head().unwrap();
    let body = if head.contains("transfer-encoding: chunked") {
        client.rest().0
    } else {
        let length = head.split("content-length: ").nth(1).unwrap();
        let mut body = vec![0; length.split('\r').next().unwrap().parse().unwrap()];
        client.0.read_exact(&mut body).unwrap();
        body
    };
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}
