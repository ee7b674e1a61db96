//! Output: standard output is what another program may read, standard error is for people.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde_json::Value;

use crate::cli::Format;

/// Whether colours may be used on standard error.
pub fn colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes to standard output.
///
/// # Errors
/// When it is closed.
pub fn out(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        stdout.write_all(b"\n")?;
    }
    Ok(stdout.flush()?)
}

/// Says something to people.
pub fn say(text: &str) {
    // Nobody may listen; that is no reason to stop.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes a value for programs.
///
/// # Errors
/// When standard output is closed.
pub fn value(format: Format, value: &Value) -> anyhow::Result<()> {
    match format {
        Format::Yaml => out(&serde_saphyr::to_string(value)?),
        Format::Json | Format::Table => out(&serde_json::to_string_pretty(value)?),
    }
}

/// Whether an error only says that whoever read our output has gone.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Why no connection came about, when that is what failed.
fn unreachable(error: &anyhow::Error) -> Option<String> {
    let connects = error.chain().any(|cause| {
        matches!(
            cause.downcast_ref::<kube::Error>(),
            Some(kube::Error::Service(_) | kube::Error::HyperError(_))
        )
    });
    connects.then(|| error.root_cause().to_string())
}

/// Says why a command failed.
pub fn fail(error: &anyhow::Error) -> ExitCode {
    if let Some(why) = unreachable(error) {
        say(&format!(
            "error: the server cannot be reached ({why}); start `muster up`, or name another kubeconfig with --kubeconfig"
        ));
        return ExitCode::FAILURE;
    }
    let mut text = format!("error: {error}");
    let mut last = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Some libraries repeat their cause in their own text.
        if !last.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        last = cause;
    }
    say(&text);
    ExitCode::FAILURE
}

/// Lines with aligned columns; a column's width is its widest cell's.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |text: &str| text.chars().count();
    let widths: Vec<usize> = (0..count)
        .map(|at| {
            rows.iter()
                .filter_map(|row| row.get(at))
                .map(|cell| width(cell))
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            line.push_str(cell);
            if at + 1 < row.len() {
                line.extend(std::iter::repeat_n(' ', widths[at] - width(cell) + 2));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
