//! What a TLS connection that did not come about means. Pure.
//!
//! By the words of rustls: the clients hide the error itself behind one of their own.

use super::StoreError;

/// The error for one that no repetition brings about, if this is one.
pub(super) fn refused(server: &str, why: &str) -> Option<StoreError> {
    let told = |mend| {
        Some(StoreError::misconfigured(format_args!("no trusted TLS connection to {server}: {why}; {mend}")))
    };
    if why.contains("InvalidContentType") {
        return told(
            "what listens there speaks no TLS: name the port that does, or write the kind of store without TLS",
        );
    }
    let distrust = [
        "invalid peer certificate",
        "received fatal alert",
        "peer sent no certificates",
        "peer is incompatible",
    ];
    if distrust.iter().any(|words| why.contains(words)) {
        return told(
            "name the authority that signed its certificate with ?ca=FILE, and ours with ?cert=FILE&key=FILE where it asks \
             for one",
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreErrorKind;

    #[test]
    fn what_no_repetition_mends_is_told_with_its_mend() {
        for (why, mend) in [
            ("IO error: received corrupt message of type InvalidContentType", "speaks no TLS"),
            ("invalid peer certificate: UnknownIssuer", "?ca=FILE"),
            ("received fatal alert: CertificateRequired", "?cert=FILE&key=FILE"),
        ] {
            let error = refused("redis://h", why).unwrap();
            assert_eq!(error.kind, StoreErrorKind::Misconfigured);
            assert!(error.to_string().contains(mend) && error.to_string().contains(why), "{error}");
        }
        assert_eq!(refused("redis://h", "Connection refused (os error 111)"), None);
    }
}
