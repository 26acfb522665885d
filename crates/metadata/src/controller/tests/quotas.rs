//! Quotas: each entity by itself, in the picture, and there again after a restart.

use super::*;

fn picture(run: &Running) -> Arc<ClusterImage> {
    run.handle.image().borrow().clone()
}

fn user(name: &str) -> QuotaEntity {
    QuotaEntity {
        user: Some(QuotaName::Named(name.to_owned())),
        ..QuotaEntity::default()
    }
}

fn set(key: &str, value: f64) -> QuotaChange {
    QuotaChange {
        key: key.to_owned(),
        limit: Some(QuotaLimit::try_from(value).unwrap()),
    }
}

fn unset(key: &str) -> QuotaChange {
    QuotaChange {
        key: key.to_owned(),
        limit: None,
    }
}

fn alter(entities: Vec<(QuotaEntity, Vec<QuotaChange>)>) -> AlterQuotas {
    AlterQuotas {
        entities,
        validate_only: false,
    }
}

#[tokio::test]
async fn quotas_are_in_the_picture_and_outlive_the_controller() {
    let opener = MemoryOpener::new();
    let run = Running::start(&opener).await;
    let default = QuotaEntity {
        user: Some(QuotaName::Default),
        client_id: Some(QuotaName::Named("a/b: \u{e4}".to_owned())),
        ip: None,
    };
    let changes = vec![
        (
            user("u"),
            vec![
                set("producer_byte_rate", 1024.0),
                set("request_percentage", 0.5),
            ],
        ),
        (default.clone(), vec![set("consumer_byte_rate", 1.0)]),
    ];
    let mut dry = alter(changes.clone());
    dry.validate_only = true;
    assert_eq!(
        run.handle.alter_quotas(dry).await.unwrap(),
        [Ok(()), Ok(())]
    );
    assert!(picture(&run).quotas().is_empty());
    let answer = run.handle.alter_quotas(alter(changes)).await.unwrap();
    assert_eq!(answer, [Ok(()), Ok(())]);
    let image = picture(&run);
    assert_eq!(image.quotas().len(), 2);
    assert_eq!(image.quotas()[&user("u")]["request_percentage"].get(), 0.5);
    let less = vec![
        (
            user("u"),
            vec![unset("producer_byte_rate"), unset("unknown")],
        ),
        (user("nobody"), vec![unset("producer_byte_rate")]),
    ];
    run.handle.alter_quotas(alter(less)).await.unwrap();
    let expected = picture(&run).quotas().clone();
    assert_eq!(expected.len(), 2);
    assert_eq!(expected[&user("u")].len(), 1);
    run.stop().await;
    let run = Running::start(&opener).await;
    assert_eq!(*picture(&run).quotas(), expected);
    let last = vec![(user("u"), vec![unset("request_percentage")])];
    run.handle.alter_quotas(alter(last)).await.unwrap();
    assert_eq!(
        picture(&run).quotas().keys().collect::<Vec<_>>(),
        [&default]
    );
}

#[tokio::test]
async fn the_number_of_entities_is_bounded_and_one_that_goes_makes_room() {
    let opener = MemoryOpener::new();
    let run = Running::start(&opener).await;
    let entities = (0..=QuotaEntity::MAX_COUNT)
        .map(|n| (user(&n.to_string()), vec![set("producer_byte_rate", 1.0)]))
        .collect();
    let answers = run.handle.alter_quotas(alter(entities)).await.unwrap();
    assert!(answers[..QuotaEntity::MAX_COUNT].iter().all(Result::is_ok));
    assert!(answers[QuotaEntity::MAX_COUNT].is_err());
    let swap = vec![
        (user("7"), vec![unset("producer_byte_rate")]),
        (user("new"), vec![set("producer_byte_rate", 1.0)]),
        (user("newer"), vec![set("producer_byte_rate", 1.0)]),
    ];
    let answers = run.handle.alter_quotas(alter(swap)).await.unwrap();
    assert_eq!(
        answers.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, true, false]
    );
}
