//! What the agent asks of this backend while it is not open.

use std::net::SocketAddr;

use proxy_backend::{
    Host, Keeper as Keeps, KeeperError, OpenError, Probe, Retired, Settings, Surroundings,
};
use proxy_model::{Backend, IpFamily, Protocol};

use super::{
    Duty, Keeper, KernelError, NftablesBackend, cleanup, holder_that_stays, is_kept, is_programmed,
    is_there, probe, remove,
};
use crate::{KEPT, LACKS, NftablesOptions, TABLE};

/// The backend on a host that runs Linux.
#[derive(Debug, Clone, Copy)]
pub struct OnLinux;

impl Host for OnLinux {
    fn probe(&self, _: &Settings) -> Probe {
        Probe {
            requirements: probe(),
            lacks: LACKS.to_vec(),
        }
    }

    fn open(
        &self,
        settings: &Settings,
        surroundings: &Surroundings,
    ) -> Result<Box<dyn Backend>, OpenError> {
        let backend = NftablesBackend::open(NftablesOptions::of(settings))?;
        Ok(Box::new(
            backend.observed_by(surroundings.conntrack.clone()),
        ))
    }

    fn is_programmed(&self, _: &Settings, address: SocketAddr, protocol: Protocol) -> bool {
        is_programmed(address, protocol)
    }

    fn left_something(&self, _: &Settings) -> bool {
        is_there().unwrap_or(true)
    }

    fn retire(&self, _: &Settings) -> Result<Retired, OpenError> {
        let families = remove()?;
        Ok(if families.is_empty() {
            Retired::Nothing
        } else {
            Retired::Removed(format!("removed the table {TABLE}"))
        })
    }

    /// Without the rights to ask, what is asked for next says so.
    fn nobody_serves(&self) -> Result<(), OpenError> {
        for duty in Duty::ALL {
            if let Ok(Some(holder)) = holder_that_stays(duty) {
                return Err(duty.held_by(holder));
            }
        }
        Ok(())
    }

    fn cleanup(&self, _: &Settings) -> Result<String, OpenError> {
        let line = |family: IpFamily| {
            let family = match family {
                IpFamily::V4 => "ip",
                IpFamily::V6 => "ip6",
            };
            format!("removed the table {family} {TABLE} of nftables\n")
        };
        Ok(cleanup()?.into_iter().map(line).collect())
    }

    fn translates(&self) -> bool {
        true
    }

    fn keeper(&self) -> Option<Box<dyn Keeps>> {
        Some(Box::new(Keeper::default()))
    }
}

impl Keeps for Keeper {
    fn table(&self) -> &'static str {
        KEPT
    }

    fn is_there(&self) -> Result<bool, KeeperError> {
        is_kept().map_err(refused)
    }

    fn keep(&mut self) -> Result<bool, KeeperError> {
        let families = Self::keep(self).map_err(refused)?;
        Ok(!families.is_empty())
    }

    fn let_go(&mut self) -> Result<bool, KeeperError> {
        Self::let_go(self).map_err(refused)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it")]
fn refused(error: KernelError) -> KeeperError {
    KeeperError(error.to_string())
}
