//! From a URL to the server it names.

use std::fmt;

use lapin::{
    tcp::{OwnedIdentity, OwnedTLSConfig},
    uri::{AMQPAuthority, AMQPScheme, AMQPUri, AMQPUserInfo},
};

use crate::store::{
    StoreError,
    connect::{masked, masked_name, misplaced},
    url::{NO_SLASHES, TlsFiles, decoded, each_parameter, host_and_port},
};

/// What a user named. Nothing is connected yet.
#[derive(Clone)]
pub(super) struct Address {
    /// Fit for logs.
    shown: String,
    uri: AMQPUri,
    tls: Option<TlsFiles>,
    pub(super) quorum: bool,
}

impl Address {
    /// `amqp[s]://[[user]:password@]host[:port][/vhost][?…]`.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let wrong = |why: &str| {
            StoreError::misconfigured(format_args!(
                "{:?} is no address for RabbitMQ: {why}; write amqp://user:password@host:5672/vhost",
                masked(url)
            ))
        };
        if let Some(why) = misplaced(url) {
            return Err(wrong(why));
        }
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong(NO_SLASHES))?;
        let scheme = match scheme {
            "amqp" => AMQPScheme::AMQP,
            "amqps" => AMQPScheme::AMQPS,
            _ => return Err(wrong("it does not begin with amqp or amqps")),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, place) = rest.rsplit_once('@').unwrap_or(("", rest));
        let userinfo =
            parse_login(login).ok_or_else(|| wrong("its user or password is not percent-encoded UTF-8"))?;
        let (host, vhost) = place.split_once('/').unwrap_or((place, ""));
        let (host, port) = host_and_port(host, scheme.default_port()).map_err(|why| wrong(&why))?;
        let vhost = match vhost {
            "" => "/".to_owned(),
            vhost => decoded(vhost).ok_or_else(|| wrong("its virtual host is not percent-encoded UTF-8"))?,
        };
        if vhost.len() > 255 {
            return Err(wrong("its virtual host is longer than AMQP has room for"));
        }
        let tls = (scheme == AMQPScheme::AMQPS).then(TlsFiles::default);
        let uri = AMQPUri {
            scheme,
            authority: AMQPAuthority { userinfo, host, port },
            vhost,
            query: Default::default(),
        };
        let mut address = Self { shown: masked(url), uri, tls, quorum: false };
        each_parameter(query, |name, value| address.set(name, value)).map_err(|why| wrong(&why))?;
        address.tls.as_ref().map_or(Ok(()), TlsFiles::check).map_err(wrong)?;
        Ok(address)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        match (name, &*value) {
            ("ca" | "cert" | "key", _) => {
                return TlsFiles::set(self.tls.as_mut(), name, value, "amqps://");
            }
            ("queues", "quorum") => self.quorum = true,
            ("queues", "classic") => self.quorum = false,
            ("queues", _) => return Err("queues is neither classic nor quorum".to_owned()),
            ("heartbeat", _) => {
                return Err("the heartbeat follows the leases of the jobs; leave it out".to_owned());
            }
            _ => {
                return Err(format!(
                    "there is no parameter {:?}; use ca, cert, key or queues",
                    masked_name(name)
                ));
            }
        }
        Ok(())
    }

    /// What lapin is to connect to, with a heartbeat of so many seconds.
    pub(super) fn uri(&self, heartbeat: u16) -> AMQPUri {
        let mut uri = self.uri.clone();
        uri.query.heartbeat = Some(heartbeat);
        uri
    }

    /// Reads the files, at each connection: certificates are renewed while a process runs.
    pub(super) fn tls(&self) -> Result<OwnedTLSConfig, StoreError> {
        let Some(tls) = &self.tls else { return Ok(OwnedTLSConfig::default()) };
        let identity =
            tls.read_identity()?.map(|ours| OwnedIdentity::PKCS8 { pem: ours.cert, key: ours.key });
        let text = |bytes| {
            String::from_utf8(bytes)
                .map_err(|_| StoreError::misconfigured("the file of parameter ca is not in PEM form"))
        };
        let cert_chain = tls.read_ca()?.map(text).transpose()?;
        Ok(OwnedTLSConfig { identity, cert_chain })
    }

    /// For messages about who is let into it.
    pub(super) fn vhost(&self) -> &str {
        &self.uri.vhost
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// `user:password` or `user`; who names neither is RabbitMQ's guest.
fn parse_login(text: &str) -> Option<AMQPUserInfo> {
    let guest = AMQPUserInfo::default();
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let part = |text: &str, default| if text.is_empty() { Some(default) } else { decoded(text) };
    Some(AMQPUserInfo { username: part(user, guest.username)?, password: part(password, guest.password)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_server_user_and_virtual_host() {
        let address = Address::parse("amqp://u%40x:p%2F@[::1]:1/a%2Fb?queues=quorum").unwrap();
        let uri = address.uri(7);
        assert_eq!((uri.authority.host.as_str(), uri.authority.port), ("::1", 1));
        assert_eq!((uri.authority.userinfo.username.as_str(), uri.vhost.as_str()), ("u@x", "a/b"));
        assert_eq!((uri.authority.userinfo.password.as_str(), uri.query.heartbeat), ("p/", Some(7)));
        assert!(address.quorum);
    }

    #[test]
    fn who_names_nothing_is_guest_in_the_first_virtual_host() {
        for (url, port) in [("amqp://h", 5672), ("amqp://h/", 5672), ("amqps://h/%2F", 5671)] {
            let uri = Address::parse(url).unwrap().uri(1);
            assert_eq!((uri.vhost.as_str(), uri.authority.port), ("/", port), "of {url}");
            assert_eq!(uri.authority.userinfo.username, "guest");
        }
    }
}
