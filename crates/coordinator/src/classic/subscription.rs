//! The one thing the coordinator reads from inside a consumer's protocol metadata: its topics.

use crate::RecordError;
use crate::records::Reader;

/// The topics of a ConsumerProtocolSubscription: int16 version · array of strings · bytes? user data; later
/// versions only add fields behind. `None` if it isn't one.
pub(crate) fn subscribed_topics(metadata: &[u8]) -> Option<Vec<String>> {
    parse(metadata).ok()
}

fn parse(metadata: &[u8]) -> Result<Vec<String>, RecordError> {
    let mut reader = Reader::new("subscription", metadata);
    reader.i16("version")?;
    let count = reader.array_length(false, "topics")?;
    let mut topics = Vec::with_capacity(count.min(1_024));
    for _ in 0..count {
        topics.push(reader.string(false, "topic")?.to_owned());
    }
    let user_data_bytes = reader.i32("user data")?;
    if user_data_bytes != -1 {
        let length = usize::try_from(user_data_bytes).map_err(|_| reader.invalid("user data"))?;
        reader.take(length, "user data")?;
    }
    Ok(topics)
}
