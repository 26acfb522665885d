//! Ports nobody listens on.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A free TCP port on loopback, outside the range the system hands to outgoing connections, so that a broker can
/// come back on it after a kill.
///
/// # Panics
/// When 10,000 ports in a row are taken.
pub fn free_port() -> u16 {
    // Test binaries run beside each other: each starts at a place of its own.
    let start = std::process::id().wrapping_mul(97);
    for _ in 0..10_000 {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + (start.wrapping_add(step) % 10_000);
        let port = u16::try_from(port).expect("20,000 + 9,999 fits");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between 20,000 and 29,999");
}
