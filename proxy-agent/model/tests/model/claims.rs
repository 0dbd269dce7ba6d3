//! Two Services that claim one frontend, of each kind: one has it, the same whatever the order of
//! events.

use std::num::NonZeroU16;

use proxy_model::{ClusterEvent, ExternalAccess, FrontendKind, Model, Service, Settings};

use super::{diagnostics, frontends, service};

const ADDRESS: &str = "203.0.113.1";

/// The Service `shop/{name}`, which asks for `203.0.113.1:80` as `kind`, or for NodePort 30080.
fn claimant(name: &str, kind: FrontendKind) -> Service {
    let own = match name {
        "a" => "10.96.0.1",
        _ => "10.96.0.2",
    };
    let mut service = service(name, own, &[("http", 80)]);
    let address = ADDRESS.parse().unwrap();
    let mut external = ExternalAccess::default();
    match kind {
        FrontendKind::ClusterIp => service.cluster_ips = vec![address],
        FrontendKind::LoadBalancerIp => external.load_balancer_ips = vec![address],
        FrontendKind::ExternalIp => external.ips = vec![address],
        FrontendKind::NodePort => service.ports[0].node_port = NonZeroU16::new(30080),
    }
    service.external = Some(Box::new(external));
    service
}

/// Who has the frontend, and who is told that it has not: `b; a: spec.externalIPs`.
fn outcome(model: &Model) -> String {
    let all = frontends(model);
    let contested = all
        .iter()
        .filter(|line| line.contains(ADDRESS) || line.contains("*:30080"));
    let holders: Vec<_> = contested
        .filter_map(|line| line.split(':').next())
        .collect();
    let told: Vec<_> = diagnostics(model)
        .iter()
        .map(|line| {
            let mut parts = line.trim_start_matches("Service shop/").split(": ");
            format!("; {}: {}", parts.next().unwrap(), parts.next().unwrap())
        })
        .collect();
    holders.join(" ") + &told.concat()
}

#[test]
fn two_claims_on_one_frontend_resolve_alike_in_any_order() {
    use FrontendKind::{ClusterIp, ExternalIp, LoadBalancerIp, NodePort};

    for (a, b, expected) in [
        (ClusterIp, ClusterIp, "a; b: spec.clusterIPs"),
        (
            LoadBalancerIp,
            LoadBalancerIp,
            "a; b: status.loadBalancer.ingress",
        ),
        (ExternalIp, ExternalIp, "a; b: spec.externalIPs"),
        (NodePort, NodePort, "a; b: spec.ports"),
        // The kind counts before the name.
        (
            ClusterIp,
            LoadBalancerIp,
            "a; b: status.loadBalancer.ingress",
        ),
        (
            LoadBalancerIp,
            ClusterIp,
            "b; a: status.loadBalancer.ingress",
        ),
        (ClusterIp, ExternalIp, "a; b: spec.externalIPs"),
        (ExternalIp, ClusterIp, "b; a: spec.externalIPs"),
        (LoadBalancerIp, ExternalIp, "a; b: spec.externalIPs"),
        (ExternalIp, LoadBalancerIp, "b; a: spec.externalIPs"),
    ] {
        let said = format!("{a:?}, {b:?}");
        let services = [claimant("a", a), claimant("b", b)];
        let names = services.each_ref().map(|service| service.name.clone());
        for (first, second) in [(0, 1), (1, 0)] {
            let mut model = Model::new("node-a");
            let come = |model: &mut Model, which: usize| {
                model.apply(ClusterEvent::ServiceUpserted(services[which].clone()));
                model.update();
            };
            come(&mut model, first);
            assert_eq!(outcome(&model), &*names[first].name, "{said}");
            come(&mut model, second);
            assert_eq!(outcome(&model), expected, "{said}");
            let both = model.state().clone();

            // Either may leave and come back.
            for leaves in [first, second] {
                model.apply(ClusterEvent::ServiceDeleted(names[leaves].clone()));
                model.update();
                assert_eq!(outcome(&model), &*names[1 - leaves].name, "{said}");
                come(&mut model, leaves);
                assert_eq!(*model.state(), both, "{said}");
            }
        }
    }
}

/// Any user may write external IPs. Who took the API server's would keep the agent from hearing that
/// the Service is gone.
#[test]
fn no_external_ip_is_served_where_the_agent_reaches_the_api_server() {
    use FrontendKind::{ClusterIp, ExternalIp, LoadBalancerIp};

    for (reserved, kind, expected) in [
        ("203.0.113.1:80", ExternalIp, "; a: spec.externalIPs"),
        (
            "[::ffff:203.0.113.1]:80",
            ExternalIp,
            "; a: spec.externalIPs",
        ),
        ("203.0.113.1:6443", ExternalIp, "a"),
        ("203.0.113.2:80", ExternalIp, "a"),
        // Users may not write these, and they are the API server's own at times.
        ("203.0.113.1:80", ClusterIp, "a"),
        ("203.0.113.1:80", LoadBalancerIp, "a"),
    ] {
        let settings = Settings {
            reserved: vec![reserved.parse().unwrap()],
            ..Settings::from("node-a")
        };
        let service = ClusterEvent::ServiceUpserted(claimant("a", kind));
        let model = Model::after(settings, [service]);
        assert_eq!(outcome(&model), expected, "{reserved} {kind:?}");
    }
}

#[test]
fn one_address_as_two_kinds_is_served_as_the_first_without_a_word() {
    let mut web = claimant("a", FrontendKind::LoadBalancerIp);
    if let Some(external) = &mut web.external {
        external.ips = vec![ADDRESS.parse().unwrap()];
    }
    let mut model = Model::new("node-a");
    model.apply(ClusterEvent::ServiceUpserted(web));
    model.update();
    let services = model.state().services.values();
    let kinds: Vec<_> = services
        .flat_map(|service| &service.frontends)
        .map(|frontend| frontend.kind)
        .collect();
    assert_eq!(
        kinds,
        [FrontendKind::ClusterIp, FrontendKind::LoadBalancerIp]
    );
    assert!(diagnostics(&model).is_empty());
}

#[test]
fn a_service_that_moves_its_claim_frees_it_for_the_next() {
    let mut model = Model::new("node-a");
    for name in ["a", "b"] {
        let service = claimant(name, FrontendKind::NodePort);
        model.apply(ClusterEvent::ServiceUpserted(service));
    }
    model.update();
    assert_eq!(outcome(&model), "a; b: spec.ports");
    let mut moved = claimant("a", FrontendKind::NodePort);
    moved.ports[0].node_port = NonZeroU16::new(30081);
    model.apply(ClusterEvent::ServiceUpserted(moved));
    assert_eq!(super::changes(&model.update()), ["+a:http", "+b:http"]);
    assert_eq!(outcome(&model), "b");
}
