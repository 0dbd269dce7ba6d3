//! Servers that answer with the address they were reached at.
//!
//! * TCP, lines: each line is answered by `IP:PORT LINE CLIENT`.
//! * TCP, HTTP: `GET` is answered by a page whose body is `IP:PORT`.
//! * UDP: each datagram is answered by `IP:PORT DATAGRAM CLIENT`.
//!
//! The address is the socket's own: it tells which endpoint a client landed on. `CLIENT` is who the
//! endpoint takes for the client, with its port: it tells whether somebody masqueraded.

use std::{
    io::{self, Write as _},
    net::SocketAddr,
};

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream, UdpSocket},
    task::JoinSet,
};

use super::wire::Listen;

/// The line on stdout that says that every address is being listened on.
pub const READY: &str = "ready";

/// Serves until the process is killed.
pub fn run(listen: &[Listen]) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("cannot start the server's runtime")?;
    runtime.block_on(async {
        let mut servers = JoinSet::new();
        for listener in listen {
            let address = listener.address;
            let explain = || format!("cannot listen on {listener}");
            if listener.udp {
                let socket = UdpSocket::bind(address).await.with_context(explain)?;
                servers.spawn(answer_datagrams(socket, address));
            } else {
                let socket = TcpListener::bind(address).await.with_context(explain)?;
                servers.spawn(accept(socket, address));
            }
        }
        let mut stdout = io::stdout();
        writeln!(stdout, "{READY}")
            .and_then(|()| stdout.flush())
            .context("nobody is listening")?;
        while let Some(ended) = servers.join_next().await {
            ended
                .context("a server panicked")?
                .context("a server failed")?;
        }
        // Nothing to serve: the pod is there, and answers nobody.
        std::future::pending().await
    })
}

async fn answer_datagrams(socket: UdpSocket, own: SocketAddr) -> io::Result<()> {
    let mut datagram = vec![0; 65_536];
    loop {
        let (length, from) = match socket.recv_from(&mut datagram).await {
            // A client went away: ICMP tells about an earlier answer.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            received => received?,
        };
        let mut answer = format!("{own} ").into_bytes();
        answer.extend_from_slice(&datagram[..length]);
        answer.extend_from_slice(format!(" {from}").as_bytes());
        // The client sees a lost answer as a failed attempt; the others go on.
        drop(socket.send_to(&answer, from).await);
    }
}

async fn accept(listener: TcpListener, own: SocketAddr) -> io::Result<()> {
    loop {
        match listener.accept().await {
            // A client that goes away in the middle is its own business.
            Ok((connection, client)) => drop(tokio::spawn(async move {
                drop(converse(connection, own, client).await);
            })),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

async fn converse(connection: TcpStream, own: SocketAddr, client: SocketAddr) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut connection = BufReader::new(connection);
    let mut line = String::new();
    loop {
        line.clear();
        if connection.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let answer = if line.starts_with("GET ") {
            // The headers end at the first empty line.
            while connection.read_line(&mut line).await? > 0 && !line.ends_with("\n\r\n") {}
            let body = format!("{own}\n");
            format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        } else {
            format!("{own} {} {client}\n", line.trim_end())
        };
        connection.get_mut().write_all(answer.as_bytes()).await?;
    }
}
