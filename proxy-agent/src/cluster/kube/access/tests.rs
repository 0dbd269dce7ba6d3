//! What was typed and what is in files and the environment, to servers and credentials.

use std::{fs, sync::Arc};

use super::*;
use crate::cluster::kube::{ApiServerOptions, Timing, servers::Servers};

#[test]
fn masters_are_urls_or_hosts_with_a_port() {
    let urls = |typed: &[&str]| {
        let typed: Vec<_> = typed.iter().map(|typed| (*typed).to_owned()).collect();
        masters(&typed).map(|urls| urls.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(
        urls(&[
            "https://192.0.2.1:6443, http://[2001:db8::1]:8080/",
            "192.0.2.3:6443"
        ])
        .unwrap(),
        [
            "https://192.0.2.1:6443/",
            "http://[2001:db8::1]:8080/",
            "https://192.0.2.3:6443/"
        ]
    );
    for bad in [
        "",
        "ftp://192.0.2.1",
        "https://",
        "https:// x",
        "https://a,",
    ] {
        let error = urls(&[bad]).unwrap_err();
        assert!(error.to_string().contains("write a URL such as"), "{error}");
    }
}

#[test]
fn the_address_of_the_kubernetes_service_is_told_from_others() {
    let environment = |host: &str, cluster_ip: Option<&str>| Environment {
        host: Some(host.to_owned()),
        port: Some("443".to_owned()),
        cluster_ip: cluster_ip.map(str::to_owned),
    };
    for (host, cluster_ip, own) in [
        ("10.96.0.1", Some("10.96.0.1"), true),
        ("10.96.0.1", None, true),
        ("192.0.2.1", Some("10.96.0.1"), false),
        ("fd00:0::1", Some("fd00::1"), true),
        ("kubernetes.default.svc", Some("10.96.0.1"), true),
        ("kubernetes", None, true),
        ("api.example.org", Some("10.96.0.1"), false),
        ("api.example.org", None, false),
    ] {
        let environment = environment(host, cluster_ip);
        assert_eq!(environment.is_own_service(), own, "{environment:?}");
    }
    assert!(!Environment::default().is_own_service());
}

#[test]
fn a_service_that_is_in_place_may_be_used() {
    let environment = Environment {
        host: Some("10.96.0.1".to_owned()),
        port: Some("443".to_owned()),
        cluster_ip: None,
    };
    assert!(environment.is_served(&|address| address == "10.96.0.1:443".parse().unwrap()));
    assert!(!environment.is_served(&|_| false));
    assert!(!Environment::default().is_served(&|_| true));
}

#[test]
fn what_kubelet_sets_names_a_server() {
    let server = |host: &str, port: &str| {
        let environment = Environment {
            host: Some(host.to_owned()),
            port: Some(port.to_owned()),
            cluster_ip: None,
        };
        environment.server().map(|url| url.to_string())
    };
    assert_eq!(
        server("10.96.0.1", "443").unwrap(),
        "https://10.96.0.1:443/"
    );
    assert_eq!(
        server("fd00::1", "6443").unwrap(),
        "https://[fd00::1]:6443/"
    );
    assert_eq!(
        server("api.example.org", "443").unwrap(),
        "https://api.example.org:443/"
    );
    assert!(matches!(
        server("10.96.0.1", "x y"),
        Err(ConnectError::Environment { .. })
    ));
    assert!(matches!(
        Environment::default().server(),
        Err(ConnectError::NoServer)
    ));
}

/// A kubeconfig with `cluster` and `user`, as YAML within braces.
fn options(cluster: &str, user: &str, masters: &[&str]) -> (tempfile::TempDir, ApiServerOptions) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         clusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n\
         contexts: [{{name: a, context: {{cluster: c, user: u}}}}]\n"
    );
    fs::write(&path, text).unwrap();
    let mut options = ApiServerOptions::new("node-a");
    options.kubeconfig = Some(path);
    options.masters = masters.iter().map(|master| (*master).to_owned()).collect();
    (dir, options)
}

