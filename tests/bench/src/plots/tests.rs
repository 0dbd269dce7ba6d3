//! What charts are like, of made-up figures.

use serde_json::json;

use super::*;

/// What `backends` calls four hosts.
const NAMES: [&str; 4] = ["layers", "ebpf", "nftables", "no proxy"];
const SIZES: [&str; 3] = ["10", "1,000", "10,000"];

/// Made-up figures of all charts, of these hosts at these sizes.
fn figures(names: &[&str], sizes: &[&str]) -> Vec<Figure> {
    let mut all = Vec::new();
    for (base, size) in [4.0, 61.0, 579.0].into_iter().zip(sizes) {
        for (more, name) in [3.0, 1.0, 2.0, 1.1].into_iter().cycle().zip(names) {
            for chart in &CHARTS {
                let metric = match *name {
                    "no proxy" => chart.asked.reference,
                    _ => Some(chart.asked.metric),
                };
                let Some(metric) = metric else {
                    continue;
                };
                all.push(Figure {
                    bench: BENCH.into(),
                    case: format!("{size} services, {name}"),
                    metric: metric.to_owned(),
                    unit: chart.asked.unit.into(),
                    median: base * more,
                    min: base * more * 0.9,
                    max: base * more * 1.2,
                    runs: 3,
                    goal: None,
                });
            }
        }
    }
    all
}

fn drawn(figures: &[Figure]) -> Vec<(&'static str, String)> {
    draw_all(figures).unwrap()
}

/// A text of a picture, and about where it is.
#[derive(Debug)]
struct Shown {
    text: String,
    across: [f64; 2],
    down: [f64; 2],
}

/// What follows ` name="` in a tag.
fn attribute<'t>(tag: &'t str, name: &str) -> &'t str {
    let (_, rest) = tag.split_once(&format!(" {name}=\"")).unwrap();
    rest.split_once('"').unwrap().0
}

fn number(tag: &str, name: &str) -> f64 {
    attribute(tag, name).parse().unwrap()
}

/// All texts, in a font that is wider than most.
fn shown(svg: &str) -> Vec<Shown> {
    let texts = svg.split("<text ").skip(1).map(|text| {
        let (tag, rest) = text.split_once('>').unwrap();
        let tag = &format!(" {tag}");
        assert!(!tag.contains("transform"), "turned: {tag}");
        let text = rest.split_once("</text>").unwrap().0.trim().to_owned();
        let size = number(tag, "font-size");
        let letter = if tag.contains("bold") { 0.62 } else { 0.58 };
        #[expect(clippy::cast_precision_loss, reason = "a few letters")]
        let width = text.chars().count() as f64 * size * letter;
        let left = number(tag, "x")
            - match attribute(tag, "text-anchor") {
                "start" => 0.0,
                "middle" => width / 2.0,
                _ => width,
            };
        // From what it is told to where letters stand.
        let base = number(tag, "y")
            + match attribute(tag, "dy") {
                "0.76em" => 0.76 * size,
                "0.5ex" => 0.25 * size,
                _ => -0.25 * size,
            };
        Shown {
            text,
            across: [left, left + width],
            down: [base - 0.75 * size, base + 0.22 * size],
        }
    });
    texts.collect()
}

fn overlap(one: [f64; 2], other: [f64; 2]) -> bool {
    one[0] < other[1] && other[0] < one[1]
}

#[test]
fn texts_are_in_the_picture_and_apart() {
    let long = "a-backend-of-somebody-else-with-a-name-that-never-ends".repeat(3);
    let many = ["layers", "a", "b", "c", "d", &long, "e", "no proxy"];
    for names in [&NAMES[..], &["layers"], &["ebpf", "no proxy"], &many] {
        for sizes in [&SIZES[..], &["10"], &["10", "100", "1,000"]] {
            for (file, svg) in drawn(&figures(names, sizes)) {
                let opening = svg.split_once('>').unwrap().0;
                let [width, height] = ["width", "height"].map(|name| number(opening, name));
                let texts = shown(&svg);
                for (index, one) in texts.iter().enumerate() {
                    let within = one.across[0] >= 0.0
                        && one.across[1] <= width
                        && one.down[0] >= 0.0
                        && one.down[1] <= height;
                    assert!(within, "{file} is {width}×{height}: {one:?}");
                    for other in &texts[..index] {
                        let both =
                            overlap(one.across, other.across) && overlap(one.down, other.down);
                        assert!(!both, "{file}: {one:?} and {other:?}");
                    }
                }
                for size in sizes {
                    assert!(texts.iter().any(|one| one.text == *size), "{file}: {size}");
                }
            }
        }
    }
}

