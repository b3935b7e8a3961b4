//! What errors of lapin and of the broker mean.

use lapin::{
    Error, ErrorKind,
    protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError},
};

use crate::store::{StoreError, tls};

/// Whether the broker says that there is no such queue.
pub(super) fn is_not_found(error: &Error) -> bool {
    is_soft(error, &AMQPSoftError::NOTFOUND) && !error.to_string().contains("home node")
}

/// Whether a queue belongs to another connection alone.
pub(super) fn is_locked(error: &Error) -> bool {
    is_soft(error, &AMQPSoftError::RESOURCELOCKED)
}

fn is_soft(error: &Error, kind: &AMQPSoftError) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(e) if matches!(e.kind(), AMQPErrorKind::Soft(soft) if soft == kind))
}

/// A call that the broker answered with an error, or whose connection broke. `sent` tells whether it may have written.
pub(super) fn failed(server: &str, error: &Error, sent: bool) -> StoreError {
    if let ErrorKind::ProtocolError(told) = error.kind() {
        match told.kind() {
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
                return StoreError::misconfigured(format_args!(
                    "{server} {PERMISSIONS} ({})",
                    told.get_message()
                ));
            }
            AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => {
                return StoreError::unavailable(format_args!(
                    "{server} has no such queue at the moment: its node is down, or somebody deleted it ({}); bring the node back, or \
                     forget the job",
                    told.get_message()
                ));
            }
            AMQPErrorKind::Soft(_) | AMQPErrorKind::Hard(_) => {}
        }
    }
    if matches!(error.kind(), ErrorKind::ChannelsLimitReached) {
        return StoreError::unavailable(format_args!(
            "the connection to {server} has as many channels as it may; raise channel_max of the server"
        ));
    }
    let message = format!("the connection to {server} broke: {error}");
    if sent { StoreError::unknown(message) } else { StoreError::unavailable(message) }
}

/// What a user has to be allowed.
const PERMISSIONS: &str = "does not let this user do what a scheduler does; allow it what the page security of the guide \
     (anarchon::guide::security) has: rabbitmqctl set_permissions -p VHOST USER '^anarchon/NAMESPACE/' '^amq\\.default$' '^anarchon/NAMESPACE/'";

/// A failed attempt to connect: nothing was sent yet.
pub(super) fn unreached(server: &str, vhost: &str, error: &Error) -> StoreError {
    let text = error.to_string();
    if let ErrorKind::ProtocolError(told) = error.kind() {
        match told.kind() {
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
                return StoreError::misconfigured(format_args!(
                    "{server} does not let us in: {}; correct user and password in the URL",
                    told.get_message()
                ));
            }
            AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED | AMQPHardError::INVALIDPATH) => {
                return StoreError::misconfigured(format_args!(
                    "{server} does not let us into its virtual host \"{vhost}\": {}; correct it in the URL, or make it and let \
                     the user in: rabbitmqctl add_vhost, rabbitmqctl set_permissions",
                    told.get_message()
                ));
            }
            AMQPErrorKind::Soft(_) | AMQPErrorKind::Hard(_) => {}
        }
    }
    if let Some(error) = tls::refused(server, &text) {
        return error;
    }
    if matches!(error.kind(), ErrorKind::ParsingError(_) | ErrorKind::InvalidProtocolVersion(_)) {
        return StoreError::misconfigured(format_args!(
            "what listens at {server} does not speak AMQP 0-9-1; look whether host and port are those of RabbitMQ"
        ));
    }
    StoreError::unavailable(format_args!(
        "{server} cannot be reached: {text}; look whether it runs and whether the address is right"
    ))
}
