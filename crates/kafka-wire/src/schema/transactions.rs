//! Idempotent and transactional producers.

use kafka_protocol::messages::ApiKey;

use super::{BOOL, INT16, INT32, INT64, RequestSchema, STRING, array, field, request, structures};

pub(super) const REQUESTS: &[RequestSchema] = &[
    request(
        ApiKey::InitProducerId,
        0,
        5,
        2,
        &[
            field("transactional_id", STRING).nullable(0),
            field("transaction_timeout_ms", INT32),
            field("producer_id", INT64).since(3),
            field("producer_epoch", INT16).since(3),
        ],
    ),
    request(
        ApiKey::AddPartitionsToTxn,
        0,
        5,
        3,
        &[
            field(
                "transactions",
                structures(&[
                    field("transactional_id", STRING).since(4),
                    field("producer_id", INT64).since(4),
                    field("producer_epoch", INT16).since(4),
                    field("verify_only", BOOL).since(4),
                    field(
                        "topics",
                        structures(&[field("name", STRING), field("partitions", array(&INT32))]),
                    )
                    .since(4),
                ]),
            )
            .since(4),
            field("v3_and_below_transactional_id", STRING).until(3),
            field("v3_and_below_producer_id", INT64).until(3),
            field("v3_and_below_producer_epoch", INT16).until(3),
            field(
                "v3_and_below_topics",
                structures(&[field("name", STRING), field("partitions", array(&INT32))]),
            )
            .until(3),
        ],
    ),
    request(
        ApiKey::AddOffsetsToTxn,
        0,
        4,
        3,
        &[
            field("transactional_id", STRING),
            field("producer_id", INT64),
            field("producer_epoch", INT16),
            field("group_id", STRING),
        ],
    ),
    request(
        ApiKey::EndTxn,
        0,
        5,
        3,
        &[
            field("transactional_id", STRING),
            field("producer_id", INT64),
            field("producer_epoch", INT16),
            field("committed", BOOL),
        ],
    ),
    request(
        ApiKey::WriteTxnMarkers,
        1,
        1,
        1,
        &[field(
            "markers",
            structures(&[
                field("producer_id", INT64),
                field("producer_epoch", INT16),
                field("transaction_result", BOOL),
                field(
                    "topics",
                    structures(&[
                        field("name", STRING),
                        field("partition_indexes", array(&INT32)),
                    ]),
                ),
                field("coordinator_epoch", INT32),
            ]),
        )],
    ),
    request(
        ApiKey::TxnOffsetCommit,
        0,
        5,
        3,
        &[
            field("transactional_id", STRING),
            field("group_id", STRING),
            field("producer_id", INT64),
            field("producer_epoch", INT16),
            field("generation_id", INT32).since(3),
            field("member_id", STRING).since(3),
            field("group_instance_id", STRING).since(3).nullable(3),
            field(
                "topics",
                structures(&[
                    field("name", STRING),
                    field(
                        "partitions",
                        structures(&[
                            field("partition_index", INT32),
                            field("committed_offset", INT64),
                            field("committed_leader_epoch", INT32).since(2),
                            field("committed_metadata", STRING).nullable(0),
                        ]),
                    ),
                ]),
            ),
        ],
    ),
    request(
        ApiKey::DescribeProducers,
        0,
        0,
        0,
        &[field(
            "topics",
            structures(&[
                field("name", STRING),
                field("partition_indexes", array(&INT32)),
            ]),
        )],
    ),
    request(
        ApiKey::DescribeTransactions,
        0,
        0,
        0,
        &[field("transactional_ids", array(&STRING))],
    ),
    request(
        ApiKey::ListTransactions,
        0,
        2,
        0,
        &[
            field("state_filters", array(&STRING)),
            field("producer_id_filters", array(&INT64)),
            field("duration_filter", INT64).since(1),
            field("transactional_id_pattern", STRING)
                .since(2)
                .nullable(2),
        ],
    ),
];
