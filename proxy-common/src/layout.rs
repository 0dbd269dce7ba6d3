//! Layouts that programs and agent of different builds must share, asserted at compile time for
//! both targets. A failure here means: raise the ABI version, then change the number.

use core::mem::offset_of;

use crate::{
    affinity::{AffinityKey, AffinityValue, ClientKey},
    counters::Counters,
    endpoint::{MemberKey, MemberValue, SetKey, SetValue, SlotKey, SlotValue},
    flow::{Flows, PEERS, Peer, Translation},
    frontend::{FrontendKey, FrontendValue},
    names::{EDGE_MAPS, EDGE_PROGRAMS, MAPS, SOCKET_PROGRAMS},
    node::{NodeAddressKey, NodeAddressValue},
    ranges::{RangeData, RangeKey, RangeValue},
    service::{ServiceKey, ServiceValue},
    track::{
        ConnectionKey, ConnectionValue, FragmentKey, FragmentValue, Prefix, Settings, SourceKey,
        SourceValue, reason::Counted,
    },
};

macro_rules! layout {
    ($($type:ty: $size:literal { $($field:ident @ $offset:literal),* })*) => {
        $(const _: () = {
            assert!(size_of::<$type>() == $size);
            assert!(align_of::<$type>() <= 8);
            $(assert!(offset_of!($type, $field) == $offset);)*
        };)*
    };
}

layout! {
    FrontendKey: 20 { address @ 0, port @ 16, protocol @ 18, scope @ 19 }
    FrontendValue: 24 { service @ 0, cluster_set @ 4, local_set @ 8, flags @ 12, affinity @ 16,
        check @ 20 }
    NodeAddressKey: 16 { address @ 0 }
    NodeAddressValue: 4 { present @ 0 }
    RangeKey: 24 { prefix @ 0, service @ 4, address @ 8 }
    RangeData: 20 { service @ 0, address @ 4 }
    RangeValue: 8 { service @ 0, check @ 4 }
    AffinityKey: 16 { client @ 0, service @ 8, claim @ 12 }
    AffinityValue: 16 { last_used @ 0, endpoint @ 8, check @ 12 }
    SetKey: 4 { set @ 0 }
    SetValue: 8 { count @ 0, check @ 4 }
    SlotKey: 8 { set @ 0, index @ 4 }
    SlotValue: 28 { endpoint @ 0, address @ 4, port @ 20, flags @ 22, check @ 24 }
    MemberKey: 8 { set @ 0, endpoint @ 4 }
    MemberValue: 4 { index @ 0 }
    ServiceKey: 4 { service @ 0 }
    ServiceValue: 200 { service @ 0, protocol @ 4, family @ 5, namespace @ 8, name @ 72,
        port_name @ 136 }
    Counters: 56 { refused @ 0, unreachable @ 8, looked_again @ 16, gave_up @ 24,
        flow_replaced @ 32, flow_not_kept @ 40, kernel_left_alone @ 48 }
    Translation: 44 { frontend @ 0, endpoint @ 16, frontend_port @ 32, endpoint_port @ 34,
        endpoint_id @ 36, check @ 40 }
    Flows: 360 { last @ 0, next @ 4, flows @ 8 }
    ClientKey: 24 { address @ 0, service @ 16, claim @ 20 }
    ConnectionKey: 40 { source @ 0, destination @ 16, source_port @ 32, destination_port @ 34,
        protocol @ 36, role @ 37, padding @ 38 }
    ConnectionValue: 64 { address @ 0, port @ 16, owner @ 18, service @ 20, set @ 24,
        endpoint @ 28, serial @ 32, check @ 36, last @ 40, state @ 44, sequence @ 48,
        acknowledged @ 52, since @ 56, refusal @ 60 }
    FragmentKey: 40 { source @ 0, destination @ 16, identification @ 32, protocol @ 36,
        role @ 37, padding @ 38 }
    FragmentValue: 24 { address @ 0, since @ 16, check @ 20 }
    Prefix: 32 { address @ 0, mask @ 16 }
    SourceKey: 8 { device @ 0, family @ 4, index @ 6 }
    SourceValue: 36 { address @ 0, mask @ 16, check @ 32 }
    Settings: 112 { seed @ 0, flags @ 4, most_flows @ 8, udp_unanswered @ 12, udp_answered @ 16,
        tcp_beneath @ 20, tcp_established @ 24, tcp_half_closed @ 28, tcp_closed @ 32,
        tcp_reset @ 36, first_port @ 40, last_port @ 44, pods @ 48 }
    Counted: 256 { counts @ 0 }
    Peer: 56 { cookie @ 0, translation @ 8, state @ 52 }
}

/// `BPF_OBJ_NAME_LEN` is 16 with the final zero; a longer name is cut by the kernel.
const LONGEST_NAME: usize = 15;

const _: () = {
    assert!(PEERS.is_power_of_two());
    let mut index = 0;
    while index < MAPS.len() {
        assert!(MAPS[index].name.len() <= LONGEST_NAME);
        index += 1;
    }
    index = 0;
    while index < EDGE_MAPS.len() {
        assert!(EDGE_MAPS[index].name.len() <= LONGEST_NAME);
        index += 1;
    }
    index = 0;
    while index < EDGE_PROGRAMS.len() {
        assert!(EDGE_PROGRAMS[index].len() <= LONGEST_NAME);
        index += 1;
    }
    index = 0;
    while index < SOCKET_PROGRAMS.len() {
        assert!(SOCKET_PROGRAMS[index].len() <= LONGEST_NAME);
        index += 1;
    }
};

/// aya passes map keys and values to the kernel as bytes.
#[cfg(feature = "user")]
mod user {
    use super::{
        AffinityKey, AffinityValue, ClientKey, ConnectionKey, ConnectionValue, Counted, Counters,
        FrontendKey, FrontendValue, MemberKey, MemberValue, NodeAddressKey, NodeAddressValue,
        RangeData, RangeValue, ServiceKey, ServiceValue, SetKey, SetValue, Settings, SlotKey,
        SlotValue, SourceKey, SourceValue,
    };

    macro_rules! pod {
        ($($type:ty),* $(,)?) => {
            $(
                // SAFETY: bytemuck's derive has proved the same of the type: plain bytes without
                // padding, any of which are a value.
                #[expect(unsafe_code, reason = "aya has a marker trait of its own")]
                unsafe impl aya::Pod for $type {}
                const _: fn() = || {
                    fn proved<T: bytemuck::Pod>() {}
                    proved::<$type>();
                };
            )*
        };
    }

    pod!(
        AffinityKey,
        AffinityValue,
        ClientKey,
        ConnectionKey,
        ConnectionValue,
        Counted,
        Settings,
        Counters,
        FrontendKey,
        FrontendValue,
        MemberKey,
        MemberValue,
        NodeAddressKey,
        NodeAddressValue,
        RangeData,
        RangeValue,
        ServiceKey,
        ServiceValue,
        SetKey,
        SetValue,
        SlotKey,
        SlotValue,
        SourceKey,
        SourceValue,
    );
}