#[tokio::test]
async fn a_kubeconfig_names_server_and_credentials() {
    let (_dir, options) = options(r#"server: "https://192.0.2.1:6443""#, "tokenFile: t", &[]);
    let access = Access::find(&options).await.unwrap();
    assert_eq!(access.servers, ["https://192.0.2.1:6443"]);
    assert!(access.token_file.unwrap().ends_with("t"));
    assert!(access.config.auth_info.token_file.is_none());
}

#[tokio::test]
async fn masters_replace_the_server_of_the_kubeconfig() {
    let server = r#"server: "https://192.0.2.1:6443""#;
    let (_dir, options) = options(
        server,
        "token: abc, tokenFile: t",
        &["192.0.2.2:1,192.0.2.3:1"],
    );
    let access = Access::find(&options).await.unwrap();
    assert_eq!(
        access.servers,
        ["https://192.0.2.2:1", "https://192.0.2.3:1"]
    );
    // A token in the kubeconfig itself comes before one in a file.
    assert!(access.token_file.is_none());
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_named() {
    let (dir, mut options) = options("server: 7 7", "", &[]);
    let error = Access::find(&options).await.err().unwrap();
    assert!(matches!(error, ConnectError::Kubeconfig { .. }), "{error}");
    options.kubeconfig = Some(dir.path().join("missing"));
    let error = Access::find(&options).await.err().unwrap();
    assert!(error.to_string().contains("missing"), "{error}");
    options.kubeconfig = Some("/dev/zero".into());
    let error = Access::find(&options).await.err().unwrap();
    assert!(error.to_string().contains("it is a device"), "{error}");
    let proxy = r#"server: "https://192.0.2.1", proxy-url: "http://192.0.2.9:3128""#;
    let (_dir, options) = self::options(proxy, "", &[]);
    let error = Access::find(&options).await.err().unwrap();
    assert!(matches!(error, ConnectError::ProxyUrl { .. }), "{error}");
}

#[tokio::test]
async fn a_master_alone_is_enough() {
    let mut options = ApiServerOptions::new("node-a");
    options.masters = vec!["http://127.0.0.1:8080".to_owned()];
    let access = Access::find(&options).await.unwrap();
    assert_eq!(access.servers, ["http://127.0.0.1:8080"]);
}

#[tokio::test]
async fn credentials_do_not_leave_the_host_in_plain_text() {
    let credentials = [
        "token: SECRET",
        "tokenFile: t",
        "username: u, password: SECRET",
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: SECRET}",
        "auth-provider: {name: gcp, config: {access-token: SECRET}}",
    ];
    let plain = r#"server: "http://192.0.2.1:8080""#;
    for user in credentials {
        for (cluster, masters) in [
            (plain, &[][..]),
            (
                r#"server: "https://192.0.2.1""#,
                &["https://192.0.2.2", "http://192.0.2.1:8080"],
            ),
        ] {
            let (_dir, options) = options(cluster, user, masters);
            let error = Access::find(&options).await.err().unwrap();
            assert!(matches!(error, ConnectError::PlainText { .. }), "{error}");
            let text = format!("{error} {error:?}");
            assert!(
                text.contains("http://192.0.2.1:8080") && !text.contains("SECRET"),
                "{text}"
            );
        }
        for here in [
            "http://127.0.0.1:8080",
            "http://[::1]:8080",
            "http://localhost:8080",
        ] {
            let (_dir, options) = options(&format!("server: \"{here}\""), user, &[]);
            Access::find(&options).await.map(drop).unwrap();
        }
    }
    // Nothing that anybody could use is told there.
    let (_dir, options) = options(plain, "", &[]);
    Access::find(&options).await.map(drop).unwrap();
}

#[tokio::test]
async fn a_url_holds_no_credentials() {
    for url in [
        "https://admin:SECRET@192.0.2.1",
        "https://SECRET@192.0.2.1:6443/x",
    ] {
        for error in [
            Access::find(&options(&format!("server: \"{url}\""), "", &[]).1).await,
            Access::find(&options("server: \"https://192.0.2.1\"", "", &[url]).1).await,
        ] {
            let error = error.err().unwrap();
            let text = format!("{error} {error:?}");
            assert!(
                text.contains("192.0.2.1") && !text.contains("SECRET"),
                "{text}"
            );
        }
    }
    for wrong in ["ftp://u:SECRET@h", "u:SECRET@h h", "https://u:SECRET/@h h"] {
        let (_dir, options) = options("server: \"https://192.0.2.1\"", "", &[wrong]);
        let debug = format!("{options:?}");
        let error = Access::find(&options).await.err().unwrap();
        let text = format!("{error} {error:?} {debug}");
        assert!(!text.contains("SECRET"), "{text}");
    }
    let proxy = r#"server: "https://192.0.2.1", proxy-url: "http://u:SECRET@192.0.2.9:3128""#;
    let (_dir, options) = options(proxy, "", &[]);
    let error = Access::find(&options).await.err().unwrap();
    assert!(matches!(error, ConnectError::ProxyUrl { .. }), "{error}");
    assert!(!error.to_string().contains("SECRET"), "{error}");
}

#[tokio::test]
async fn what_is_in_a_kubeconfig_is_never_repeated() {
    for user in [
        "token: SECRET, token: SECRET",
        "token: {SECRET: SECRET}",
        "token: SECRET, username: [SECRET",
        "SECRET, exec: SECRET",
        "exec: {command: 7, args: SECRET}",
        "client-certificate-data: SECRET, client-key-data: SECRET",
    ] {
        let (dir, options) = options("server: \"https://192.0.2.1\"", user, &[]);
        let failed = match Access::find(&options).await {
            Err(error) => error,
            Ok(access) => Servers::new(access, Timing::default(), Arc::default())
                .err()
                .unwrap(),
        };
        let text = format!("{failed} {failed:?}");
        assert!(!text.contains("SECRET"), "{user}: {text}");
        drop(dir);
    }
}

#[tokio::test]
async fn what_an_exec_plugin_prints_is_never_repeated() {
    for (script, part) in [
        ("echo SECRET; echo SECRET >&2; exit 3", "exit status: 3"),
        ("echo 'SECRET: ['", "is not an ExecCredential"),
        (
            "echo '{\"status\": \"SECRET\"}'",
            "is not an ExecCredential",
        ),
    ] {
        let plugin = format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, \
             args: [\"-c\", \"{}\"], interactiveMode: Never}}",
            script.replace('"', "\\\"")
        );
        let (_dir, options) = options("server: \"https://192.0.2.1\"", &plugin, &[]);
        let access = Access::find(&options).await.unwrap();
        let servers = Servers::new(access, Timing::default(), Arc::default());
        let error = servers.err().unwrap();
        let text = format!("{error} {error:?}");
        assert!(text.contains(part) && !text.contains("SECRET"), "{text}");
    }
}
