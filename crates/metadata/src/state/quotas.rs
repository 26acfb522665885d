//! Changes of client quotas.

use std::collections::BTreeMap;

use super::{Change, Command, Decision, Environment, Facts, State};
use crate::api::{
    AlterQuotas, ControllerUnavailable, QuotaChange, QuotaEntity, QuotaLimits, TooManyQuotas,
};

impl Command for AlterQuotas {
    type Output = Vec<Result<(), TooManyQuotas>>;
    type Error = ControllerUnavailable;
    const NAME: &'static str = "alter_quotas";

    fn decide(
        &self,
        state: &State,
        _facts: &Facts,
        _environment: &mut Environment<'_>,
    ) -> Result<Decision<Self::Output>, ControllerUnavailable> {
        // Later changes of one entity see earlier ones.
        let mut altered: BTreeMap<&QuotaEntity, QuotaLimits> = BTreeMap::new();
        let mut count = state.quotas().len();
        let mut output = Vec::with_capacity(self.entities.len());
        for (entity, changes) in &self.entities {
            let before = match altered.get(entity) {
                Some(limits) => limits.clone(),
                None => state.quotas().get(entity).cloned().unwrap_or_default(),
            };
            let after = changed(&before, changes);
            match (before.is_empty(), after.is_empty()) {
                (true, false) if count >= QuotaEntity::MAX_COUNT => {
                    output.push(Err(TooManyQuotas {
                        limit: QuotaEntity::MAX_COUNT as u64,
                    }));
                    continue;
                }
                (true, false) => count += 1,
                (false, true) => count -= 1,
                (true, true) | (false, false) => {}
            }
            altered.insert(entity, after);
            output.push(Ok(()));
        }
        if self.validate_only {
            return Ok(Decision::unchanged(output));
        }
        let changes = altered
            .into_iter()
            .filter(|(entity, limits)| {
                state.quotas().get(*entity).is_none_or(|old| old != limits)
                    && (state.quotas().contains_key(*entity) || !limits.is_empty())
            })
            .map(|(entity, limits)| Change::Quotas(entity.clone(), limits))
            .collect();
        Ok(Decision { changes, output })
    }
}

fn changed(before: &QuotaLimits, changes: &[QuotaChange]) -> QuotaLimits {
    let mut after = before.clone();
    for change in changes {
        match change.limit {
            Some(limit) => after.insert(change.key.clone(), limit),
            None => after.remove(&change.key),
        };
    }
    after
}
