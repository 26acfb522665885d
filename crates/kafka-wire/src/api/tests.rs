use super::*;

fn some() -> Advertised {
    Advertised::new([ApiKey::ApiVersions, ApiKey::Produce, ApiKey::Fetch]).expect("decodable")
}

#[test]
fn produce_is_listed_from_version_0_and_accepted_from_3() {
    let advertised = some();
    let listed: Vec<_> = advertised
        .response_rows()
        .iter()
        .map(|row| (row.api_key, row.min_version, row.max_version))
        .collect();
    assert_eq!(listed, [(0, 0, 13), (1, 4, 18), (18, 0, 4)]);
    let accepted = advertised.accepted(ApiKey::Produce).expect("offered");
    assert_eq!(accepted, VersionRange { min: 3, max: 13 });
    assert_eq!(advertised.accepted(ApiKey::Metadata), None);
}

#[test]
fn limits_narrow_what_is_listed_and_accepted() {
    let advertised = some()
        .limited_to(ApiKey::Fetch, 4, 12)
        .expect("within range");
    let narrowed = VersionRange { min: 4, max: 12 };
    assert_eq!(advertised.accepted(ApiKey::Fetch), Some(narrowed));
    assert!(
        advertised
            .listed()
            .any(|row| row == (ApiKey::Fetch, narrowed))
    );
}

#[test]
fn what_can_not_be_decoded_can_not_be_advertised() {
    let vote = Advertised::new([ApiKey::Vote]).expect_err("no schema");
    assert_eq!(
        vote,
        AdvertiseError::NotDecodable {
            api_key: ApiKey::Vote
        }
    );
    for (min, max) in [(4, 19), (3, 18), (9, 8)] {
        let refused = some().limited_to(ApiKey::Fetch, min, max);
        assert!(
            matches!(refused, Err(AdvertiseError::NoVersions { .. })),
            "{min} {max}"
        );
    }
    assert!(matches!(
        some().limited_to(ApiKey::Metadata, 0, 1),
        Err(AdvertiseError::NotListed { .. })
    ));
    assert!(matches!(
        Advertised::new([ApiKey::Fetch, ApiKey::Produce, ApiKey::Fetch]),
        Err(AdvertiseError::Twice {
            api_key: ApiKey::Fetch
        })
    ));
}

#[test]
fn client_software_follows_kip_511() {
    for valid in ["librdkafka", "v2.3.0-rc1", "a", "7"] {
        assert!(is_valid_client_software(valid), "{valid}");
    }
    for invalid in ["", "-a", "a-", ".", "a b", "a_b", "ä", "a\n"] {
        assert!(!is_valid_client_software(invalid), "{invalid}");
    }
}
