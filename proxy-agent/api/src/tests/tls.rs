//! Mutual TLS: who has a certificate of the same authority comes in, and nobody else.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::{
    brain::{soon, until},
    states,
};
use crate::{
    Replica, Report, Target, TlsFiles,
    client::{self, Client, Follower},
    server::{Listener, Publisher, SOCKET_MODE, serve},
};

/// An authority, and the files that it makes.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate for `name` in `dir`, its key, and the certificate of this authority.
    fn files(&self, dir: &Path, name: &str) -> TlsFiles {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let write = |kind: &str, text: String| {
            let path = dir.join(format!("{name}.{kind}"));
            fs::write(&path, text).unwrap();
            path
        };
        TlsFiles {
            cert: write("crt", certificate.pem()),
            key: write("key", key.serialize_pem()),
            ca: write("ca", self.pem.clone()),
        }
    }
}

/// A brain that is served with mutual TLS on a port that the system chose.
struct Secured {
    publisher: Publisher,
    target: Target,
    dir: TempDir,
}

impl Secured {
    async fn start(authority: &Authority) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let files = authority.files(dir.path(), "localhost");
        let target: Target = "tls://localhost:0".parse().unwrap();
        let listener = Listener::open(target, SOCKET_MODE, Some(files))
            .await
            .unwrap();
        let publisher = Publisher::new(|_| {});
        publisher.publish(&states::numbered(2, 1), vec![]);
        let target = listener.target();
        tokio::spawn(serve(publisher.clone(), listener));
        Self {
            publisher,
            target,
            dir,
        }
    }

    fn options(&self, tls: Option<TlsFiles>) -> client::ClientOptions {
        client::ClientOptions {
            target: self.target.clone(),
            tls,
            token_file: None,
            name: "one".parse().unwrap(),
            lacks: vec![],
        }
    }

    /// What comes of asking for the state.
    async fn ask(&self, options: &client::ClientOptions) -> Result<usize, String> {
        let told = async {
            let client = Client::connect(options).await?;
            client.next(None).await
        };
        match soon(told).await {
            Ok(batch) => Ok(batch.operations.len()),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[tokio::test]
async fn who_has_a_certificate_of_the_authority_comes_in() {
    let authority = Authority::new();
    let brain = Secured::start(&authority).await;
    let files = authority.files(brain.dir.path(), "node-a");
    let options = brain.options(Some(files));
    assert_eq!(brain.ask(&options).await, Ok(3));
    let mut follower = Follower::new(options, None);
    let mut replica = Replica::new();
    until(&mut follower, &mut replica, brain.publisher.token()).await;
    assert_eq!(replica.state(), &states::numbered(2, 1));
}

#[tokio::test]
async fn nobody_else_comes_in() {
    let (authority, other) = (Authority::new(), Authority::new());
    let brain = Secured::start(&authority).await;
    let ours = authority.files(brain.dir.path(), "node-a");
    let theirs = other.files(brain.dir.path(), "node-b");

    // A certificate of another authority, by a client that trusts ours.
    let stranger = TlsFiles {
        ca: ours.ca.clone(),
        ..theirs.clone()
    };
    let refused = brain.ask(&brain.options(Some(stranger))).await;
    assert!(refused.is_err(), "{refused:?}");

    // A client that trusts another authority does not believe the brain.
    let distrustful = TlsFiles {
        ca: theirs.ca,
        ..ours.clone()
    };
    let refused = brain
        .ask(&brain.options(Some(distrustful)))
        .await
        .unwrap_err();
    assert!(refused.contains("invalid peer certificate"), "{refused}");

    // Without TLS.
    let mut options = brain.options(None);
    let Target::Tls(host) = options.target.clone() else {
        panic!("{:?}", options.target);
    };
    options.target = Target::Tcp(host);
    assert!(brain.ask(&options).await.is_err());

    // And ours still does.
    assert_eq!(brain.ask(&brain.options(Some(ours))).await, Ok(3));
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    let brain = Secured::start(&authority).await;
    let files = authority.files(brain.dir.path(), "node-a");
    let needs = brain.ask(&brain.options(None)).await.unwrap_err();
    assert!(needs.contains("needs a certificate"), "{needs}");
    let missing = TlsFiles {
        key: brain.dir.path().join("nothing"),
        ..files.clone()
    };
    let error = brain.ask(&brain.options(Some(missing))).await.unwrap_err();
    assert!(error.starts_with("cannot read "), "{error}");
    assert!(error.contains("nothing: No such file"), "{error}");
    fs::write(&files.cert, "no certificate").unwrap();
    let error = brain
        .ask(&brain.options(Some(files.clone())))
        .await
        .unwrap_err();
    assert!(error.starts_with("cannot use "), "{error}");
    let target: Target = "tls://localhost:0".parse().unwrap();
    let listener = Listener::open(target.clone(), SOCKET_MODE, None).await;
    let error = listener.unwrap_err().to_string();
    assert!(error.contains("needs a certificate"), "{error}");
    let listener = Listener::open(target, SOCKET_MODE, Some(files)).await;
    let error = listener.unwrap_err().to_string();
    assert!(error.contains("node-a.crt"), "{error}");
}

#[tokio::test]
async fn certificates_can_be_replaced_while_a_client_runs() {
    let authority = Authority::new();
    let brain = Secured::start(&authority).await;
    let files = Authority::new().files(brain.dir.path(), "node-a");
    let mut follower = Follower::new(brain.options(Some(files)), None);
    assert!(matches!(
        soon(follower.next()).await,
        client::Event::Lost(_)
    ));
    // Under the same names.
    authority.files(brain.dir.path(), "node-a");
    let mut replica = Replica::new();
    until(&mut follower, &mut replica, brain.publisher.token()).await;
}

#[tokio::test]
async fn a_client_is_called_as_its_certificate_says() {
    let authority = Authority::new();
    let brain = Secured::start(&authority).await;
    let files = authority.files(brain.dir.path(), "node-a");
    // It calls itself `one`.
    let options = brain.options(Some(files));
    let client = soon(Client::connect(&options)).await.unwrap();
    soon(client.report(&Report::default())).await.unwrap();
    let _stream = soon(client.watch(None)).await.unwrap();
    let all = brain.publisher.clients();
    assert_eq!(
        (all.len(), all[0].name.as_str(), all[0].streams),
        (1, "node-a", 1)
    );
}

#[tokio::test]
async fn certificates_of_a_brain_can_be_replaced_while_it_runs() {
    let (authority, next) = (Authority::new(), Authority::new());
    let brain = Secured::start(&authority).await;
    let before = brain.options(Some(authority.files(brain.dir.path(), "node-a")));
    let after = brain.options(Some(next.files(brain.dir.path(), "node-b")));
    assert_eq!(brain.ask(&before).await, Ok(3));
    brain.ask(&after).await.unwrap_err();
    // A half of it: the brain goes on as before.
    fs::write(brain.dir.path().join("localhost.crt"), "").unwrap();
    assert_eq!(brain.ask(&before).await, Ok(3));
    next.files(brain.dir.path(), "localhost");
    assert_eq!(brain.ask(&after).await, Ok(3));
    brain.ask(&before).await.unwrap_err();
}
