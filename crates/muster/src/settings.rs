//! Flags that say how the controllers behave, the same for every command that runs them.

use clap::Args;
use muster_controllers::Settings;
use muster_controllers::machine::node_sync::Additional;
use regex::Regex;

/// How the controllers behave, where there is a choice.
#[derive(Debug, Args)]
pub struct SettingsArgs {
    /// How many Nodes of one cluster are drained at once; the others wait for their turn.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = at_least_one)]
    pub max_concurrent_drains: usize,
    /// Regular expression of labels that go from Machines to their Nodes beside Cluster API's own. May be repeated.
    #[arg(long, value_name = "REGEX", value_delimiter = ',')]
    pub additional_sync_machine_labels: Vec<Regex>,
    /// Regular expression of annotations that go from Machines to their Nodes beside Cluster API's own. May be repeated.
    #[arg(long, value_name = "REGEX", value_delimiter = ',')]
    pub additional_sync_machine_annotations: Vec<Regex>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("must be a whole number of at least 1".to_owned()),
        Ok(number) => Ok(number),
    }
}

impl SettingsArgs {
    /// As the controllers take them.
    pub fn settings(&self) -> Settings {
        Settings {
            concurrent_drains: self.max_concurrent_drains,
            additional_sync: Additional {
                labels: self.additional_sync_machine_labels.clone(),
                annotations: self.additional_sync_machine_annotations.clone(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: SettingsArgs,
    }

    #[test]
    fn what_is_typed_is_how_the_controllers_behave() {
        let default = Line::try_parse_from(["muster"]).unwrap();
        assert_eq!(default.settings.settings().concurrent_drains, 20);
        let line = [
            "muster",
            "--max-concurrent-drains=3",
            "--additional-sync-machine-labels=team,cost\\..*",
        ];
        let settings = Line::try_parse_from(line).unwrap().settings.settings();
        assert_eq!(settings.concurrent_drains, 3);
        assert_eq!(settings.additional_sync.labels.len(), 2);
        for wrong in ["0", "-1", "many"] {
            let flag = format!("--max-concurrent-drains={wrong}");
            assert!(Line::try_parse_from(["muster", &flag]).is_err(), "{wrong}");
        }
    }
}
