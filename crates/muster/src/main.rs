//! The `muster` binary: command line and wiring, nothing else.

mod apply;
mod cli;
mod commands;
mod kubeconfig;
mod printer;
mod settings;
mod view;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    // Two providers could be compiled in by a dependency; the choice is made here, once.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers; everything else is wrong usage.
            let code = match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(2),
            };
            let _ = error.print();
            return code;
        }
    };
    log(&cli);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            return printer::fail(&anyhow::Error::new(error).context("starting the runtime"));
        }
    };
    match runtime.block_on(commands::run(cli)) {
        Ok(code) => code,
        Err(error) if printer::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => printer::fail(&error),
    }
}

fn log(cli: &cli::Cli) {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(cli.log_level.as_str()));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    if cli.log_json {
        builder.json().init();
    } else {
        builder.with_ansi(printer::colours()).init();
    }
}
