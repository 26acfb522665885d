//! Consumer groups, classic and KIP-848, and their offsets.

use kafka_protocol::messages::ApiKey;

use super::{
    BOOL, BYTES, INT8, INT32, INT64, NEVER, RequestSchema, STRING, UUID, array, field, request,
    structures,
};

pub(super) const REQUESTS: &[RequestSchema] = &[
    request(
        ApiKey::OffsetCommit,
        2,
        9,
        8,
        &[
            field("group_id", STRING),
            field("generation_id_or_member_epoch", INT32),
            field("member_id", STRING),
            field("group_instance_id", STRING).since(7).nullable(7),
            field("retention_time_ms", INT64).until(4),
            field(
                "topics",
                structures(&[
                    field("name", STRING),
                    field(
                        "partitions",
                        structures(&[
                            field("partition_index", INT32),
                            field("committed_offset", INT64),
                            field("committed_leader_epoch", INT32).since(6),
                            field("committed_metadata", STRING).nullable(2),
                        ]),
                    ),
                ]),
            ),
        ],
    ),
    request(
        ApiKey::OffsetFetch,
        1,
        9,
        6,
        &[
            field("group_id", STRING).until(7),
            field(
                "topics",
                structures(&[
                    field("name", STRING).until(7),
                    field("partition_indexes", array(&INT32)).until(7),
                ]),
            )
            .until(7)
            .nullable(2),
            field(
                "groups",
                structures(&[
                    field("group_id", STRING).since(8),
                    field("member_id", STRING).since(9).nullable(9),
                    field("member_epoch", INT32).since(9),
                    field(
                        "topics",
                        structures(&[
                            field("name", STRING).since(8),
                            field("partition_indexes", array(&INT32)).since(8),
                        ]),
                    )
                    .since(8)
                    .nullable(8),
                ]),
            )
            .since(8),
            field("require_stable", BOOL).since(7),
        ],
    ),
    request(
        ApiKey::FindCoordinator,
        0,
        6,
        3,
        &[
            field("key", STRING).until(3),
            field("key_type", INT8).since(1),
            field("coordinator_keys", array(&STRING)).since(4),
        ],
    ),
    request(
        ApiKey::JoinGroup,
        0,
        9,
        6,
        &[
            field("group_id", STRING),
            field("session_timeout_ms", INT32),
            field("rebalance_timeout_ms", INT32).since(1),
            field("member_id", STRING),
            field("group_instance_id", STRING).since(5).nullable(5),
            field("protocol_type", STRING),
            field(
                "protocols",
                structures(&[field("name", STRING), field("metadata", BYTES)]),
            ),
            field("reason", STRING).since(8).nullable(8),
        ],
    ),
    request(
        ApiKey::Heartbeat,
        0,
        4,
        4,
        &[
            field("group_id", STRING),
            field("generation_id", INT32),
            field("member_id", STRING),
            field("group_instance_id", STRING).since(3).nullable(3),
        ],
    ),
    request(
        ApiKey::LeaveGroup,
        0,
        5,
        4,
        &[
            field("group_id", STRING),
            field("member_id", STRING).until(2),
            field(
                "members",
                structures(&[
                    field("member_id", STRING).since(3),
                    field("group_instance_id", STRING).since(3).nullable(3),
                    field("reason", STRING).since(5).nullable(5),
                ]),
            )
            .since(3),
        ],
    ),
    request(
        ApiKey::SyncGroup,
        0,
        5,
        4,
        &[
            field("group_id", STRING),
            field("generation_id", INT32),
            field("member_id", STRING),
            field("group_instance_id", STRING).since(3).nullable(3),
            field("protocol_type", STRING).since(5).nullable(5),
            field("protocol_name", STRING).since(5).nullable(5),
            field(
                "assignments",
                structures(&[field("member_id", STRING), field("assignment", BYTES)]),
            ),
        ],
    ),
    request(
        ApiKey::DescribeGroups,
        0,
        6,
        5,
        &[
            field("groups", array(&STRING)),
            field("include_authorized_operations", BOOL).since(3),
        ],
    ),
    request(
        ApiKey::ListGroups,
        0,
        5,
        3,
        &[
            field("states_filter", array(&STRING)).since(4),
            field("types_filter", array(&STRING)).since(5),
        ],
    ),
    request(
        ApiKey::DeleteGroups,
        0,
        2,
        2,
        &[field("groups_names", array(&STRING))],
    ),
    request(
        ApiKey::OffsetDelete,
        0,
        0,
        NEVER,
        &[
            field("group_id", STRING),
            field(
                "topics",
                structures(&[
                    field("name", STRING),
                    field("partitions", structures(&[field("partition_index", INT32)])),
                ]),
            ),
        ],
    ),
    request(
        ApiKey::ConsumerGroupHeartbeat,
        0,
        1,
        0,
        &[
            field("group_id", STRING),
            field("member_id", STRING),
            field("member_epoch", INT32),
            field("instance_id", STRING).nullable(0),
            field("rack_id", STRING).nullable(0),
            field("rebalance_timeout_ms", INT32),
            field("subscribed_topic_names", array(&STRING)).nullable(0),
            field("subscribed_topic_regex", STRING).since(1).nullable(1),
            field("server_assignor", STRING).nullable(0),
            field(
                "topic_partitions",
                structures(&[field("topic_id", UUID), field("partitions", array(&INT32))]),
            )
            .nullable(0),
        ],
    ),
    request(
        ApiKey::ConsumerGroupDescribe,
        0,
        1,
        0,
        &[
            field("group_ids", array(&STRING)),
            field("include_authorized_operations", BOOL),
        ],
    ),
];
