//! From a URL to the servers it names, and how to log in.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_nats::{ConnectOptions, ReconnectToServer, ServerAddr};

use crate::store::{
    StoreError,
    connect::{masked, masked_name, misplaced},
    url::{
        NO_SLASHES, TlsFiles, decoded, each_parameter, host_and_port, login_and_hosts, read_file, read_pem,
        repeated_scheme,
    },
};

/// How long an attempt to connect may take, TLS and login included.
const CONNECT: Duration = Duration::from_secs(3);
/// A connection on which nothing came for so long is asked whether it lives.
const PING: Duration = Duration::from_secs(1);
/// An address that nobody can listen at.
const NOWHERE: &str = "nats://127.0.0.1:0";

/// What a user named. Nothing is connected yet.
#[derive(Clone)]
pub(super) struct Address {
    /// Fit for logs.
    shown: String,
    /// `host:port`, one at least.
    hosts: Vec<String>,
    login: Login,
    tls: Option<TlsFiles>,
}

#[derive(Clone)]
enum Login {
    None,
    User(String, String),
    Token(String),
    /// A file with a seed.
    NKey(String),
    /// A file with a JWT and a seed.
    Credentials(String),
}

impl Address {
    /// `nats|tls://[user:password@|token@]host[:port][,…][?…]`.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let wrong = |why: &str| {
            StoreError::misconfigured(format_args!(
                "{:?} is no address for NATS: {why}; write nats://user:password@host:4222",
                masked(url)
            ))
        };
        if let Some(why) = misplaced(url) {
            return Err(wrong(why));
        }
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong(NO_SLASHES))?;
        let tls = match scheme {
            "nats" => None,
            "tls" => Some(TlsFiles::default()),
            _ => return Err(wrong("it does not begin with nats or tls")),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, hosts) = login_and_hosts(rest).map_err(wrong)?;
        let login = Login::parse(login.unwrap_or_default())
            .ok_or_else(|| wrong("its user, password or token is not percent-encoded UTF-8"))?;
        if let Some(why) = repeated_scheme(hosts) {
            return Err(wrong(why));
        }
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
        if hosts.contains('/') {
            return Err(wrong("it has a path, and NATS has none; the bucket is named after the namespace"));
        }
        let hosts = hosts.split(',').map(host).collect::<Result<Vec<_>, _>>().map_err(|why| wrong(&why))?;
        let mut address = Self { shown: masked(url), hosts, login, tls };
        each_parameter(query, |name, value| address.set(name, value)).map_err(|why| wrong(&why))?;
        address.tls.as_ref().map_or(Ok(()), TlsFiles::check).map_err(wrong)?;
        Ok(address)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        let login = match name {
            "ca" | "cert" | "key" => return TlsFiles::set(self.tls.as_mut(), name, value, "tls://"),
            "creds" => Login::Credentials(value),
            "nkey" => Login::NKey(value),
            _ => {
                return Err(format!(
                    "there is no parameter {:?}; use ca, cert, key, creds or nkey",
                    masked_name(name)
                ));
            }
        };
        if !matches!(self.login, Login::None) {
            return Err(format!("{name} is a second way to log in; leave one out"));
        }
        self.login = login;
        Ok(())
    }

    /// The hosts, in an order of chance: instances spread over the servers, and try another one when one is gone.
    pub(super) fn hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<_> = self.hosts.iter().map(String::as_str).collect();
        fastrand::shuffle(&mut hosts);
        hosts
    }

    /// How to connect to one of the hosts, and where: once. What a client keeps for the time after a disconnect, and then
    /// sends, nobody waits for any more; so it ends at the first one.
    pub(super) fn options(&self, host: &str) -> Result<(ConnectOptions, [ServerAddr; 2]), StoreError> {
        let scheme = if self.tls.is_some() { "tls" } else { "nats" };
        let parse = |url: &str| {
            url.parse::<ServerAddr>().map_err(|error| {
                StoreError::misconfigured(format_args!("host {host:?} of {self} is none: {error}"))
            })
        };
        let servers = [parse(&format!("{scheme}://{host}"))?, parse(NOWHERE)?];
        let (first, then) = (servers[0].clone(), servers[1].clone());
        let was_connected = Arc::new(AtomicBool::new(false));
        let mut options = ConnectOptions::new()
            .name("anarchon")
            .connection_timeout(CONNECT)
            .ping_interval(PING)
            .ignore_discovered_servers()
            .max_reconnects(1)
            .reconnect_to_server_callback(move |_, _| {
                let addr = if was_connected.swap(true, Ordering::AcqRel) { &then } else { &first };
                let target = ReconnectToServer { addr: addr.clone(), delay: Some(Duration::ZERO) };
                async move { Some(target) }
            });
        if let Some(tls) = &self.tls {
            options = options.require_tls(true);
            if let Some(ca) = &tls.ca {
                read_pem("ca", ca)?;
                options = options.add_root_certificates(ca.into());
            }
            if let (Some(cert), Some(key)) = (&tls.cert, &tls.key) {
                read_pem("cert", cert)?;
                read_pem("key", key)?;
                options = options.add_client_certificate(cert.into(), key.into());
            }
        }
        let options = match &self.login {
            Login::None => options,
            Login::User(user, password) => options.user_and_password(user.clone(), password.clone()),
            Login::Token(token) => options.token(token.clone()),
            Login::NKey(file) => options.nkey(seed(file)?),
            Login::Credentials(file) => options.credentials(&text("creds", file)?).map_err(|_secret| {
                StoreError::misconfigured(format_args!(
                    "file \"{file}\" of parameter creds is none with credentials; name one that nsc wrote"
                ))
            })?,
        };
        Ok((options, servers))
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

impl Login {
    /// `user:password`, or a token.
    fn parse(text: &str) -> Option<Self> {
        Some(match text.split_once(':') {
            Some((user, password)) => Self::User(decoded(user)?, decoded(password)?),
            None if text.is_empty() => Self::None,
            None => Self::Token(decoded(text)?),
        })
    }
}

/// The line of a file that is a seed; beside it there may be others, as in the files that `nsc` writes.
fn seed(file: &str) -> Result<String, StoreError> {
    let text = text("nkey", file)?;
    let seed = text.lines().map(str::trim).find(|line| line.starts_with("SU")).ok_or_else(|| {
        StoreError::misconfigured(format_args!(
            "file \"{file}\" of parameter nkey holds no seed of a user, a line that begins with SU; name one that nk wrote"
        ))
    })?;
    Ok(seed.to_owned())
}

fn text(parameter: &str, file: &str) -> Result<String, StoreError> {
    String::from_utf8(read_file(parameter, file)?).map_err(|_| {
        StoreError::misconfigured(format_args!(
            "file \"{file}\" of parameter {parameter} is no text; name one that nsc or nk wrote"
        ))
    })
}

/// `host:port`, an address of IPv6 in brackets.
fn host(text: &str) -> Result<String, String> {
    let (name, port) = host_and_port(text, 4222)?;
    Ok(if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_the_usual_port_unless_they_say_another() {
        let hosts = |url| {
            let mut hosts = Address::parse(url).unwrap().hosts;
            hosts.sort();
            hosts
        };
        assert_eq!(hosts("nats://one,two:1/"), ["one:4222", "two:1"]);
        assert_eq!(hosts("tls://u:p@[::1]:5,[::2]"), ["[::1]:5", "[::2]:4222"]);
    }

    #[test]
    fn every_address_can_be_connected_to_once() {
        for url in ["nats://one", "tls://one:1,two:2", "nats://u:p@[::1]:5", "nats://to%40ken@h"] {
            let address = Address::parse(url).unwrap();
            for host in address.hosts() {
                let (_, [first, then]) = address.options(host).unwrap();
                assert_eq!(format!("{}:{}", first.host(), first.port()), host.replace(['[', ']'], ""));
                assert_eq!(then.port(), 0, "{url}");
            }
        }
    }

    #[test]
    fn there_is_one_way_to_log_in() {
        let login = |url| Address::parse(url).map(|address| address.login);
        assert!(matches!(login("nats://h"), Ok(Login::None)));
        assert!(matches!(login("nats://to%3Aken@h"), Ok(Login::Token(token)) if token == "to:ken"));
        assert!(
            matches!(login("nats://u:p%40@h"), Ok(Login::User(user, word)) if user == "u" && word == "p@")
        );
        assert!(matches!(login("nats://h?nkey=a%26b"), Ok(Login::NKey(file)) if file == "a&b"));
        assert!(matches!(login("nats://h?creds=a.creds"), Ok(Login::Credentials(file)) if file == "a.creds"));
        assert!(login("nats://u:p@h?creds=a").is_err() && login("nats://h?nkey=a&creds=b").is_err());
    }
}
