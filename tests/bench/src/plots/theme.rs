//! Colours: those that lines have in light and in dark, and those that change between the two.

use plotters::style::RGBColor;

/// What differs between light and dark.
#[derive(Debug)]
pub(super) struct Scheme {
    pub(super) background: RGBColor,
    pub(super) text: RGBColor,
    /// Lines that help to read values.
    pub(super) grid: RGBColor,
}

/// As a picture says by itself.
pub(super) const LIGHT: Scheme = Scheme {
    background: RGBColor(0xff, 0xff, 0xff),
    text: RGBColor(0x1f, 0x23, 0x28),
    grid: RGBColor(0xd1, 0xd9, 0xe0),
};

/// As its style says where the reader wants dark.
const DARK: Scheme = Scheme {
    background: RGBColor(0x0d, 0x11, 0x17),
    text: RGBColor(0xe6, 0xed, 0xf3),
    grid: RGBColor(0x3d, 0x44, 0x4d),
};

/// Of stacks: blue, vermilion, green and purple of Okabe and Ito, which people with any colour
/// vision tell apart, and of which each shows on both backgrounds; and their orange, darker for that.
pub(super) const LINES: [RGBColor; 5] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x99, 0x70, 0x1a),
];

/// Of what stacks are compared with.
pub(super) const REFERENCE: RGBColor = RGBColor(0x76, 0x7e, 0x87);

/// The style that makes a light picture a dark one, for readers who want that.
pub(super) fn style() -> String {
    let Scheme {
        background,
        text,
        grid,
    } = LIGHT;
    let rules = [
        ("fill", background, DARK.background),
        ("fill", text, DARK.text),
        ("stroke", text, DARK.text),
        ("stroke", grid, DARK.grid),
    ]
    .map(|(attribute, light, dark)| {
        let (light, dark) = (hex(light), hex(dark));
        format!("[{attribute}=\"{light}\"]{{{attribute}:{dark}}}")
    });
    let rules = rules.join("");
    format!("<style>@media (prefers-color-scheme: dark){{{rules}}}</style>\n")
}

/// As the backend of SVG writes it: selectors compare letter by letter.
fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition of WCAG 2.
    fn luminance(RGBColor(red, green, blue): RGBColor) -> f64 {
        let [red, green, blue] = [red, green, blue].map(|part| {
            let part = f64::from(part) / 255.0;
            if part <= 0.040_45 {
                part / 12.92
            } else {
                ((part + 0.055) / 1.055).powf(2.4)
            }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    fn contrast(one: RGBColor, other: RGBColor) -> f64 {
        let [one, other] = [one, other].map(|colour| luminance(colour) + 0.05);
        one.max(other) / one.min(other)
    }

    #[test]
    fn lines_show_on_both_backgrounds_and_texts_on_theirs() {
        let black = RGBColor(0, 0, 0);
        assert!((contrast(black, LIGHT.background) - 21.0).abs() < 0.01);
        for Scheme {
            background, text, ..
        } in [LIGHT, DARK]
        {
            for line in LINES.into_iter().chain([REFERENCE]) {
                let contrast = contrast(line, background);
                assert!(contrast >= 3.0, "{contrast}: {line:?} on {background:?}");
            }
            assert!(contrast(text, background) >= 7.0, "{text:?}");
        }
    }

    #[test]
    fn no_two_things_share_a_colour() {
        let mut all: Vec<_> = LINES.into_iter().chain([REFERENCE]).map(hex).collect();
        all.extend([LIGHT.background, LIGHT.text, LIGHT.grid].map(hex));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count, "the style would change both");
    }
}
