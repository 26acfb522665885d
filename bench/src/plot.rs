//! Charts of throughput and latency over time, as one SVG file without scripts or external parts.

use std::fmt::Write as _;

use crate::histogram::LatencySummary;
use crate::report::Report;
use crate::timeline::Point;

const WIDTH: f64 = 960.0;
const PANEL_HEIGHT: f64 = 300.0;
const HEAD: f64 = 56.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 44.0;
/// Distinct for the colour-blind as well (Okabe and Ito).
const COLOURS: [&str; 5] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"];

/// One line of a panel; a gap where there is no value.
struct Series {
    name: &'static str,
    values: Vec<(f64, Option<f64>)>,
}

struct Panel {
    title: &'static str,
    unit: &'static str,
    scale: Scale,
    series: Vec<Series>,
}

/// Maps a value to a share of the panel's height.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    /// From 0 to the top.
    Linear { top: f64, step: f64 },
    /// Between two powers of ten: latencies span several of them.
    Logarithmic { low: i32, high: i32 },
}

impl Scale {
    fn linear(largest: f64) -> Self {
        let step = nice_step(largest.max(1e-3) / 5.0);
        Self::Linear {
            top: (largest.max(1e-3) / step).ceil() * step,
            step,
        }
    }

    fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| *value > 0.0) {
            low = low.min(value);
            high = high.max(value);
        }
        if high <= 0.0 {
            return Self::Logarithmic { low: 0, high: 1 };
        }
        let low = low.log10().floor() as i32;
        Self::Logarithmic {
            low,
            high: (high.log10().ceil() as i32).max(low + 1),
        }
    }

    fn share(self, value: f64) -> f64 {
        let share = match self {
            Self::Linear { top, .. } => value / top,
            Self::Logarithmic { low, high } => {
                (value.max(1e-12).log10() - f64::from(low)) / f64::from(high - low)
            }
        };
        share.clamp(0.0, 1.0)
    }

    /// Values that get a grid line and a label.
    fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear { top, step } => {
                let count = (top / step).round() as u32;
                (0..=count).map(|index| f64::from(index) * step).collect()
            }
            Self::Logarithmic { low, high } => {
                let decades = (low..=high).map(|power| 10_f64.powi(power));
                if high - low > 2 {
                    return decades.collect();
                }
                let top = 10_f64.powi(high);
                decades
                    .flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * decade))
                    .filter(|value| *value <= top * 1.001)
                    .collect()
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= least * 0.999)
        .unwrap_or(10.0 * power)
}

/// The charts of a report.
pub fn svg(report: &Report) -> String {
    let panels = panels(&report.timeline);
    let height = HEAD + PANEL_HEIGHT * panels.len() as f64;
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"18\" font-weight=\"bold\">tidegate-bench {}</text>\n\
         <text x=\"{LEFT}\" y=\"46\" fill=\"#555\">{}</text>\n",
        escape(report.bench),
        escape(&headline(report)),
    );
    let end = report
        .timeline
        .last()
        .map_or(1.0, |point| point.t_s)
        .max(1e-3);
    let warmup = report
        .settings
        .get("warmup")
        .and_then(serde_json::Value::as_f64);
    let warmup = warmup.filter(|seconds| *seconds > 0.0);
    for (index, panel) in panels.iter().enumerate() {
        panel.draw(&mut out, HEAD + PANEL_HEIGHT * index as f64, end, warmup);
    }
    out.push_str("</svg>\n");
    out
}

fn headline(report: &Report) -> String {
    let mut parts = vec![report.target.clone()];
    if let Some(throughput) = &report.throughput {
        parts.push(format!("{:.1} MB/s", throughput.mb_per_s));
    }
    for (name, latency) in &report.latency_ms {
        let name = name.replace('_', " ");
        parts.push(format!(
            "{name} p50 {:.2} ms, p99 {:.2} ms",
            latency.p50, latency.p99
        ));
    }
    parts.join(" · ")
}

