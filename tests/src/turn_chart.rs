//! Draws the chart of the loop's turn that the manual shows.

use std::fmt::Write;

/// A box of the chart: its lines, the first of which is bold, and what kind of step it is.
struct Step {
    lines: &'static [&'static str],
    kind: Kind,
    /// What leaves the loop here.
    exit: &'static [&'static str],
}

/// Who does a step, which is its colour.
#[derive(Clone, Copy)]
enum Kind {
    Callbacks,
    Kernel,
    Loop,
}

impl Kind {
    fn fill(self) -> &'static str {
        match self {
            Kind::Callbacks => "#fde7c7",
            Kind::Kernel => "#d5e8d4",
            Kind::Loop => "#e3ebf7",
        }
    }
}

const STEPS: [Step; 8] = [
    Step {
        lines: &[
            "flush, and tell the kernel",
            "what was written outside of the loop; interest that has grown",
        ],
        kind: Kind::Kernel,
        exit: &[],
    },
    Step {
        lines: &[
            "anything left to wait for?",
            "added events, armed timers, streams, listeners, queued calls",
        ],
        kind: Kind::Loop,
        exit: &["no: LoopEnd::Empty"],
    },
    Step {
        lines: &["prepare watchers", "what they ask for counts for this wait"],
        kind: Kind::Callbacks,
        exit: &[],
    },
    Step {
        lines: &["wait", "not at all if calls are queued, else until the nearest deadline"],
        kind: Kind::Kernel,
        exit: &[],
    },
    Step {
        lines: &["queue", "what other threads ask for and what is ready, then what is due"],
        kind: Kind::Loop,
        exit: &[],
    },
    Step {
        lines: &["check watchers", "what they delete does not run any more"],
        kind: Kind::Callbacks,
        exit: &[],
    },
    Step {
        lines: &[
            "callbacks of the most urgent queue, one by one",
            "after each, its own stream is flushed;",
            "the streams that it wrote to: after 32, and at the end",
        ],
        kind: Kind::Callbacks,
        exit: &["loopbreak: LoopEnd::Break", "(flushed first)"],
    },
    Step {
        lines: &["told to stop?", "what was activated meanwhile waits for the next turn"],
        kind: Kind::Loop,
        exit: &["loopexit: LoopEnd::Exit", "one turn asked for: LoopEnd::Once"],
    },
];

const LEFT: u32 = 70;
const WIDTH: u32 = 490;
const GAP: u32 = 26;
const LINE: u32 = 19;
const RIGHT: u32 = LEFT + WIDTH;

/// The chart as SVG. It has no empty line, at which Markdown would end it.
pub fn turn() -> String {
    let mut shapes = String::new();
    let mut top = 20;
    let mut last = 0;
    for (at, step) in STEPS.iter().enumerate() {
        let height = step.lines.len() as u32 * LINE + 16;
        let middle = top + height / 2;
        let fill = step.kind.fill();
        let _ = writeln!(
            shapes,
            r##"<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{height}" rx="6" fill="{fill}" stroke="#555"/>"##
        );
        for (row, text) in step.lines.iter().enumerate() {
            let weight = if row == 0 { r#" font-weight="bold""# } else { "" };
            let (x, y) = (LEFT + WIDTH / 2, top + 21 + row as u32 * LINE);
            let _ = writeln!(shapes, r#"<text x="{x}" y="{y}" text-anchor="middle"{weight}>{text}</text>"#);
        }
        if !step.exit.is_empty() {
            let end = RIGHT + 36;
            let _ = writeln!(shapes, r#"<path d="M{RIGHT} {middle} H{end}" marker-end="url(#arrow)"/>"#);
            let first = middle + 5 - (step.exit.len() as u32 - 1) * LINE / 2;
            for (row, text) in step.exit.iter().enumerate() {
                let (x, y) = (end + 14, first + row as u32 * LINE);
                let _ = writeln!(shapes, r#"<text x="{x}" y="{y}">{text}</text>"#);
            }
        }
        let bottom = top + height;
        if at + 1 < STEPS.len() {
            let (x, end) = (LEFT + WIDTH / 2, bottom + GAP - 8);
            let _ = writeln!(shapes, r#"<path d="M{x} {bottom} V{end}" marker-end="url(#arrow)"/>"#);
        }
        last = middle;
        top = bottom + GAP;
    }
    // Back to the first step, along the left side.
    let first = 20 + (STEPS[0].lines.len() as u32 * LINE + 16) / 2;
    let (side, before) = (LEFT - 40, LEFT - 8);
    let _ =
        writeln!(shapes, r#"<path d="M{LEFT} {last} H{side} V{first} H{before}" marker-end="url(#arrow)"/>"#);
    let (y, x) = ((first + last) / 2, side - 8);
    let _ = writeln!(
        shapes,
        r#"<text x="{x}" y="{y}" text-anchor="middle" transform="rotate(-90 {x} {y})">the next turn</text>"#
    );
    let mut legend = LEFT;
    for (kind, text) in
        [(Kind::Kernel, "system calls"), (Kind::Loop, "the loop itself"), (Kind::Callbacks, "your code")]
    {
        let fill = kind.fill();
        let (box_top, y, x) = (top - 6, top + 6, legend + 20);
        let _ = writeln!(
            shapes,
            r##"<rect x="{legend}" y="{box_top}" width="14" height="14" fill="{fill}" stroke="#555"/>"##
        );
        let _ = writeln!(shapes, r#"<text x="{x}" y="{y}">{text}</text>"#);
        legend += 150;
    }
    let (width, height) = (RIGHT + 310, top + 24);
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="100%" style="max-width:{width}px" role="img" aria-labelledby="turn-title" font-family="sans-serif" font-size="14" fill="#111" stroke-width="1">
<title id="turn-title">One turn of the loop</title>
<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#333" stroke="none"/></marker></defs>
<rect x="0" y="0" width="{width}" height="{height}" rx="6" fill="#fff"/>
<g stroke="none">
{}</g>
<g fill="none" stroke="#333" stroke-width="1.5">
{}</g>
</svg>
"##,
        lines_of(&shapes, |line| !line.starts_with("<path")),
        lines_of(&shapes, |line| line.starts_with("<path")),
    )
}

fn lines_of(shapes: &str, keep: impl Fn(&str) -> bool) -> String {
    shapes.lines().filter(|line| keep(line)).fold(String::new(), |all, line| all + line + "\n")
}
