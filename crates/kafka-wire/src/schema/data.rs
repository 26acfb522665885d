//! Reading, writing and finding data.

use kafka_protocol::messages::ApiKey;

use super::{
    BOOL, BYTES, INT8, INT16, INT32, INT64, RequestSchema, STRING, UUID, array, field, request,
    structure, structures,
};

pub(super) const REQUESTS: &[RequestSchema] = &[
    request(
        ApiKey::Produce,
        3,
        13,
        9,
        &[
            field("transactional_id", STRING).nullable(3),
            field("acks", INT16),
            field("timeout_ms", INT32),
            field(
                "topic_data",
                structures(&[
                    field("name", STRING).until(12),
                    field("topic_id", UUID).since(13),
                    field(
                        "partition_data",
                        structures(&[field("index", INT32), field("records", BYTES).nullable(3)]),
                    ),
                ]),
            ),
        ],
    ),
    request(
        ApiKey::Fetch,
        4,
        18,
        12,
        &[
            field("replica_id", INT32).until(14),
            field("max_wait_ms", INT32),
            field("min_bytes", INT32),
            field("max_bytes", INT32),
            field("isolation_level", INT8),
            field("session_id", INT32).since(7),
            field("session_epoch", INT32).since(7),
            field(
                "topics",
                structures(&[
                    field("topic", STRING).until(12),
                    field("topic_id", UUID).since(13),
                    field(
                        "partitions",
                        structures(&[
                            field("partition", INT32),
                            field("current_leader_epoch", INT32).since(9),
                            field("fetch_offset", INT64),
                            field("last_fetched_epoch", INT32).since(12),
                            field("log_start_offset", INT64).since(5),
                            field("partition_max_bytes", INT32),
                            field("replica_directory_id", UUID).since(17).tagged(0),
                            field("high_watermark", INT64).since(18).tagged(1),
                        ]),
                    ),
                ]),
            ),
            field(
                "forgotten_topics_data",
                structures(&[
                    field("topic", STRING).since(7).until(12),
                    field("topic_id", UUID).since(13),
                    field("partitions", array(&INT32)).since(7),
                ]),
            )
            .since(7),
            field("rack_id", STRING).since(11),
            field("cluster_id", STRING).since(12).tagged(0).nullable(12),
            field(
                "replica_state",
                structure(&[
                    field("replica_id", INT32).since(15),
                    field("replica_epoch", INT64).since(15),
                ]),
            )
            .since(15)
            .tagged(1),
        ],
    ),
    request(
        ApiKey::ListOffsets,
        1,
        10,
        6,
        &[
            field("replica_id", INT32),
            field("isolation_level", INT8).since(2),
            field(
                "topics",
                structures(&[
                    field("name", STRING),
                    field(
                        "partitions",
                        structures(&[
                            field("partition_index", INT32),
                            field("current_leader_epoch", INT32).since(4),
                            field("timestamp", INT64),
                        ]),
                    ),
                ]),
            ),
            field("timeout_ms", INT32).since(10),
        ],
    ),
    request(
        ApiKey::Metadata,
        0,
        13,
        9,
        &[
            field(
                "topics",
                structures(&[
                    field("topic_id", UUID).since(10),
                    field("name", STRING).nullable(10),
                ]),
            )
            .nullable(1),
            field("allow_auto_topic_creation", BOOL).since(4),
            field("include_cluster_authorized_operations", BOOL)
                .since(8)
                .until(10),
            field("include_topic_authorized_operations", BOOL).since(8),
        ],
    ),
    request(
        ApiKey::ApiVersions,
        0,
        4,
        3,
        &[
            field("client_software_name", STRING).since(3),
            field("client_software_version", STRING).since(3),
        ],
    ),
    request(
        ApiKey::OffsetForLeaderEpoch,
        2,
        4,
        4,
        &[
            field("replica_id", INT32).since(3),
            field(
                "topics",
                structures(&[
                    field("topic", STRING),
                    field(
                        "partitions",
                        structures(&[
                            field("partition", INT32),
                            field("current_leader_epoch", INT32),
                            field("leader_epoch", INT32),
                        ]),
                    ),
                ]),
            ),
        ],
    ),
    request(
        ApiKey::DescribeCluster,
        0,
        2,
        0,
        &[
            field("include_cluster_authorized_operations", BOOL),
            field("endpoint_type", INT8).since(1),
            field("include_fenced_brokers", BOOL).since(2),
        ],
    ),
    request(
        ApiKey::DescribeTopicPartitions,
        0,
        0,
        0,
        &[
            field("topics", structures(&[field("name", STRING)])),
            field("response_partition_limit", INT32),
            field(
                "cursor",
                structure(&[field("topic_name", STRING), field("partition_index", INT32)]),
            )
            .nullable(0),
        ],
    ),
];
