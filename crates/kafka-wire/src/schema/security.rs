//! Authentication, access control, delegation tokens and SCRAM users.

use kafka_protocol::messages::ApiKey;

use super::{BYTES, INT8, INT32, INT64, NEVER, RequestSchema, STRING, field, request, structures};

pub(super) const REQUESTS: &[RequestSchema] = &[
    request(
        ApiKey::SaslHandshake,
        0,
        1,
        NEVER,
        &[field("mechanism", STRING)],
    ),
    request(
        ApiKey::DescribeAcls,
        1,
        3,
        2,
        &[
            field("resource_type_filter", INT8),
            field("resource_name_filter", STRING).nullable(1),
            field("pattern_type_filter", INT8),
            field("principal_filter", STRING).nullable(1),
            field("host_filter", STRING).nullable(1),
            field("operation", INT8),
            field("permission_type", INT8),
        ],
    ),
    request(
        ApiKey::CreateAcls,
        1,
        3,
        2,
        &[field(
            "creations",
            structures(&[
                field("resource_type", INT8),
                field("resource_name", STRING),
                field("resource_pattern_type", INT8),
                field("principal", STRING),
                field("host", STRING),
                field("operation", INT8),
                field("permission_type", INT8),
            ]),
        )],
    ),
    request(
        ApiKey::DeleteAcls,
        1,
        3,
        2,
        &[field(
            "filters",
            structures(&[
                field("resource_type_filter", INT8),
                field("resource_name_filter", STRING).nullable(1),
                field("pattern_type_filter", INT8),
                field("principal_filter", STRING).nullable(1),
                field("host_filter", STRING).nullable(1),
                field("operation", INT8),
                field("permission_type", INT8),
            ]),
        )],
    ),
    request(
        ApiKey::SaslAuthenticate,
        0,
        2,
        2,
        &[field("auth_bytes", BYTES)],
    ),
    request(
        ApiKey::CreateDelegationToken,
        1,
        3,
        2,
        &[
            field("owner_principal_type", STRING).since(3).nullable(3),
            field("owner_principal_name", STRING).since(3).nullable(3),
            field(
                "renewers",
                structures(&[
                    field("principal_type", STRING),
                    field("principal_name", STRING),
                ]),
            ),
            field("max_lifetime_ms", INT64),
        ],
    ),
    request(
        ApiKey::RenewDelegationToken,
        1,
        2,
        2,
        &[field("hmac", BYTES), field("renew_period_ms", INT64)],
    ),
    request(
        ApiKey::ExpireDelegationToken,
        1,
        2,
        2,
        &[field("hmac", BYTES), field("expiry_time_period_ms", INT64)],
    ),
    request(
        ApiKey::DescribeDelegationToken,
        1,
        3,
        2,
        &[field(
            "owners",
            structures(&[
                field("principal_type", STRING),
                field("principal_name", STRING),
            ]),
        )
        .nullable(1)],
    ),
    request(
        ApiKey::DescribeUserScramCredentials,
        0,
        0,
        0,
        &[field("users", structures(&[field("name", STRING)])).nullable(0)],
    ),
    request(
        ApiKey::AlterUserScramCredentials,
        0,
        0,
        0,
        &[
            field(
                "deletions",
                structures(&[field("name", STRING), field("mechanism", INT8)]),
            ),
            field(
                "upsertions",
                structures(&[
                    field("name", STRING),
                    field("mechanism", INT8),
                    field("iterations", INT32),
                    field("salt", BYTES),
                    field("salted_password", BYTES),
                ]),
            ),
        ],
    ),
];
