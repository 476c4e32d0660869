//! Plots: bars and lines, as SVG.

use plotters::prelude::*;

const WIDTH: u32 = 760;
const FONT: &str = "sans-serif";
/// Told apart also by who does not see all colours (Okabe and Ito's).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
];

/// A bar, as long as its logarithm, in a group of its own colour.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: f64,
    /// The value in words.
    pub(crate) told: String,
    pub(crate) colour: usize,
}

/// Horizontal bars on a logarithmic scale that begins at `from`.
pub(crate) fn bars(title: &str, from: f64, bars: &[Bar]) -> String {
    let (top, step, left, right) = (44_i32, 24_i32, 250_i32, 110_i32);
    let height = top + step * i32::try_from(bars.len()).unwrap() + 12;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height.unsigned_abs())).into_drawing_area();
        area.fill(&WHITE).unwrap();
        let text = |size: i32| (FONT, size).into_font().color(&BLACK);
        area.draw(&Text::new(title.to_owned(), (12, 12), text(16))).unwrap();
        let most = bars.iter().map(|bar| bar.value).fold(from * 10.0, f64::max);
        let room = f64::from(WIDTH.cast_signed() - left - right);
        for (nth, bar) in bars.iter().enumerate() {
            let y = top + step * i32::try_from(nth).unwrap();
            let share = (bar.value.max(from) / from).log10() / (most / from).log10();
            #[expect(clippy::cast_possible_truncation, reason = "a place in the picture")]
            let x = left + (room * share).max(1.0) as i32;
            let fill = COLOURS[bar.colour % COLOURS.len()].filled();
            area.draw(&Rectangle::new([(left, y), (x, y + step - 7)], fill))
                .unwrap();
            area.draw(&Text::new(bar.label.clone(), (12, y + 2), text(13))).unwrap();
            area.draw(&Text::new(bar.told.clone(), (x + 6, y + 2), text(13)))
                .unwrap();
        }
        area.present().unwrap();
    }
    svg
}

/// A line: its name, and points.
pub(crate) type Line = (String, Vec<(f64, f64)>);

/// Lines over a common axis, from zero.
pub(crate) fn lines(title: &str, across: &str, tell: fn(f64) -> String, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let (right, top) = (most(|point| point.0).ceil(), most(|point| point.1) * 1.5);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, 340)).into_drawing_area();
        area.fill(&WHITE).unwrap();
        let mut chart = ChartBuilder::on(&area)
            .caption(title, (FONT, 16))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..right, 0.0..top)
            .unwrap();
        let label = |value: &f64| tell(*value);
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(across).y_label_formatter(&label);
        mesh.x_label_formatter(&|value| value.to_string());
        mesh.light_line_style(WHITE).label_style((FONT, 12)).draw().unwrap();
        for ((name, points), colour) in lines.iter().zip(COLOURS.iter().cycle()) {
            let style = colour.stroke_width(2);
            let drawn = chart
                .draw_series(LineSeries::new(points.iter().copied(), style))
                .unwrap();
            drawn
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
        }
        let mut legend = chart.configure_series_labels();
        legend.position(SeriesLabelPosition::UpperRight).label_font((FONT, 12));
        legend
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.2))
            .draw()
            .unwrap();
        area.present().unwrap();
    }
    svg
}
