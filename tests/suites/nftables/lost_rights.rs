//! Rights that are lost while the backend serves: no later attempt brings them back.

use proxy_model::{Backend as _, FatalCause, SyncError};

use super::rig::{in_namespace, open, services};

/// Makes nobody of this thread, and of no other one.
pub fn drop_rights() {
    const NOBODY: libc::uid_t = 65_534;
    #[expect(
        unsafe_code,
        reason = "libc and nix change the user of all threads of the process"
    )]
    // SAFETY: takes numbers and touches no memory.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

fn assert_told(error: &SyncError) {
    let SyncError::Fatal {
        cause: FatalCause::Host,
        reason,
    } = error
    else {
        panic!("{error:?}");
    };
    assert!(
        reason.starts_with("nftables: ") && reason.ends_with("CAP_NET_ADMIN"),
        "{reason}"
    );
}

#[test]
fn what_a_backend_without_rights_cannot_do_is_not_tried_again() {
    in_namespace(|| {
        let mut backend = open();
        let before = services(1, false, 8080);
        backend.sync(&before, &before.as_change_set()).unwrap();
        drop_rights();
        let after = services(2, false, 8080);
        let change = before.changes_to(&after);
        assert_told(&backend.sync(&after, &change).unwrap_err());
        assert_told(&backend.repair(&before).unwrap_err());
    });
}
