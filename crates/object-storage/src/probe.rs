//! Finds out when a lost store is back.

use std::sync::{Arc, Weak};

use object_store::{GetOptions, GetRange, PutMode, PutOptions, PutPayload};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::error::Operation;
use crate::fault::FaultKind;
use crate::gate::Gate;
use crate::key::ObjectKey;
use crate::options::RequestClass;

/// Sleeps while the store is accessible. Ends with its owner's tasks, or with the last handle.
pub(crate) async fn run(gate: Weak<Gate>, wake: Arc<Notify>, token: CancellationToken) {
    loop {
        // Cancel-safe: a notification that isn't taken stays; health is looked at again either way.
        tokio::select! {
            () = token.cancelled() => return,
            () = wake.notified() => {}
        }
        let Some(lost) = gate.upgrade() else { return };
        let mut wait = lost.options.first_probe;
        while !lost.health.is_accessible() {
            tokio::select! {
                () = token.cancelled() => return,
                () = tokio::time::sleep(lost.random.jitter(wait)) => {}
            }
            if probe(&lost).await {
                lost.health.heal(lost.clock.0.wall());
            }
            wait = (wait * 2).min(lost.options.max_probe);
        }
    }
}

/// Reading and writing, each answered about the object. Nothing is ever overwritten.
async fn probe(gate: &Arc<Gate>) -> bool {
    let read = async {
        let options = GetOptions {
            range: Some(GetRange::Bounded(0..1)),
            ..GetOptions::default()
        };
        let key = ObjectKey::never_written();
        let result = gate.backend.store.get_opts(key.path(), options).await?;
        result.bytes().await
    };
    let read = gate
        .attempt(Operation::Get, RequestClass::Wal, 0, read)
        .await;
    match read {
        Ok(_) => {}
        Err(failed) if failed.fault.kind == FaultKind::NotFound => {}
        Err(_) => return false,
    }
    let key = ObjectKey::probe();
    let write = gate.backend.store.put_opts(
        key.path(),
        PutPayload::from_static(b"tidegate"),
        PutOptions::from(PutMode::Create),
    );
    match gate
        .attempt(Operation::Put, RequestClass::Wal, 0, write)
        .await
    {
        Ok(_) => true,
        Err(failed) => failed.fault.kind == FaultKind::AlreadyExists,
    }
}
