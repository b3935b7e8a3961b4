//! What errors of the server, and of connections to it, mean.

use async_nats::{ConnectError, ConnectErrorKind};
use serde_json::Value;

use crate::store::{StoreError, tls};

/// No stream of this name.
pub(super) const NOT_FOUND: u64 = 10059;
/// The stream has no message of that subject.
pub(super) const NO_MESSAGE: u64 = 10037;
/// There is a stream of this name, with other settings.
pub(super) const NAME_IN_USE: u64 = 10058;
/// The cluster has too few servers for so many replicas.
pub(super) const NO_PEERS: u64 = 10005;
/// One server alone has no replicas.
pub(super) const NO_REPLICAS: u64 = 10074;
/// Another revision than the one that the write named; the second is of servers from 2.12 on.
const WRONG_REVISION: [u64; 2] = [10071, 10164];
/// The account has no JetStream.
const NOT_ENABLED: [u64; 2] = [10076, 10039];
/// A value that is larger than the stream allows.
const TOO_LARGE: u64 = 10054;

/// An error that JetStream answered with; nothing was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: u64,
    description: String,
}

impl Refusal {
    /// The error in an answer, if it holds one.
    pub(super) fn of(answer: &Value) -> Option<Self> {
        let error = answer.get("error")?;
        let number = |name| error.get(name).and_then(Value::as_u64);
        let code = number("err_code").or(number("code")).unwrap_or_default();
        let description = error.get("description").and_then(Value::as_str).unwrap_or("no reason given");
        Some(Self { code, description: description.to_owned() })
    }

    pub(super) fn is_wrong_revision(&self) -> bool {
        WRONG_REVISION.contains(&self.code)
    }

    /// The revision that the key has instead, where the server tells it.
    pub(super) fn revision(&self) -> Option<u64> {
        self.description.rsplit_once(": ")?.1.parse().ok()
    }

    pub(super) fn told(&self, server: &str) -> StoreError {
        let said = &self.description;
        match self.code {
            code if NOT_ENABLED.contains(&code) => StoreError::misconfigured(format_args!(
                "{server} has no JetStream for this account ({said}); enable it for the account"
            )),
            NO_PEERS | NO_REPLICAS => StoreError::misconfigured(format_args!(
                "{server} has too few servers for so many replicas ({said}); ask for fewer with replicas()"
            )),
            TOO_LARGE => StoreError::misconfigured(format_args!(
                "{server} takes no value of this size ({said}); raise max_msg_size of the bucket"
            )),
            code => StoreError::unavailable(format_args!("{server} refused ({said}, error {code})")),
        }
    }
}

/// No connection came about.
pub(super) fn unreached(server: &str, error: &ConnectError) -> StoreError {
    let why = causes(error);
    if let Some(error) = tls::refused(server, &why) {
        return error;
    }
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            StoreError::misconfigured(format_args!(
                "{server} does not let us in ({why}); correct the user and password, the token, the nkey or the credentials"
            ))
        }
        ConnectErrorKind::ServerParse | ConnectErrorKind::Tls => StoreError::misconfigured(format_args!(
            "{server} cannot be connected to ({why}); look whether its address and its certificates are right"
        )),
        ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => StoreError::unavailable(format_args!(
            "{server} cannot be reached ({why}); look whether it runs and whether the address is right"
        )),
    }
}

/// An error with all its sources, each once.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        if !told.contains(&text) {
            told = format!("{told}: {text}");
        }
        source = error.source();
    }
    told
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::StoreErrorKind;

    #[test]
    fn an_answer_without_an_error_is_none() {
        assert_eq!(Refusal::of(&json!({"stream": "KV_x", "seq": 5})), None);
    }

    #[test]
    fn a_wrong_revision_is_told_from_what_will_not_work() {
        let refusal = |code: u64, description: &str| {
            Refusal::of(&json!({"error": {"code": 400, "err_code": code, "description": description}}))
                .unwrap()
        };
        assert_eq!(refusal(10071, "wrong last sequence: 7").revision(), Some(7));
        assert_eq!(refusal(10164, "wrong last sequence").revision(), None);
        assert!(refusal(10071, "").is_wrong_revision() && refusal(10164, "").is_wrong_revision());
        assert!(!refusal(10059, "").is_wrong_revision());
        for (code, kind) in [
            (10039, StoreErrorKind::Misconfigured),
            (10074, StoreErrorKind::Misconfigured),
            (10008, StoreErrorKind::Unavailable),
        ] {
            assert_eq!(refusal(code, "why").told("nats://h").kind, kind);
        }
    }
}
