//! From a URL to the servers it names.

use std::fmt;

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, ProtocolVersion,
    RedisConnectionInfo, TlsCertificates, io::tcp::TcpSettings,
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
    pub(super) kind: Kind,
    /// One at least.
    pub(super) hosts: Vec<Host>,
    /// Settings of a client that was handed in; then there is one host, and what follows is not used.
    given: Option<ConnectionInfo>,
    login: Login,
    sentinel_login: Login,
    database: i64,
    tls: Option<TlsFiles>,
    protocol: ProtocolVersion,
}

/// How many servers there are, and how they are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    One,
    Cluster,
    /// The hosts are sentinels, which know the primary by this name.
    Sentinel(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

#[derive(Clone, Default)]
struct Login {
    user: Option<String>,
    password: Option<String>,
}

impl Address {
    /// `SCHEME[+cluster|+sentinel]://[[user]:password@]host[:port][,…][/name][/number][?…]`.
    pub(super) fn parse(url: &str, schemes: [&str; 2]) -> Result<Self, StoreError> {
        let wrong = |why: &str| {
            StoreError::misconfigured(format_args!(
                "{:?} is no address for {}: {why}; write {}://user:password@host:6379/0",
                masked(url),
                schemes[0],
                schemes[0]
            ))
        };
        if let Some(why) = misplaced(url) {
            return Err(wrong(why));
        }
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong(NO_SLASHES))?;
        let (base, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let secure = match base {
            _ if base == schemes[0] => false,
            _ if base == schemes[1] => true,
            _ => return Err(wrong(&format!("it does not begin with {} or {}", schemes[0], schemes[1]))),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, place) = match rest.rsplit_once('@') {
            Some((login, place)) => (
                Login::parse(login)
                    .ok_or_else(|| wrong("its user or password is not percent-encoded UTF-8"))?,
                place,
            ),
            None => (Login::default(), rest),
        };
        let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
        let default_port = if kind == "sentinel" { 26_379 } else { 6379 };
        let hosts =
            hosts.split(',').map(|host| host_and_port(host, default_port)).collect::<Result<Vec<_>, _>>();
        let hosts: Vec<Host> =
            hosts.map_err(|why| wrong(&why))?.into_iter().map(|(name, port)| Host { name, port }).collect();
        let (kind, number) = match kind {
            "" if hosts.len() > 1 => {
                return Err(wrong("it names several hosts; that is for +cluster and +sentinel"));
            }
            "" => (Kind::One, path),
            "cluster" => (Kind::Cluster, path),
            "sentinel" => {
                let (name, number) = path.split_once('/').unwrap_or((path, ""));
                if name.is_empty() {
                    return Err(wrong(
                        "it does not say which primary; add the name that the sentinels have for it: /mymaster",
                    ));
                }
                (
                    Kind::Sentinel(
                        decoded(name).ok_or_else(|| wrong("the name of the primary is not UTF-8"))?,
                    ),
                    number,
                )
            }
            _ => return Err(wrong("what stands behind its + is neither cluster nor sentinel")),
        };
        let database = match number {
            "" => 0,
            number => number
                .parse()
                .ok()
                .filter(|n: &i64| *n >= 0)
                .ok_or_else(|| wrong("what stands in the place of the database is no number"))?,
        };
        if kind == Kind::Cluster && database != 0 {
            return Err(wrong("a Cluster has no database numbers; leave it out"));
        }
        let mut address = Self {
            shown: masked(url),
            kind,
            hosts,
            given: None,
            login,
            sentinel_login: Login::default(),
            database,
            tls: secure.then(TlsFiles::default),
            protocol: ProtocolVersion::RESP3,
        };
        each_parameter(query, |name, value| address.set(name, value)).map_err(|why| wrong(&why))?;
        address.tls.as_ref().map_or(Ok(()), TlsFiles::check).map_err(wrong)?;
        Ok(address)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        match name {
            "ca" | "cert" | "key" => {
                return TlsFiles::set(self.tls.as_mut(), name, value, "rediss:// or valkeys://");
            }
            "protocol" if value == "resp2" => self.protocol = ProtocolVersion::RESP2,
            "protocol" if value == "resp3" => {}
            "protocol" => return Err("protocol is neither resp2 nor resp3".to_owned()),
            "sentinel_user" => self.sentinel_login.user = Some(value),
            "sentinel_password" => self.sentinel_login.password = Some(value),
            _ => {
                return Err(format!(
                    "there is no parameter {:?}; use ca, cert, key, protocol, sentinel_user or sentinel_password",
                    masked_name(name)
                ));
            }
        }
        Ok(())
    }

    /// The server of a client.
    pub(super) fn given(client: &Client) -> Self {
        let info = client.get_connection_info().clone();
        let (shown, host) = match info.addr() {
            ConnectionAddr::Tcp(name, port) => ("redis", Host { name: name.clone(), port: *port }),
            ConnectionAddr::TcpTls { host, port, .. } => ("rediss", Host { name: host.clone(), port: *port }),
            ConnectionAddr::Unix(path) => ("redis+unix", Host { name: path.display().to_string(), port: 0 }),
            _ => ("redis", Host { name: "a server of a new kind".to_owned(), port: 0 }),
        };
        let database = info.redis_settings().db();
        Self {
            shown: format!("{shown}://{host}/{database}"),
            kind: Kind::One,
            hosts: vec![host],
            protocol: info.redis_settings().protocol(),
            given: Some(info),
            login: Login::default(),
            sentinel_login: Login::default(),
            database,
            tls: None,
        }
    }

    /// Whether the connection tells us when it breaks.
    pub(super) fn has_resp3(&self) -> bool {
        self.protocol != ProtocolVersion::RESP2
    }

    /// How to connect to one of the servers that hold data.
    pub(super) fn client(&self, host: &Host) -> Result<Client, StoreError> {
        match &self.given {
            Some(info) => {
                Client::open(info.clone()).map_err(|error| super::fault::unreached(&self.shown, &error))
            }
            None => self.build(host, &self.login, self.database),
        }
    }

    /// How to connect to a sentinel.
    pub(super) fn sentinel(&self, host: &Host) -> Result<Client, StoreError> {
        self.build(host, &self.sentinel_login, 0)
    }

    fn build(&self, host: &Host, login: &Login, database: i64) -> Result<Client, StoreError> {
        let (name, port) = (host.name.clone(), host.port);
        let address = match &self.tls {
            None => ConnectionAddr::Tcp(name, port),
            Some(_) => ConnectionAddr::TcpTls { host: name, port, insecure: false, tls_params: None },
        };
        let mut settings = RedisConnectionInfo::default()
            .set_db(database)
            .set_protocol(self.protocol)
            .set_lib_name("anarchon", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &login.password {
            settings = settings.set_password(password);
        }
        let unusable = |error: &redis::RedisError| super::fault::unreached(&self.shown, error);
        let info = address.into_connection_info().map_err(|error| unusable(&error))?;
        let info =
            info.set_redis_settings(settings).set_tcp_settings(TcpSettings::default().set_nodelay(true));
        match &self.tls {
            None => Client::open(info),
            Some(tls) => Client::build_with_tls(info, certificates(tls)?),
        }
        .map_err(|error| unusable(&error))
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
    /// `user:password`, `:password`, `user:` or `user`.
    fn parse(text: &str) -> Option<Self> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let part = |text: &str| decoded(text).map(|text| (!text.is_empty()).then_some(text));
        Some(Self { user: part(user)?, password: part(password)? })
    }
}

fn certificates(tls: &TlsFiles) -> Result<TlsCertificates, StoreError> {
    let identity = tls.read_identity()?;
    let client_tls = identity.map(|ours| ClientTlsConfig { client_cert: ours.cert, client_key: ours.key });
    Ok(TlsCertificates { client_tls, root_cert: tls.read_ca()? })
}
