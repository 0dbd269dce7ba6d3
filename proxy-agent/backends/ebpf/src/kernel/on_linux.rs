//! What the agent asks of this backend while it is not open.

use std::net::SocketAddr;

use proxy_backend::{
    Host, OpenError, Probe, Retired, Settings, Surroundings, connections::Connections,
};
use proxy_model::{Backend, Protocol};

use super::{
    EbpfBackend, EbpfOptions, cleanup,
    edge::Asked,
    is_programmed, leave, links,
    pins::{Existing, PinDir},
    probe, programs_log, tell_of_programs,
};
use crate::flags::{
    CGROUP_PATH, KEEP_CLIENT_ADDRESS, KERNEL_LOG, devices, map_sizes, source_ports, tc,
};

/// The backend on a host that runs Linux.
#[derive(Debug, Clone, Copy)]
pub struct OnLinux;

impl Host for OnLinux {
    fn probe(&self, settings: &Settings) -> Probe {
        probe(&settings.into())
    }

    fn open(&self, settings: &Settings, _: &Surroundings) -> Result<Box<dyn Backend>, OpenError> {
        let options = EbpfOptions::from(settings);
        let mut backend = EbpfBackend::open(&options)?;
        if options.kernel_log {
            programs_log::forward(&mut backend)?;
        }
        Ok(Box::new(backend))
    }

    fn is_programmed(&self, settings: &Settings, address: SocketAddr, protocol: Protocol) -> bool {
        is_programmed(&settings.pin_dir, address, protocol)
    }

    fn left_something(&self, settings: &Settings) -> bool {
        settings.pin_dir.exists()
    }

    fn retire(&self, settings: &Settings) -> Result<Retired, OpenError> {
        if let Existing::Locked(pins) = PinDir::open_existing(&settings.pin_dir)? {
            let open = leave::wind_down(&pins)?;
            let led = links::stop_leading(&pins.links())?;
            if open > 0 {
                return Ok(Retired::Needed(format!(
                    "{open} connections from outside are translated on devices"
                )));
            }
            if led > 0 {
                return Ok(Retired::Needed(
                    "sockets that were led a moment ago still ask it".to_owned(),
                ));
            }
        }
        let cleanup = cleanup(&settings.pin_dir)?;
        Ok(if cleanup.removed_any() {
            Retired::Removed(cleanup.to_string())
        } else {
            Retired::Nothing
        })
    }

    fn stand_aside(&self, settings: &Settings) -> Result<bool, OpenError> {
        let Existing::Locked(pins) = PinDir::open_existing(&settings.pin_dir)? else {
            return Ok(false);
        };
        let open = leave::wind_down(&pins)?;
        Ok(links::stop_leading(&pins.links())? > 0 || open > 0)
    }

    fn wind_down(&self, settings: &Settings) -> Result<u64, OpenError> {
        let Existing::Locked(pins) = PinDir::open_existing(&settings.pin_dir)? else {
            return Ok(0);
        };
        let open = leave::wind_down(&pins)?;
        if open > 0 {
            links::stop_leading(&pins.links())?;
        }
        Ok(open)
    }

    fn cleanup(&self, settings: &Settings) -> Result<String, OpenError> {
        Ok(format!("{}\n", cleanup(&settings.pin_dir)?))
    }

    fn connections(&self, settings: &Settings) -> Option<Result<Box<dyn Connections>, OpenError>> {
        let asked = Asked::open(&settings.pin_dir);
        Some(asked.map(|asked| Box::new(asked) as Box<dyn Connections>))
    }

    fn tell_of_others(&self, settings: &Settings) {
        tell_of_programs(&settings.into());
    }
}

impl From<&Settings> for EbpfOptions {
    fn from(settings: &Settings) -> Self {
        let Settings {
            pin_dir,
            given,
            timeouts,
            ..
        } = settings;
        Self {
            pin_dir: pin_dir.clone(),
            cgroup_path: given.path(CGROUP_PATH),
            // Mistakes were told before anything is opened.
            map_sizes: map_sizes(given, &mut Vec::new()),
            kernel_log: given.is_given(KERNEL_LOG),
            tc: tc(given, &mut Vec::new()),
            devices: devices(given, &mut Vec::new()),
            keep_client_address: given.is_on(KEEP_CLIENT_ADDRESS),
            source_ports: source_ports(given, &mut Vec::new()),
            timeouts: *timeouts,
        }
    }
}
