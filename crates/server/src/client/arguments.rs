//! What these commands take.

use clap::{ArgMatches, Args, FromArgMatches, Subcommand};

/// How to reach the cluster, and how to answer.
#[derive(Debug, Clone, Args)]
pub struct Connection {
    /// The admin API of any broker
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_ADMIN",
        value_name = "URL",
        default_value = "http://127.0.0.1:9640"
    )]
    pub admin: String,
    /// The token that the broker asks for
    #[arg(
        long,
        global = true,
        env = "TIDEGATE_ADMIN_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    pub token: Option<String>,
    /// Print the API's answer as JSON
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Args)]
struct Group<C: Subcommand> {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: C,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Lists, creates, describes and deletes topics
    Topic(Group<Topic>),
    /// Describes partitions and moves them to other brokers
    Partition(Group<Partition>),
    /// Lists brokers and drains them
    Broker(Group<Broker>),
    /// Lists consumer groups and shows how far they are behind
    Group(Group<ConsumerGroup>),
    /// Shows how the cluster stands
    Cluster(Group<Cluster>),
    /// Shows the moves of partitions that are under way
    Reassignment(Group<Reassignment>),
}

/// A command to a running cluster.
#[derive(Debug)]
pub struct Call {
    pub connection: Connection,
    pub command: Command,
}

/// What to do.
#[derive(Debug)]
pub enum Command {
    Topic(Topic),
    Partition(Partition),
    Broker(Broker),
    Group(ConsumerGroup),
    Cluster(Cluster),
    Reassignment(Reassignment),
}

#[derive(Debug, Subcommand)]
pub enum Topic {
    /// Lists all topics
    List,
    /// Creates a topic
    Create {
        /// The topic's name
        topic: String,
        /// Number of partitions; the broker's default if it isn't said
        #[arg(long, short)]
        partitions: Option<u32>,
        /// How many brokers may lead each partition
        #[arg(long)]
        replication_factor: Option<u16>,
        /// A config by its Kafka name, as retention.ms=3600000; may be repeated
        #[arg(long, short, value_name = "NAME=VALUE", value_parser = pair)]
        config: Vec<(String, String)>,
    },
    /// Shows a topic and its partitions
    Describe {
        /// The topic's name
        topic: String,
    },
    /// Deletes a topic with all its records
    Delete {
        /// The topic's name
        topic: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum Partition {
    /// Shows one partition in full
    Describe {
        /// The topic's name
        topic: String,
        /// The partition's number
        partition: u32,
    },
    /// Moves a partition to another broker, and waits for it
    Move {
        /// The topic's name
        topic: String,
        /// The partition's number
        partition: u32,
        /// The broker that shall lead it
        #[arg(long, value_name = "BROKER")]
        to: u32,
        /// How long to wait, in seconds; the move goes on after that
        #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(0..=600))]
        timeout: u64,
    },
}

#[derive(Debug, Subcommand)]
pub enum Broker {
    /// Lists all brokers
    List,
    /// Shows one broker
    Describe {
        /// The broker's number
        broker: u32,
    },
    /// Gives all partitions of a broker to others, and waits for it
    Drain {
        /// The broker's number
        broker: u32,
        /// Don't wait until it is done
        #[arg(long)]
        no_wait: bool,
    },
    /// Takes a drain back
    Undrain {
        /// The broker's number
        broker: u32,
    },
}

#[derive(Debug, Subcommand)]
pub enum ConsumerGroup {
    /// Lists all groups
    List,
    /// Shows a group's members, offsets and lag
    Describe {
        /// The group's name
        group: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Shows controller, brokers, and what nobody serves
    Status,
    /// Switches on or off that the controller evens out load by itself, until the next change of controller
    Balance {
        /// on or off
        #[arg(value_parser = ["on", "off"])]
        switch: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum Reassignment {
    /// Lists the moves that are wanted and not done
    List,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("write NAME=VALUE, as retention.ms=3600000")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Call {
    /// Adds these commands to the command line.
    pub fn augment(command: clap::Command) -> clap::Command {
        Commands::augment_subcommands(command)
    }

    /// The command that was given, if it is one of these.
    ///
    /// # Errors
    /// It isn't.
    pub fn from_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        macro_rules! call {
            ($group:expr, $kind:ident) => {
                Self {
                    connection: $group.connection,
                    command: Command::$kind($group.command),
                }
            };
        }
        Ok(match Commands::from_arg_matches(matches)? {
            Commands::Topic(group) => call!(group, Topic),
            Commands::Partition(group) => call!(group, Partition),
            Commands::Broker(group) => call!(group, Broker),
            Commands::Group(group) => call!(group, Group),
            Commands::Cluster(group) => call!(group, Cluster),
            Commands::Reassignment(group) => call!(group, Reassignment),
        })
    }
}
