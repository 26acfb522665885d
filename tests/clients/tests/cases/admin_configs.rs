//! Topic and broker configs.

use anyhow::{Context, Result, ensure};
use kafka_protocol::messages::alter_configs_request::{
    AlterConfigsResource, AlterableConfig as LegacyConfig,
};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource as IncrementalResource, AlterableConfig,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest,
};
use tidegate_harness::RawClient;

use crate::ops::{Topic, create_topic};
use crate::support::{connect, errors, text};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const DYNAMIC_TOPIC: i8 = 1;
const DEFAULT: i8 = 5;
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

async fn describe(
    client: &mut RawClient,
    topic: &Topic,
    keys: Option<&[&str]>,
    synonyms: bool,
) -> Result<Vec<DescribeConfigsResourceResult>> {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(&topic.name))
        .with_configuration_keys(keys.map(|keys| keys.iter().map(|key| text(key)).collect()));
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![resource])
        .with_include_synonyms(synonyms);
    let answer = client.call(4, &request).await?;
    let result = answer
        .results
        .into_iter()
        .next()
        .context("no answer for the topic")?;
    ensure!(
        result.error_code == errors::NONE,
        "DescribeConfigs answered {}",
        result.error_code
    );
    Ok(result.configs)
}

/// Value and source of one key.
async fn value(client: &mut RawClient, topic: &Topic, key: &str) -> Result<(String, i8)> {
    let configs = describe(client, topic, Some(&[key]), false).await?;
    ensure!(configs.len() == 1, "{} configs for one key", configs.len());
    Ok((
        configs[0]
            .value
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        configs[0].config_source,
    ))
}

async fn incremental(
    client: &mut RawClient,
    topic: &Topic,
    changes: &[(&str, i8, Option<&str>)],
) -> Result<i16> {
    let configs = changes
        .iter()
        .map(|(key, operation, value)| {
            AlterableConfig::default()
                .with_name(text(key))
                .with_config_operation(*operation)
                .with_value(value.map(text))
        })
        .collect();
    let resource = IncrementalResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(&topic.name))
        .with_configs(configs);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let answer = client.call(1, &request).await?;
    Ok(answer
        .responses
        .first()
        .context("no answer for the topic")?
        .error_code)
}

async fn legacy(
    client: &mut RawClient,
    topic: &Topic,
    configs: &[(&str, &str)],
    dry: bool,
) -> Result<i16> {
    let configs = configs
        .iter()
        .map(|(key, value)| {
            LegacyConfig::default()
                .with_name(text(key))
                .with_value(Some(text(value)))
        })
        .collect();
    let resource = AlterConfigsResource::default()
        .with_resource_type(TOPIC)
        .with_resource_name(text(&topic.name))
        .with_configs(configs);
    let request = AlterConfigsRequest::default()
        .with_resources(vec![resource])
        .with_validate_only(dry);
    let answer = client.call(2, &request).await?;
    Ok(answer
        .responses
        .first()
        .context("no answer for the topic")?
        .error_code)
}

/// O-AD-02. Schema Registry and Connect read these keys; both refuse to start when one is missing.
#[tokio::test]
async fn a_topics_description_is_complete_and_names_where_each_value_comes_from() -> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(
        &mut client,
        "described",
        1,
        &[("cleanup.policy", "compact")],
    )
    .await?;
    let all = describe(&mut client, &topic, None, false).await?;
    let complete = [
        "cleanup.policy",
        "compression.type",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    ];
    for key in complete {
        let config = all.iter().find(|config| config.name.as_str() == key);
        let config = config.with_context(|| format!("{key} is missing"))?;
        ensure!(
            !config.is_sensitive && !config.read_only,
            "{key} is neither secret nor fixed"
        );
        match key {
            "cleanup.policy" => assert_eq!(config.config_source, DYNAMIC_TOPIC),
            // Kafka sets a cluster-wide default for this one by itself.
            "min.insync.replicas" => ensure!(config.config_source != DYNAMIC_TOPIC, "{key}"),
            _ => assert_eq!(config.config_source, DEFAULT, "{key}"),
        }
        ensure!(config.synonyms.is_empty(), "synonyms that nobody asked for");
    }
    assert_eq!(
        value(&mut client, &topic, "cleanup.policy").await?,
        ("compact".into(), DYNAMIC_TOPIC)
    );
    Ok(())
}