/// A line's name and how it is found.
type Kind = (&'static str, fn(&Point) -> Option<f64>);

/// Throughput always; latency only where it was measured over time.
fn panels(timeline: &[Point]) -> Vec<Panel> {
    let largest = timeline
        .iter()
        .map(|point| point.mb_per_s)
        .fold(0.0, f64::max);
    let mut panels = vec![Panel {
        title: "Throughput",
        unit: "MB/s",
        scale: Scale::linear(largest),
        series: vec![Series {
            name: "MB/s",
            values: timeline
                .iter()
                .map(|point| (point.t_s, Some(point.mb_per_s)))
                .collect(),
        }],
    }];
    let kinds: [Kind; 5] = [
        ("ack p50", |point| {
            pick(&point.latency_ms, |latency| latency.p50)
        }),
        ("ack p99", |point| {
            pick(&point.latency_ms, |latency| latency.p99)
        }),
        ("ack max", |point| {
            pick(&point.latency_ms, |latency| latency.max)
        }),
        ("end to end p50", |point| {
            pick(&point.end_to_end_ms, |latency| latency.p50)
        }),
        ("end to end p99", |point| {
            pick(&point.end_to_end_ms, |latency| latency.p99)
        }),
    ];
    let series: Vec<Series> = kinds
        .into_iter()
        .map(|(name, value)| Series {
            name,
            values: timeline
                .iter()
                .map(|point| (point.t_s, value(point)))
                .collect(),
        })
        .filter(|series| series.values.iter().any(|(_, value)| value.is_some()))
        .collect();
    if !series.is_empty() {
        let values = series
            .iter()
            .flat_map(|series| series.values.iter().filter_map(|(_, value)| *value));
        panels.push(Panel {
            title: "Latency, logarithmic",
            unit: "ms",
            scale: Scale::logarithmic(values),
            series,
        });
    }
    panels
}

fn pick(latency: &Option<LatencySummary>, value: fn(&LatencySummary) -> f64) -> Option<f64> {
    latency.as_ref().map(value)
}

impl Panel {
    fn draw(&self, out: &mut String, top: f64, end: f64, warmup: Option<f64>) {
        let (x0, x1) = (LEFT, WIDTH - RIGHT);
        let (y0, y1) = (top + PANEL_HEIGHT - BOTTOM, top + TOP);
        let x = |seconds: f64| x0 + (x1 - x0) * (seconds / end).clamp(0.0, 1.0);
        let y = |value: f64| y0 - (y0 - y1) * self.scale.share(value);
        if let Some(seconds) = warmup {
            let width = x(seconds) - x0;
            let _ = writeln!(
                out,
                "<rect x=\"{x0}\" y=\"{y1:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"#f2f2f2\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#777\">warm-up</text>",
                y0 - y1,
                x0 + 6.0,
                y1 + 16.0
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{x0}\" y=\"{:.1}\" font-weight=\"bold\">{} ({})</text>",
            y1 - 14.0,
            self.title,
            self.unit
        );
        for tick in self.scale.ticks() {
            let at = y(tick);
            let _ = writeln!(
                out,
                "<line x1=\"{x0}\" x2=\"{x1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#333\">{}</text>",
                x0 - 8.0,
                at + 4.5,
                label(tick)
            );
        }
        let step = nice_step(end / 10.0);
        for index in 0..=(end / step + 1e-6).floor() as u32 {
            let seconds = f64::from(index) * step;
            let at = x(seconds);
            let _ = writeln!(
                out,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{y0:.1}\" y2=\"{:.1}\" stroke=\"#333\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#333\">{}</text>",
                y0 + 5.0,
                y0 + 19.0,
                label(seconds)
            );
        }
        let _ = writeln!(
            out,
            "<path d=\"M{x0} {y1:.1}V{y0:.1}H{x1}\" fill=\"none\" stroke=\"#333\"/>\
             <text x=\"{x1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#333\">seconds</text>",
            y0 + 36.0
        );
        for (series, colour) in self.series.iter().zip(COLOURS) {
            let path = path(&series.values, &x, &y);
            let _ = writeln!(
                out,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-linejoin=\"round\"/>"
            );
        }
        self.legend(out, x1, y1 - 14.0);
    }

    /// Right-aligned above the panel.
    fn legend(&self, out: &mut String, right: f64, y: f64) {
        let mut x = right;
        for (series, colour) in self.series.iter().zip(COLOURS).rev() {
            x -= 7.2 * series.name.len() as f64 + 8.0;
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"#333\">{}</text>",
                series.name
            );
            x -= 24.0;
            let _ = writeln!(
                out,
                "<line x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"3\"/>",
                x + 18.0,
                y - 4.5,
                y - 4.5
            );
        }
    }
}

/// A line through the values that begins anew after a gap.
fn path(values: &[(f64, Option<f64>)], x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) -> String {
    let mut path = String::new();
    let mut down = false;
    for (seconds, value) in values {
        match value {
            Some(value) => {
                let command = if down { 'L' } else { 'M' };
                let _ = write!(path, "{command}{:.1} {:.1}", x(*seconds), y(*value));
                down = true;
            }
            None => down = false,
        }
    }
    path
}

/// A number without trailing zeros.
fn label(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_numbers() {
        assert_eq!(label(nice_step(17.0)), "20");
        assert_eq!(label(nice_step(0.03)), "0.05");
        assert_eq!(label(nice_step(5.0)), "5");
    }

    #[test]
    fn a_logarithmic_scale_holds_all_its_values() {
        let scale = Scale::logarithmic([0.4, 3.0, 70.0].into_iter());
        assert_eq!(scale, Scale::Logarithmic { low: -1, high: 2 });
        assert!((scale.share(0.1) - 0.0).abs() < 1e-9);
        assert!((scale.share(100.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn values_without_any_spread_still_have_a_scale() {
        assert_eq!(
            Scale::logarithmic([1.0].into_iter()),
            Scale::Logarithmic { low: 0, high: 1 }
        );
        assert_eq!(
            Scale::logarithmic(std::iter::empty()),
            Scale::Logarithmic { low: 0, high: 1 }
        );
    }

    #[test]
    fn a_gap_interrupts_the_line() {
        let values = [
            (0.0, Some(1.0)),
            (1.0, None),
            (2.0, Some(1.0)),
            (3.0, Some(2.0)),
        ];
        let path = path(&values, &|x| x, &|y| y);
        assert_eq!(path, "M0.0 1.0M2.0 1.0L3.0 2.0");
    }
}
