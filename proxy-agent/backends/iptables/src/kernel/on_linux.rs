//! What the agent asks of this backend while it is not open.

use std::net::SocketAddr;

use proxy_backend::{Host, OpenError, Probe, Retired, Settings, Surroundings};
use proxy_model::{Backend, IpFamily, Protocol};

use super::{
    IptablesBackend, lacks, leave, localnet, lock, probe,
    programs::{Flavour, ProgramError},
};
use crate::{
    IptablesOptions,
    flags::Verify,
    names,
    table::{SERVICES, Table},
};

/// The backend on a host that runs Linux.
#[derive(Debug, Clone, Copy)]
pub struct OnLinux;

impl Host for OnLinux {
    fn probe(&self, _: &Settings) -> Probe {
        Probe {
            requirements: probe::probe(),
            lacks: lacks(localnet::can_be()).to_vec(),
        }
    }

    fn open(
        &self,
        settings: &Settings,
        surroundings: &Surroundings,
    ) -> Result<Box<dyn Backend>, OpenError> {
        let mut options = IptablesOptions::of(settings);
        options.localnet &= localnet::can_be();
        options.counters = true;
        let backend =
            IptablesBackend::open(options, Verify::given(&settings.given, &mut Vec::new()))?;
        Ok(Box::new(
            backend.observed_by(surroundings.conntrack.clone()),
        ))
    }

    fn is_programmed(&self, _: &Settings, address: SocketAddr, protocol: Protocol) -> bool {
        let wanted = format!("-d {} -p {} ", address.ip(), names::protocol(protocol));
        let port = format!("--dport {} ", address.port());
        leave::saved().any(|saved| {
            let rules = saved.chain(Table::Nat, SERVICES).unwrap_or_default();
            rules
                .iter()
                .any(|rule| rule.as_str().starts_with(&wanted) && rule.as_str().contains(&port))
        })
    }

    fn left_something(&self, _: &Settings) -> bool {
        leave::is_anything()
    }

    fn retire(&self, _: &Settings) -> Result<Retired, OpenError> {
        let removed = leave::remove(None).map_err(refused)?;
        let what: Vec<_> = removed.into_iter().map(told).collect();
        Ok(if what.is_empty() {
            Retired::Nothing
        } else {
            Retired::Removed(format!("removed {}", what.join(", ")))
        })
    }

    fn nobody_serves(&self) -> Result<(), OpenError> {
        lock::nobody_holds()
    }

    fn cleanup(&self, _: &Settings) -> Result<String, OpenError> {
        let removed = leave::remove(None).map_err(refused)?;
        Ok(removed.into_iter().fold(String::new(), |lines, one| {
            lines + "removed " + &told(one) + "\n"
        }))
    }

    fn translates(&self) -> bool {
        true
    }
}

fn told((flavour, family): (Flavour, IpFamily)) -> String {
    let program = match family {
        IpFamily::V4 => "iptables",
        IpFamily::V6 => "ip6tables",
    };
    format!("the chains in tables of {program}-{flavour}")
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it")]
fn refused(error: ProgramError) -> OpenError {
    OpenError::Other(error.to_string())
}
