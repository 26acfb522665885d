//! Topics, configurations, reassignments, quotas, features and telemetry.

use kafka_protocol::messages::ApiKey;

use super::{
    BOOL, BYTES, FLOAT64, INT8, INT16, INT32, INT64, RequestSchema, STRING, UUID, array, field,
    request, structures,
};

pub(super) const REQUESTS: &[RequestSchema] = &[
    request(
        ApiKey::CreateTopics,
        2,
        7,
        5,
        &[
            field(
                "topics",
                structures(&[
                    field("name", STRING),
                    field("num_partitions", INT32),
                    field("replication_factor", INT16),
                    field(
                        "assignments",
                        structures(&[
                            field("partition_index", INT32),
                            field("broker_ids", array(&INT32)),
                        ]),
                    ),
                    field(
                        "configs",
                        structures(&[field("name", STRING), field("value", STRING).nullable(2)]),
                    ),
                ]),
            ),
            field("timeout_ms", INT32),
            field("validate_only", BOOL),
        ],
    ),
    request(
        ApiKey::DeleteTopics,
        1,
        6,
        4,
        &[
            field(
                "topics",
                structures(&[
                    field("name", STRING).since(6).nullable(6),
                    field("topic_id", UUID).since(6),
                ]),
            )
            .since(6),
            field("topic_names", array(&STRING)).until(5),
            field("timeout_ms", INT32),
        ],
    ),
    request(
        ApiKey::DeleteRecords,
        0,
        2,
        2,
        &[
            field(
                "topics",
                structures(&[
                    field("name", STRING),
                    field(
                        "partitions",
                        structures(&[field("partition_index", INT32), field("offset", INT64)]),
                    ),
                ]),
            ),
            field("timeout_ms", INT32),
        ],
    ),
    request(
        ApiKey::DescribeConfigs,
        1,
        4,
        4,
        &[
            field(
                "resources",
                structures(&[
                    field("resource_type", INT8),
                    field("resource_name", STRING),
                    field("configuration_keys", array(&STRING)).nullable(1),
                ]),
            ),
            field("include_synonyms", BOOL),
            field("include_documentation", BOOL).since(3),
        ],
    ),
    request(
        ApiKey::AlterConfigs,
        0,
        2,
        2,
        &[
            field(
                "resources",
                structures(&[
                    field("resource_type", INT8),
                    field("resource_name", STRING),
                    field(
                        "configs",
                        structures(&[field("name", STRING), field("value", STRING).nullable(0)]),
                    ),
                ]),
            ),
            field("validate_only", BOOL),
        ],
    ),
    request(
        ApiKey::AlterReplicaLogDirs,
        1,
        2,
        2,
        &[field(
            "dirs",
            structures(&[
                field("path", STRING),
                field(
                    "topics",
                    structures(&[field("name", STRING), field("partitions", array(&INT32))]),
                ),
            ]),
        )],
    ),
    request(
        ApiKey::DescribeLogDirs,
        1,
        4,
        2,
        &[field(
            "topics",
            structures(&[field("topic", STRING), field("partitions", array(&INT32))]),
        )
        .nullable(1)],
    ),
    request(
        ApiKey::CreatePartitions,
        0,
        3,
        2,
        &[
            field(
                "topics",
                structures(&[
                    field("name", STRING),
                    field("count", INT32),
                    field(
                        "assignments",
                        structures(&[field("broker_ids", array(&INT32))]),
                    )
                    .nullable(0),
                ]),
            ),
            field("timeout_ms", INT32),
            field("validate_only", BOOL),
        ],
    ),
    request(
        ApiKey::ElectLeaders,
        0,
        2,
        2,
        &[
            field("election_type", INT8).since(1),
            field(
                "topic_partitions",
                structures(&[field("topic", STRING), field("partitions", array(&INT32))]),
            )
            .nullable(0),
            field("timeout_ms", INT32),
        ],
    ),
    request(
        ApiKey::IncrementalAlterConfigs,
        0,
        1,
        1,
        &[
            field(
                "resources",
                structures(&[
                    field("resource_type", INT8),
                    field("resource_name", STRING),
                    field(
                        "configs",
                        structures(&[
                            field("name", STRING),
                            field("config_operation", INT8),
                            field("value", STRING).nullable(0),
                        ]),
                    ),
                ]),
            ),
            field("validate_only", BOOL),
        ],
    ),
    request(
        ApiKey::AlterPartitionReassignments,
        0,
        1,
        0,
        &[
            field("timeout_ms", INT32),
            field("allow_replication_factor_change", BOOL).since(1),
            field(
                "topics",
                structures(&[
                    field("name", STRING),
                    field(
                        "partitions",
                        structures(&[
                            field("partition_index", INT32),
                            field("replicas", array(&INT32)).nullable(0),
                        ]),
                    ),
                ]),
            ),
        ],
    ),
    request(
        ApiKey::ListPartitionReassignments,
        0,
        0,
        0,
        &[
            field("timeout_ms", INT32),
            field(
                "topics",
                structures(&[
                    field("name", STRING),
                    field("partition_indexes", array(&INT32)),
                ]),
            )
            .nullable(0),
        ],
    ),
    request(
        ApiKey::DescribeClientQuotas,
        0,
        1,
        1,
        &[
            field(
                "components",
                structures(&[
                    field("entity_type", STRING),
                    field("match_type", INT8),
                    field("match", STRING).nullable(0),
                ]),
            ),
            field("strict", BOOL),
        ],
    ),
    request(
        ApiKey::AlterClientQuotas,
        0,
        1,
        1,
        &[
            field(
                "entries",
                structures(&[
                    field(
                        "entity",
                        structures(&[
                            field("entity_type", STRING),
                            field("entity_name", STRING).nullable(0),
                        ]),
                    ),
                    field(
                        "ops",
                        structures(&[
                            field("key", STRING),
                            field("value", FLOAT64),
                            field("remove", BOOL),
                        ]),
                    ),
                ]),
            ),
            field("validate_only", BOOL),
        ],
    ),
    request(
        ApiKey::DescribeQuorum,
        0,
        2,
        0,
        &[field(
            "topics",
            structures(&[
                field("topic_name", STRING),
                field("partitions", structures(&[field("partition_index", INT32)])),
            ]),
        )],
    ),
    request(
        ApiKey::UpdateFeatures,
        0,
        2,
        0,
        &[
            field("timeout_ms", INT32),
            field(
                "feature_updates",
                structures(&[
                    field("feature", STRING),
                    field("max_version_level", INT16),
                    field("allow_downgrade", BOOL).until(0),
                    field("upgrade_type", INT8).since(1),
                ]),
            ),
            field("validate_only", BOOL).since(1),
        ],
    ),
    request(
        ApiKey::UnregisterBroker,
        0,
        0,
        0,
        &[field("broker_id", INT32)],
    ),
    request(
        ApiKey::GetTelemetrySubscriptions,
        0,
        0,
        0,
        &[field("client_instance_id", UUID)],
    ),
    request(
        ApiKey::PushTelemetry,
        0,
        0,
        0,
        &[
            field("client_instance_id", UUID),
            field("subscription_id", INT32),
            field("terminating", BOOL),
            field("compression_type", INT8),
            field("metrics", BYTES),
        ],
    ),
    request(
        ApiKey::ListConfigResources,
        0,
        1,
        0,
        &[field("resource_types", array(&INT8)).since(1)],
    ),
];
