//! How long may a lease be believed when the store does not answer?

use std::time::Duration;

use super::Trust;
use crate::clock::Mono;

/// The trust in a lease: `sent` is the monotonic reading just before sending the claim or renewal that succeeded.
///
/// The store cannot end the lease before `sent + lease`; the last 15 % covers clock rates and scheduling delays.
pub(super) fn trust(sent: Mono, lease: Duration) -> Trust {
    Trust {
        cancel_at: sent.plus(percent(lease, 70)),
        drop_at: sent.plus(percent(lease, 85)),
        ends_at: sent.plus(lease),
    }
}

/// When to renew.
pub(super) fn renew_at(sent: Mono, lease: Duration) -> Mono {
    sent.plus(lease / 3)
}

/// How long to wait for the reply to a claim or renewal.
pub(super) fn deadline(lease: Duration) -> Duration {
    (lease / 6).max(Duration::from_millis(100))
}

/// Until when an award may be started and its claim repeated.
pub(super) fn startable_until(sent: Mono, lease: Duration) -> Mono {
    sent.plus(lease / 2)
}

fn percent(of: Duration, percent: u32) -> Duration {
    // Divided first where the product would not fit.
    of.checked_mul(percent).map_or_else(|| (of / 100).saturating_mul(percent), |all| all / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_30_s_is_renewed_after_10_cancelled_after_21_and_dropped_after_25_5() {
        let (sent, lease) = (Mono(1_000_000), Duration::from_secs(30));
        let trust = trust(sent, lease);
        assert_eq!(renew_at(sent, lease).since(sent), Duration::from_secs(10));
        assert_eq!(trust.cancel_at.since(sent), Duration::from_secs(21));
        assert_eq!(trust.drop_at.since(sent), Duration::from_millis(25_500));
        assert_eq!(trust.ends_at.since(sent), lease);
        assert_eq!(deadline(lease), Duration::from_secs(5));
        assert_eq!(startable_until(sent, lease).since(sent), Duration::from_secs(15));
    }

    #[test]
    fn the_longest_lease_is_borne() {
        let trust = trust(Mono(5), Duration::MAX);
        assert!(trust.cancel_at <= trust.drop_at && trust.drop_at <= trust.ends_at);
    }
}