#[test]
fn each_chart_says_what_it_shows() {
    let pictures = drawn(&figures(&NAMES, &SIZES));
    let files: Vec<_> = pictures.iter().map(|(file, _)| *file).collect();
    assert_eq!(
        files,
        [
            "one-change.svg",
            "full-sync.svg",
            "memory.svg",
            "connects.svg"
        ]
    );
    for ((file, svg), chart) in pictures.iter().zip(&CHARTS) {
        let said: Vec<_> = shown(svg).into_iter().map(|one| one.text).collect();
        let has = |text: &str| said.iter().any(|one| one == text);
        for text in [chart.title, "layers", "eBPF alone", "nftables alone"] {
            assert!(has(text), "{file}: {text} is not in {said:?}");
        }
        let bare = has("no proxy, endpoint dialled directly");
        assert_eq!(bare, *file == "connects.svg", "{file}: {said:?}");
        assert!(
            said.iter().any(|one| one.starts_with(chart.asked.unit)),
            "{said:?}"
        );
        assert!(
            svg.contains(&format!("<title>{}</title>", chart.title)),
            "{svg}"
        );
        assert!(svg.ends_with("</svg>\n"), "{svg}");
    }
}

#[test]
fn pictures_are_the_same_each_time_and_small() {
    let figures = figures(&NAMES, &SIZES);
    let once = drawn(&figures);
    let text = serde_json::to_vec(&figures).unwrap();
    assert_eq!(drawn(&parse(&text).unwrap()), once);
    for (file, svg) in once {
        assert!(svg.len() < 20_000, "{file}: {} bytes", svg.len());
    }
}

#[test]
fn whoever_wants_dark_gets_dark() {
    for (file, svg) in drawn(&figures(&NAMES, &SIZES)) {
        let (opening, rest) = svg.split_once(">\n").unwrap();
        assert!(opening.starts_with("<svg "), "{file}: {opening}");
        let (style, rest) = rest.split_once("</style>\n").unwrap();
        let start = "<style>@media (prefers-color-scheme: dark){";
        let rules = style.strip_prefix(start).unwrap();
        // Each rule is about something that is there: it would be without effect otherwise.
        let mut count = 0;
        for rule in rules.trim_end_matches('}').split('}') {
            let (selector, _) = rule.split_once('{').unwrap();
            let attribute = selector.trim_start_matches('[').trim_end_matches(']');
            assert!(
                rest.contains(&format!(" {attribute}")),
                "{file}: {attribute}"
            );
            count += 1;
        }
        assert_eq!(count, 4, "{file}: {style}");
    }
}

#[test]
fn what_there_is_is_drawn() {
    // One backend, at one size, and what only some charts have.
    for (file, svg) in drawn(&figures(&["nftables"], &["1,000"])) {
        assert!(svg.contains("nftables alone"), "{file}");
        assert!(!svg.contains("eBPF alone"), "{file}");
    }
    let mut figures = figures(&NAMES, &SIZES);
    figures.retain(|figure| figure.case != "1,000 services, ebpf");
    assert!(drawn(&figures)[0].1.contains("eBPF alone"));
    figures.retain(|figure| figure.metric != "agent resident");
    let error = format!("{:#}", draw_all(&figures).unwrap_err());
    let expected = "cannot draw memory.svg: no figure \"agent resident\" in MiB";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn names_cannot_break_a_picture() {
    let (_, svg) = drawn(&figures(&["</text><b a=\"&\u{1}\">"], &["10"])).remove(0);
    assert!(
        svg.contains("&lt;/text&gt;&lt;b a=&quot;&amp;&quot;&gt; alone"),
        "{svg}"
    );
}

#[test]
fn only_figures_of_backends_are_taken() {
    let mut other = figures(&NAMES, &SIZES);
    for figure in &mut other {
        figure.bench = "api-server".into();
    }
    for (text, expected) in [
        (String::new(), "not the figures of a run"),
        ("<svg>".to_owned(), "not the figures of a run"),
        (
            json!({"figures": []}).to_string(),
            "not the figures of a run",
        ),
        (
            json!([{"bench": BENCH}]).to_string(),
            "not the figures of a run",
        ),
        ("[]".to_owned(), "no figures of the bench `backends`"),
        (
            serde_json::to_string(&other).unwrap(),
            "no figures of the bench `backends`",
        ),
    ] {
        let error = format!("{:#}", parse(text.as_bytes()).unwrap_err());
        assert!(error.contains(expected), "{text}: {error}");
        let advice = "`cargo xtask bench backends --json FILE`";
        assert!(error.contains(advice), "{text}: {error}");
    }
}

#[test]
fn a_folder_is_made_and_nothing_is_left_of_trying_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    let folder = Folder::prepare(&path).unwrap();
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    let mut said = Vec::new();
    folder.fill(&figures(&NAMES, &SIZES), &mut said).unwrap();
    let said = String::from_utf8(said).unwrap();
    for chart in &CHARTS {
        let path = path.join(chart.file);
        assert!(
            said.contains(&format!("wrote {}\n", path.display())),
            "{said}"
        );
        let text = fs::read_to_string(path).unwrap();
        assert!(text.starts_with("<svg "), "{}", chart.file);
    }
    let error = Folder::prepare(&path.join("memory.svg")).unwrap_err();
    assert!(
        error.to_string().contains("cannot make the directory"),
        "{error}"
    );
    // Where not even root can make a file.
    let error = Folder::prepare(Path::new("/proc")).unwrap_err();
    assert!(
        error.to_string().contains("cannot write charts to /proc"),
        "{error}"
    );
}
