//! A picture of what `http` has measured: processor time a request against the bare loop, a panel for each mode.

use std::fs;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde_json::Value;

use crate::Outcome;
use crate::peers::{CONTROL, OURS, YARD_STICK};

/// Panels beside each other.
const COLUMNS: usize = 2;

/// The column of the table that is drawn.
const RATIO: &str = "cpu to bare";

/// Pixels.
const PANEL_WIDTH: i32 = 440;
const NAMES_WIDTH: i32 = 112;
const NUMBER_WIDTH: i32 = 48;
const BAR_HEIGHT: i32 = 17;
const PANEL_HEAD: i32 = 34;
const HEAD: i32 = 58;
const FOOT: i32 = 46;

/// Ratios beyond this are cut off, and the number tells; else one slow server makes all others look alike.
const MOST: f64 = 3.0;

const OURS_COLOUR: RGBColor = RGBColor(33, 113, 181);
const CONTROL_COLOUR: RGBColor = RGBColor(217, 217, 217);
const PEER_COLOUR: RGBColor = RGBColor(150, 150, 150);
const TEXT_COLOUR: RGBColor = RGBColor(40, 40, 40);
const LINE_COLOUR: RGBColor = RGBColor(203, 24, 29);

/// One server in one mode.
#[derive(Debug, PartialEq)]
struct Bar {
    server: String,
    /// Lowest, median and highest of the rounds, or why there is none.
    ratio: Result<[f64; 3], String>,
}

#[derive(Debug, PartialEq)]
struct Panel {
    mode: String,
    /// The load in words; empty if the file does not tell.
    what: String,
    bars: Vec<Bar>,
}

#[derive(Debug, PartialEq)]
struct Chart {
    title: String,
    machine: String,
    command: String,
    panels: Vec<Panel>,
}

/// `FIGURES.json OUT.svg`: draws the one from the other.
pub(crate) fn run(args: &[String]) -> Outcome<()> {
    let [from, to] = args else { return Err("chart needs FIGURES.json OUT.svg".into()) };
    let text = fs::read_to_string(from).map_err(|error| format!("cannot read {from}: {error}"))?;
    let chart = read(&text).map_err(|error| format!("{from}: {error}"))?;
    fs::write(to, draw(&chart)?).map_err(|error| format!("cannot write {to}: {error}"))?;
    Ok(())
}

/// Finds what is drawn in a report of `http`.
fn read(text: &str) -> Outcome<Chart> {
    let report: Value = serde_json::from_str(text)?;
    if report["command"] != "http" {
        return Err("these are not the figures of http".into());
    }
    let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let notes: Vec<String> = report["notes"].as_array().into_iter().flatten().map(string).collect();
    let table = &report["tables"][0];
    let mut panels: Vec<Panel> = Vec::new();
    for row in table["rows"].as_array().ok_or("no table")? {
        let (mode, server) = (string(&row["mode"]), string(&row["server"]));
        if panels.last().is_none_or(|panel| panel.mode != mode) {
            let head = format!("{mode}: ");
            let what = notes.iter().find_map(|note| note.strip_prefix(&head)).unwrap_or_default().to_owned();
            panels.push(Panel { mode, what, bars: Vec::new() });
        }
        if server == YARD_STICK {
            continue;
        }
        let part = |name: &str| row[RATIO][name].as_f64();
        let ratio = match (part("min"), part("median"), part("max")) {
            (Some(low), Some(median), Some(high)) => Ok([low, median, high]),
            _ => Err(string(&row["note"])),
        };
        panels.last_mut().ok_or("no panel")?.bars.push(Bar { server, ratio });
    }
    if panels.is_empty() {
        return Err("no rows".into());
    }
    Ok(Chart {
        title: string(&table["title"]),
        machine: string(&report["machine"]),
        command: string(&report["invocation"]),
        panels,
    })
}

