//! Offering compacted segments to the controller, until it is known what became of them.

use std::time::Duration;

use tidegate_metadata::ControllerApi;
use tidegate_metadata::api::{
    StaleBrokerEpoch, SwapInput, SwapOutcome, SwapRefused, SwapSegments, SwapSegmentsError,
};
use tracing::warn;

use super::store::{FIRST_RETRY, LAST_RETRY};

/// What became of an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settled {
    Swapped,
    Refused(SwapRefused),
    /// It was taken back, and won't be carried out any more.
    Withdrawn(&'static str),
    /// Nobody here needs to know any more.
    Abandoned,
}

/// Offers a swap until there is an answer. When `wanted` says that it isn't any more, it is withdrawn instead: an
/// earlier try whose answer was lost may have been carried out, may be carried out yet, or may never have arrived, and
/// the log must know which. Ends without an answer only when `is_gone` says that the log was closed.
pub(super) async fn offer(
    controller: &dyn ControllerApi,
    request: &SwapSegments,
    wanted: impl Fn() -> Result<(), &'static str>,
    is_gone: impl Fn() -> bool,
) -> Result<Settled, StaleBrokerEpoch> {
    let mut withdrawn: Option<(&'static str, SwapSegments)> = None;
    let mut pause = FIRST_RETRY;
    loop {
        if withdrawn.is_none()
            && let Err(reason) = wanted()
        {
            let Some(request) = withdrawal(request) else {
                return Ok(Settled::Withdrawn(reason));
            };
            withdrawn = Some((reason, request));
        }
        let asked = withdrawn.as_ref().map_or(request, |(_, request)| request);
        match controller.swap_segments(asked.clone()).await {
            Ok(SwapOutcome::Swapped) => return Ok(Settled::Swapped),
            Ok(SwapOutcome::Refused(refused)) => {
                return Ok(match withdrawn {
                    Some((reason, _)) => Settled::Withdrawn(reason),
                    None => Settled::Refused(refused),
                });
            }
            Err(SwapSegmentsError::StaleBrokerEpoch(stale)) => return Err(stale),
            Err(SwapSegmentsError::Unavailable(error)) => {
                warn!(partition = %request.partition, error = &error as &dyn std::error::Error, "swapping compacted segments is tried again");
            }
        }
        if is_gone() {
            return Ok(Settled::Abandoned);
        }
        tokio::time::sleep(pause).await;
        pause = next_pause(pause);
    }
}

/// The request that settles an offer without carrying it out: the new segments for themselves. If the map has them, it
/// answers that they are swapped; if not, it refuses and enters their objects as dropped, so that the offer itself is
/// refused whenever it comes. `None` if the offer has no objects: it only moves the cleaned end, which takes nothing
/// from anybody.
pub(super) fn withdrawal(request: &SwapSegments) -> Option<SwapSegments> {
    if request.outputs.is_empty() {
        return None;
    }
    let outputs = request.outputs.iter();
    let segments = outputs.flat_map(|o| o.segments.iter().map(|segment| (segment.range, &o.key)));
    Some(SwapSegments {
        inputs: segments
            .map(|(range, object)| SwapInput {
                range,
                object: object.clone(),
            })
            .collect(),
        cleaned_end: None,
        ..request.clone()
    })
}

fn next_pause(pause: Duration) -> Duration {
    (pause * 2).min(LAST_RETRY)
}

#[cfg(test)]
mod tests;
