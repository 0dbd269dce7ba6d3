//! What metrics tell of the backend: which one serves, and what it lacks.

use super::*;

#[test]
fn what_the_backend_lacks_is_shown_with_how_many_need_it() {
    let metrics = metrics();
    let of = |name, capability| {
        value(
            &metrics,
            &format!("culvert_{name}{{capability=\"{capability}\"}}"),
        )
    };
    assert_eq!(of("backend_lacks", "sctp"), 1.0);
    assert_eq!(of("backend_lacks", "affinity"), 0.0);
    assert_eq!(of("capability_gaps", "sctp"), 0.0);
    metrics.gaps([(Capability::Sctp, 3), (Capability::Affinity, 0)].into_iter());
    assert_eq!(of("capability_gaps", "sctp"), 3.0);
    assert_eq!(of("capability_gaps", "affinity"), 0.0);
    let refused = "backend=\"nftables\",mode=\"auto\",reason=\"not here\"";
    assert_eq!(
        value(&metrics, &format!("culvert_backend_choice{{{refused}}}")),
        0.0
    );
    let text = metrics.text().unwrap();
    let chosen = "culvert_backend_choice{backend=\"ebpf\",mode=\"auto\",reason=\"the only one";
    assert!(text.contains(chosen), "{text}");

    // Another one takes its place, and nothing of the first is left.
    let kind = choice::BackendKind::Nftables;
    let because = "Services need more".to_owned();
    metrics.chosen(&Choice::of(choice::Mode::Auto, kind, because, vec![]));
    assert_eq!(of("backend_lacks", "sctp"), 0.0);
    let text = metrics.text().unwrap();
    let lines = text
        .lines()
        .filter(|line| line.starts_with("culvert_backend_choice{"));
    let expected = "culvert_backend_choice{backend=\"nftables\",mode=\"auto\",reason=\"Services \
                    need more\"} 1";
    assert_eq!(lines.collect::<Vec<_>>(), [expected]);
    assert!(!text.contains("backend=\"ebpf\""), "{text}");
}