/// O-AD-02.
#[tokio::test]
async fn a_value_set_equal_to_the_default_is_still_the_topics_own_and_synonyms_list_the_chain()
-> Result<()> {
    let mut client = connect().await?;
    let topic = create_topic(&mut client, "described", 1, &[]).await?;
    let (default, source) = value(&mut client, &topic, "retention.ms").await?;
    assert_eq!(source, DEFAULT);
    assert_eq!(
        incremental(
            &mut client,
            &topic,
            &[("retention.ms", SET, Some(&default))]
        )
        .await?,
        errors::NONE
    );
    assert_eq!(
        value(&mut client, &topic, "retention.ms").await?,
        (default.clone(), DYNAMIC_TOPIC)
    );
    let configs = describe(
        &mut client,
        &topic,
        Some(&["cleanup.policy", "max.message.bytes"]),
        true,
    )
    .await?;
    let mut names: Vec<&str> = configs.iter().map(|config| config.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["cleanup.policy", "max.message.bytes"],
        "only the requested keys"
    );

    assert_eq!(
        incremental(
            &mut client,
            &topic,
            &[("max.message.bytes", SET, Some("5000"))]
        )
        .await?,
        errors::NONE
    );
    let configs = describe(&mut client, &topic, Some(&["max.message.bytes"]), true).await?;
    let chain: Vec<(i8, Option<&str>)> = configs[0]
        .synonyms
        .iter()
        .map(|synonym| (synonym.source, synonym.value.as_deref()))
        .collect();
    assert_eq!(chain.first(), Some(&(DYNAMIC_TOPIC, Some("5000"))));
    assert_eq!(
        chain.last().map(|(source, _)| *source),
        Some(DEFAULT),
        "{chain:?}"
    );
    Ok(())
}

/// O-AD-03.
#[tokio::test]
async fn an_incremental_change_touches_only_its_key() -> Result<()> {
    let mut client = connect().await?;
    let configs = [("cleanup.policy", "compact"), ("compression.type", "gzip")];
    let topic = create_topic(&mut client, "altered", 1, &configs).await?;
    assert_eq!(
        incremental(
            &mut client,
            &topic,
            &[("retention.ms", SET, Some("1000000"))]
        )
        .await?,
        errors::NONE
    );
    assert_eq!(
        value(&mut client, &topic, "retention.ms").await?,
        ("1000000".into(), DYNAMIC_TOPIC)
    );
    assert_eq!(
        value(&mut client, &topic, "cleanup.policy").await?,
        ("compact".into(), DYNAMIC_TOPIC)
    );
    assert_eq!(
        value(&mut client, &topic, "compression.type").await?,
        ("gzip".into(), DYNAMIC_TOPIC)
    );
    assert_eq!(
        incremental(&mut client, &topic, &[("retention.ms", DELETE, None)]).await?,
        errors::NONE
    );
    assert_eq!(value(&mut client, &topic, "retention.ms").await?.1, DEFAULT);
    assert_eq!(
        incremental(
            &mut client,
            &topic,
            &[("cleanup.policy", APPEND, Some("delete"))]
        )
        .await?,
        errors::NONE
    );
    assert_eq!(
        value(&mut client, &topic, "cleanup.policy").await?.0,
        "compact,delete"
    );
    assert_eq!(
        incremental(
            &mut client,
            &topic,
            &[("cleanup.policy", SUBTRACT, Some("delete"))]
        )
        .await?,
        errors::NONE
    );
    assert_eq!(
        value(&mut client, &topic, "cleanup.policy").await?.0,
        "compact"
    );
    let unknown = incremental(&mut client, &topic, &[("no.such.key", SET, Some("1"))]).await?;
    assert_eq!(unknown, errors::INVALID_CONFIG);
    Ok(())
}

/// O-AD-03.
#[tokio::test]
async fn the_legacy_change_resets_what_it_does_not_name_and_a_dry_run_changes_nothing() -> Result<()>
{
    let mut client = connect().await?;
    let configs = [("cleanup.policy", "compact"), ("compression.type", "gzip")];
    let topic = create_topic(&mut client, "altered", 1, &configs).await?;
    assert_eq!(
        legacy(&mut client, &topic, &[("retention.ms", "2000000")], true).await?,
        errors::NONE
    );
    assert_eq!(
        value(&mut client, &topic, "cleanup.policy").await?,
        ("compact".into(), DYNAMIC_TOPIC)
    );
    assert_eq!(value(&mut client, &topic, "retention.ms").await?.1, DEFAULT);

    assert_eq!(
        legacy(&mut client, &topic, &[("retention.ms", "2000000")], false).await?,
        errors::NONE
    );
    assert_eq!(
        value(&mut client, &topic, "retention.ms").await?,
        ("2000000".into(), DYNAMIC_TOPIC)
    );
    assert_eq!(
        value(&mut client, &topic, "cleanup.policy").await?,
        ("delete".into(), DEFAULT)
    );
    assert_eq!(
        value(&mut client, &topic, "compression.type").await?.1,
        DEFAULT
    );
    assert_eq!(
        legacy(&mut client, &topic, &[("no.such.key", "1")], false).await?,
        errors::INVALID_CONFIG
    );
    Ok(())
}

/// O-AD-03. The broker resource with an empty name means cluster-wide defaults.
#[tokio::test]
async fn cluster_wide_defaults_are_answered_or_refused_explicitly() -> Result<()> {
    let mut client = connect().await?;
    let resource = DescribeConfigsResource::default()
        .with_resource_type(BROKER)
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let answer = client.call(4, &request).await?;
    let result = answer
        .results
        .first()
        .context("no answer for the cluster-wide defaults")?;
    let explicit = [errors::NONE, errors::INVALID_REQUEST];
    ensure!(
        explicit.contains(&result.error_code),
        "answered {}",
        result.error_code
    );
    Ok(())
}
