//! Whom to turn to.

use super::{
    super::{Access, ApiServerOptions},
    *,
};

#[tokio::test]
async fn each_server_is_tried_at_once_and_when_none_works_all_are_left_alone() {
    let options = ApiServerOptions {
        masters: ["http://192.0.2.1:1", "http://192.0.2.2:1"]
            .map(str::to_owned)
            .into(),
        ..ApiServerOptions::new("node-a")
    };
    let access = Access::find(&options).await.unwrap();
    let servers = Servers::new(access, options.timing, Arc::default()).unwrap();
    let fails = |server| {
        let failure = Failure::Unreachable("connection refused".to_owned());
        servers.failed(&Failed { server, failure })
    };
    assert!(fails(0), "the other one was not tried yet");
    assert_eq!(servers.current(), 1);
    assert!(!fails(1), "both were tried");
    assert!(!fails(0), "and again");
    assert!(!fails(0), "by another follower that asked the same");
    servers.worked(servers.current());
    assert!(fails(servers.current()), "one worked meanwhile");
}