/// The chart as SVG.
fn draw(chart: &Chart) -> Outcome<String> {
    let rows = chart.panels.len().div_ceil(COLUMNS);
    let bars = chart.panels.iter().map(|panel| panel.bars.len()).max().unwrap_or(0);
    let panel_height = PANEL_HEAD + BAR_HEIGHT * i32::try_from(bars)?;
    let width = PANEL_WIDTH * i32::try_from(COLUMNS)?;
    let height = HEAD + panel_height * i32::try_from(rows)? + FOOT;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (u32::try_from(width)?, u32::try_from(height)?))
            .into_drawing_area();
        root.fill(&WHITE)?;
        let text = |words: &str, size: i32, at: (i32, i32)| {
            Text::new(words.to_owned(), at, ("sans-serif", size).into_font().color(&TEXT_COLOUR))
        };
        let title = "Processor time a request, against a bare epoll loop (less is better)";
        root.draw(&text(title, 18, (14, 10)))?;
        let how = "bars: median; thin lines: lowest to highest; red: the bare loop, 1";
        root.draw(&text(&format!("{}. {how}", chart.title), 12, (14, 34)))?;
        for (at, panel) in chart.panels.iter().enumerate() {
            let (column, row) = (i32::try_from(at % COLUMNS)?, i32::try_from(at / COLUMNS)?);
            draw_panel(&root, panel, (column * PANEL_WIDTH, HEAD + row * panel_height))?;
        }
        root.draw(&text(&chart.machine, 12, (14, height - FOOT + 12)))?;
        root.draw(&text(&chart.command, 12, (14, height - FOOT + 28)))?;
        root.present()?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_panel(root: &Area<'_>, panel: &Panel, (left, top): (i32, i32)) -> Outcome<()> {
    let style = |size: i32, colour: RGBColor, horizontal: HPos| {
        ("sans-serif", size).into_font().color(&colour).pos(Pos::new(horizontal, VPos::Center))
    };
    let head = format!("{}: {}", panel.mode, panel.what);
    root.draw(&Text::new(head, (left + 14, top + 18), style(13, TEXT_COLOUR, HPos::Left)))?;
    let from = left + NAMES_WIDTH;
    let room = PANEL_WIDTH - NAMES_WIDTH - NUMBER_WIDTH;
    let highest = panel.bars.iter().filter_map(|bar| Some(bar.ratio.as_ref().ok()?[2])).fold(1.0, f64::max);
    let scale = f64::from(room) / highest.min(MOST);
    let mut y = top + PANEL_HEAD;
    for bar in &panel.bars {
        let middle = y + BAR_HEIGHT / 2;
        root.draw(&Text::new(bar.server.clone(), (from - 6, middle), style(12, TEXT_COLOUR, HPos::Right)))?;
        match &bar.ratio {
            Ok([low, median, high]) => {
                let colour = match bar.server.as_str() {
                    OURS => OURS_COLOUR,
                    CONTROL => CONTROL_COLOUR,
                    _ => PEER_COLOUR,
                };
                let at = |ratio: &f64| from + (ratio.min(MOST) * scale) as i32;
                let (to, ends) = (at(median), [(at(low), middle), (at(high), middle)]);
                root.draw(&Rectangle::new([(from, y + 2), (to, y + BAR_HEIGHT - 2)], colour.filled()))?;
                root.draw(&PathElement::new(ends, TEXT_COLOUR.stroke_width(1)))?;
                let number = format!("{median:.2}{}", if *median > MOST { " »" } else { "" });
                let after = (at(high) + 5, middle);
                root.draw(&Text::new(number, after, style(12, TEXT_COLOUR, HPos::Left)))?;
            }
            Err(why) => {
                // What stands behind the colon is for the table.
                let short = why.split(':').next().unwrap_or_default().to_owned();
                root.draw(&Text::new(short, (from + 5, middle), style(11, PEER_COLOUR, HPos::Left)))?;
            }
        }
        y += BAR_HEIGHT;
    }
    let one = from + scale as i32;
    root.draw(&PathElement::new([(one, top + PANEL_HEAD - 3), (one, y)], LINE_COLOUR.stroke_width(1)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Cell, Report, Table};

    fn report() -> String {
        let mut report = Report::new("http");
        report.set_origin("Linux on a machine", "cargo run -- http --rounds 2");
        let mut table = Table::new("2 rounds", &["mode", "server", RATIO, "note"]);
        for (mode, server, ratios) in [
            ("k1", YARD_STICK, vec![1.0, 1.0]),
            ("k1", OURS, vec![1.0, 1.2]),
            ("k1", "a<b", vec![9.0]),
            ("k64", OURS, vec![1.25]),
        ] {
            table.row(vec![Cell::text(mode), Cell::text(server), Cell::spread(ratios, 2), Cell::text("")]);
        }
        report.gap(&mut table, vec![Cell::text("k64"), Cell::text("haproxy")], "no such mode: it cannot");
        report.add(table);
        report.note("k1: keep-alive, 1 connections");
        report.json()
    }

    #[test]
    fn what_a_report_holds_is_found_in_it() {
        let chart = read(&report()).unwrap();
        assert_eq!((chart.title.as_str(), chart.machine.as_str()), ("2 rounds", "Linux on a machine"));
        assert_eq!(chart.command, "cargo run -- http --rounds 2");
        let [k1, k64] = &chart.panels[..] else { panic!("{chart:?}") };
        assert_eq!((k1.mode.as_str(), k1.what.as_str()), ("k1", "keep-alive, 1 connections"));
        assert_eq!(k1.bars.len(), 2);
        assert_eq!(k1.bars[0], Bar { server: OURS.to_owned(), ratio: Ok([1.0, 1.1, 1.2]) });
        assert_eq!(k64.bars[1].ratio, Err("no such mode: it cannot".to_owned()));
    }

    #[test]
    fn the_figures_of_something_else_are_refused() {
        for text in
            ["", "{}", "{\"command\":\"timers\"}", "{\"command\":\"http\",\"tables\":[{\"rows\":[]}]}"]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_server_and_number_is_in_the_picture_and_a_long_bar_is_cut() {
        let svg = draw(&read(&report()).unwrap()).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for part in ["event-http", "a&lt;b", "1.10", "9.00 »", "1.25", "no such mode", "Linux on a machine"]
        {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let edges = svg.split("<rect x=\"").skip(1).map(|rect| {
            let number = |key: &str| rect.split(key).nth(1).and_then(|rest| rest.split('"').next()).unwrap();
            let left: i32 = rect.split('"').next().unwrap().parse().unwrap();
            left + number("width=\"").parse::<i32>().unwrap()
        });
        assert!(edges.clone().count() >= 4 && edges.max().unwrap() <= 2 * PANEL_WIDTH);
    }
}
