//! Numbers of `linux/rtnetlink.h`, `linux/if_link.h`, `linux/if_addr.h`, `linux/if_arp.h`,
//! `linux/pkt_sched.h`, `linux/pkt_cls.h` and `linux/nexthop.h`, by the names they have there.

pub const RTM_GETLINK: u16 = 18;
pub const RTM_GETADDR: u16 = 22;
pub const RTM_GETROUTE: u16 = 26;
pub const RTM_NEWQDISC: u16 = 36;
pub const RTM_DELQDISC: u16 = 37;
pub const RTM_GETQDISC: u16 = 38;
pub const RTM_NEWTFILTER: u16 = 44;
pub const RTM_DELTFILTER: u16 = 45;
pub const RTM_GETTFILTER: u16 = 46;
pub const RTM_GETNEXTHOP: u16 = 106;

pub const RTNLGRP_LINK: u32 = 1;
pub const RTNLGRP_TC: u32 = 4;
pub const RTNLGRP_IPV4_IFADDR: u32 = 5;
pub const RTNLGRP_IPV4_ROUTE: u32 = 7;
pub const RTNLGRP_IPV4_RULE: u32 = 8;
pub const RTNLGRP_IPV6_IFADDR: u32 = 9;
pub const RTNLGRP_IPV6_ROUTE: u32 = 11;
pub const RTNLGRP_IPV6_RULE: u32 = 19;
pub const RTNLGRP_NEXTHOP: u32 = 32;

pub const IFF_UP: u32 = 1;
pub const IFF_LOOPBACK: u32 = 1 << 3;
pub const IFF_LOWER_UP: u32 = 1 << 16;

pub const IFLA_IFNAME: u16 = 3;
pub const IFLA_MTU: u16 = 4;
pub const IFLA_LINK: u16 = 5;
pub const IFLA_MASTER: u16 = 10;
pub const IFLA_LINKINFO: u16 = 18;
pub const IFLA_EXT_MASK: u16 = 29;
pub const IFLA_LINK_NETNSID: u16 = 37;
pub const IFLA_INFO_KIND: u16 = 1;
pub const IFLA_INFO_DATA: u16 = 2;
pub const IFLA_BR_NF_CALL_IPTABLES: u16 = 36;
pub const IFLA_BR_NF_CALL_IP6TABLES: u16 = 37;
pub const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;

pub const ARPHRD_ETHER: u16 = 1;
pub const ARPHRD_PPP: u16 = 512;
pub const ARPHRD_RAWIP: u16 = 519;
pub const ARPHRD_TUNNEL: u16 = 768;
pub const ARPHRD_TUNNEL6: u16 = 769;
pub const ARPHRD_LOOPBACK: u16 = 772;
pub const ARPHRD_SIT: u16 = 776;
pub const ARPHRD_IPGRE: u16 = 778;
pub const ARPHRD_IP6GRE: u16 = 823;
pub const ARPHRD_NONE: u16 = 0xfffe;

pub const IFA_ADDRESS: u16 = 1;
pub const IFA_LOCAL: u16 = 2;
pub const IFA_FLAGS: u16 = 8;
/// Of IPv4: another one of the same network came first.
pub const IFA_F_SECONDARY: u32 = 1;
/// Of IPv6: made for privacy, and not for long. The same bit.
pub const IFA_F_TEMPORARY: u32 = IFA_F_SECONDARY;
pub const IFA_F_DADFAILED: u32 = 1 << 3;
pub const IFA_F_DEPRECATED: u32 = 1 << 5;
pub const IFA_F_TENTATIVE: u32 = 1 << 6;
pub const RT_SCOPE_UNIVERSE: u8 = 0;
pub const RT_SCOPE_LINK: u8 = 253;

pub const RTN_UNICAST: u8 = 1;
pub const RTA_DST: u16 = 1;
pub const RTA_OIF: u16 = 4;
pub const RTA_GATEWAY: u16 = 5;
pub const RTA_MULTIPATH: u16 = 9;
pub const RTA_TABLE: u16 = 15;
pub const RTA_VIA: u16 = 18;
pub const RTA_NH_ID: u16 = 30;

pub const NHA_ID: u16 = 1;
pub const NHA_GROUP: u16 = 2;
pub const NHA_OIF: u16 = 5;
pub const NHA_GATEWAY: u16 = 6;

pub const TC_H_CLSACT: u32 = 0xffff_fff1;
pub const TC_H_MIN_INGRESS: u32 = 0xffff_fff2;
pub const TC_H_MIN_EGRESS: u32 = 0xffff_fff3;
pub const TC_H_MAJ_CLSACT: u32 = 0xffff_0000;

pub const TCA_KIND: u16 = 1;
pub const TCA_OPTIONS: u16 = 2;
pub const TCA_CHAIN: u16 = 11;
pub const TCA_BPF_FD: u16 = 6;
pub const TCA_BPF_NAME: u16 = 7;
pub const TCA_BPF_FLAGS: u16 = 8;
pub const TCA_BPF_ID: u16 = 11;
pub const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
