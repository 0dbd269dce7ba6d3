//! Chains of kube-proxy that rules of others lead to.

use super::*;

#[test]
fn a_chain_that_a_rule_of_somebody_else_leads_to_stays_and_is_told() {
    in_namespace(|| {
        let theirs = "*nat\n:CNI-HOSTPORT-SETMARK - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n\
                      -A CNI-HOSTPORT-SETMARK -j KUBE-MARK-MASQ\n\
                      -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\nCOMMIT\n";
        restore("iptables-nft", theirs);
        let before = saved("iptables-nft");
        let kube_proxys = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-25FJTMN2OLOPNGWS - [0:0]\n\
                           -A PREROUTING -j KUBE-SERVICES\n\
                           -A KUBE-SERVICES -j KUBE-SVC-25FJTMN2OLOPNGWS\n\
                           -A KUBE-SVC-25FJTMN2OLOPNGWS -j KUBE-MARK-MASQ\nCOMMIT\n";
        restore("iptables-nft", kube_proxys);
        let found = remove_all();
        assert_eq!(
            told(&found),
            ["iptables mode, IPv4: chains in table `nat` of iptables-nft, 2 parts, 3 rules"]
        );
        assert_eq!(found.kept.len(), 1, "{:?}", found.kept);
        assert!(found.kept[0].contains("CNI-HOSTPORT-SETMARK"));
        assert_eq!(saved("iptables-nft"), before);
    });
}

/// What led to endpoints leads nowhere, whoever jumps there.
#[test]
fn a_chain_that_decided_where_connections_go_is_emptied_for_the_rule_that_leads_to_it() {
    for with_programs in [true, false] {
        in_namespace(|| {
            let kube_proxys = "*nat\n:MINE - [0:0]\n:KUBE-SERVICES - [0:0]\n\
                               :KUBE-SVC-25FJTMN2OLOPNGWS - [0:0]\n\
                               -A PREROUTING -j MINE\n-A PREROUTING -j KUBE-SERVICES\n\
                               -A MINE -j KUBE-SERVICES\n\
                               -A KUBE-SERVICES -d 10.96.0.10/32 -j KUBE-SVC-25FJTMN2OLOPNGWS\n\
                               -A KUBE-SVC-25FJTMN2OLOPNGWS -p tcp -j DNAT \
                               --to-destination 10.244.0.9:80\nCOMMIT\n";
            restore("iptables-nft", kube_proxys);
            if with_programs {
                assert_eq!(remove_all().kept.len(), 1);
            } else {
                let (code, said, _) = clean_without_programs(&PinDir::new().unwrap());
                assert_eq!(code, Some(0), "{said}");
                assert!(said.contains("-j KUBE-SERVICES"), "{said}");
            }
            let left = saved("iptables-nft");
            let rules = left.iter().filter(|line| line.contains("-A "));
            let rules: Vec<_> = rules.map(String::as_str).collect();
            assert_eq!(
                rules,
                ["nat -A PREROUTING -j MINE", "nat -A MINE -j KUBE-SERVICES"]
            );
            assert!(!left.iter().any(|line| line.contains("KUBE-SVC")));
            assert_eq!(find().leftovers, Vec::new());
        });
    }
}
