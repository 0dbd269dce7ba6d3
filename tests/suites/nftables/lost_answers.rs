//! The kernel's answers do not all arrive, or tell of a failure late: the next sync does not suffer
//! from it.

use proxy_model::Backend as _;

use super::rig::{has_chain, in_namespace, nft_done, open, services};

#[test]
fn more_errors_than_the_socket_has_room_for_are_survived() {
    in_namespace(|| {
        // A buffer that one error fills.
        let mut backend = open().with_room_for_answers(1024).unwrap();
        let few = services(10, true, 8080);
        backend.sync(&few, &few.as_change_set()).unwrap();
        nft_done(&["delete", "table", "ip", "culvert"]);
        // Each chain and each rule of them is an error of its own.
        let many = services(300, true, 8080);
        backend.sync(&many, &few.changes_to(&many)).unwrap();
        assert!(has_chain("services"));
        let other = services(300, true, 8081);
        backend.sync(&other, &many.changes_to(&other)).unwrap();
        assert_eq!(backend.differences(&other), Ok(vec![]));
        nft_done(&["delete", "table", "ip", "culvert"]);
        backend.repair(&other).unwrap();
        assert_eq!(backend.differences(&other), Ok(vec![]));
    });
}
