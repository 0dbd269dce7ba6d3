//! What the programs counted of packets that they did not translate: REASONS.

use std::collections::BTreeMap;

use aya::{
    Ebpf,
    maps::{MapData, PerCpuHashMap, PerCpuValues},
};
use proxy_common::track::reason::Counted;

use super::devices::Seen;

/// Counts by the number of the device, 0 for all others; none if they cannot be read.
pub type ByDevice = Option<BTreeMap<u32, Counted>>;

/// Reads them, and makes room to count for each device that is served.
pub fn read(ebpf: &mut Ebpf, devices: &[Seen]) -> ByDevice {
    let map: Result<PerCpuHashMap<&mut MapData, u32, Counted>, _> =
        ebpf.map_mut("REASONS")?.try_into();
    let mut map = map.ok()?;
    let served = devices.iter().filter(|device| device.is_served());
    for index in served.map(|device| device.index).chain([0]) {
        if map.get(&index, 0).is_err()
            && let Ok(cpus) = aya::util::nr_cpus()
            && let Ok(zeros) = PerCpuValues::try_from(vec![Counted::default(); cpus])
        {
            // Without room the device is one of the others.
            map.insert(index, zeros, 0).ok();
        }
    }
    let mut all = BTreeMap::new();
    for entry in &map {
        let Ok((index, by_cpu)) = entry else { break };
        let mut sum = Counted::default();
        by_cpu.iter().for_each(|one| sum.add(one));
        all.insert(index, sum);
    }
    let is_there = |index: u32| devices.iter().any(|device| device.index == index);
    for (index, _) in all.extract_if(.., |index, _| *index != 0 && !is_there(*index)) {
        // A later device may have its number.
        map.remove(&index).ok();
    }
    Some(all)
}
