//! What the URLs of several stores have in common: hosts, what is percent-encoded, parameters, and files for TLS.

use std::{borrow::Cow, fs};

use super::{
    StoreError,
    connect::{masked_name, second_mark, told_of_parameter},
};

/// What is said of a kind without `//` behind it.
pub(crate) const NO_SLASHES: &str = "it has no // behind its kind";

/// `host`, `host:port`, `[address]` or `[address]:port`; the brackets are gone in the answer.
pub(crate) fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16), String> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']').ok_or("a host begins with \"[\" and lacks a \"]\"")?;
            (name, port.strip_prefix(':'))
        }
        None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() {
        return Err("a host is missing".to_owned());
    }
    let port = match port {
        None => default_port,
        // It may be a password, where the host behind it was forgotten.
        Some(port) => {
            port.parse().map_err(|_| format!("the port of host {name:?} is no number up to 65535"))?
        }
    };
    Ok((name.to_owned(), port))
}

/// Why what stands between `//` and the path names no servers, where a whole URL stands for each of several: the form that some
/// clients take.
#[cfg(feature = "nats")]
pub(crate) fn repeated_scheme(hosts: &str) -> Option<&'static str> {
    hosts
        .contains("://")
        .then_some("it names its kind again before a further host; write it once: KIND://one,two")
}

/// How to log in, if that is told, and what stands behind it. An `@` more may be of an unencoded password, or every host has a login.
#[cfg(feature = "nats")]
pub(crate) fn login_and_hosts(text: &str) -> Result<(Option<&str>, &str), &'static str> {
    match text.rsplit_once('@') {
        Some((login, _)) if login.contains('@') => {
            Err("it has a second @; percent-encode one of user or password as %40, \
            and name user and password once for all hosts")
        }
        Some((login, hosts)) => Ok((Some(login), hosts)),
        None => Ok((None, text)),
    }
}

/// Text without percent-encoding, if it is UTF-8.
pub(crate) fn decoded(text: &str) -> Option<String> {
    percent_encoding::percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

/// Hands out what stands behind the `?`, decoded, until one is wrong; then says why.
pub(crate) fn each_parameter(
    query: &str,
    mut set: impl FnMut(&str, String) -> Result<(), String>,
) -> Result<(), String> {
    let parameters: Vec<&str> = query.split('&').filter(|parameter| !parameter.is_empty()).collect();
    for (place, parameter) in parameters.iter().enumerate() {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let set = match second_mark(name, value) {
            Some(why) => Err(why.to_owned()),
            None => decoded(value)
                .ok_or_else(|| format!("parameter {:?} is not UTF-8", masked_name(name)))
                .and_then(|value| set(name, value)),
        };
        set.map_err(|why| told_of_parameter(why, &parameters[..place]))?;
    }
    Ok(())
}

/// Files in PEM form, read at each connection: certificates are renewed while a process runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsFiles {
    /// Who signed the certificate of the server.
    pub(crate) ca: Option<String>,
    /// Our own certificate.
    pub(crate) cert: Option<String>,
    /// The key of that.
    pub(crate) key: Option<String>,
}

/// What we prove ourselves with, in PEM form.
#[cfg(any(feature = "rabbitmq", feature = "redis"))]
pub(crate) struct Identity {
    pub(crate) cert: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl TlsFiles {
    /// Takes the parameter `ca`, `cert` or `key` of a URL, which has TLS when it begins with one of these schemes.
    pub(crate) fn set(
        tls: Option<&mut Self>,
        name: &str,
        value: String,
        schemes: &str,
    ) -> Result<(), String> {
        let tls = tls.ok_or_else(|| format!("{name} is for TLS; begin with {schemes}"))?;
        match name {
            "ca" => tls.ca = Some(value),
            "cert" => tls.cert = Some(value),
            _ => tls.key = Some(value),
        }
        Ok(())
    }

    /// Says what is missing.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.cert.is_some() == self.key.is_some() { Ok(()) } else { Err("cert and key go together") }
    }

    /// Reads who signed the certificate of the server.
    #[cfg(any(feature = "rabbitmq", feature = "redis"))]
    pub(crate) fn read_ca(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.ca.as_deref().map(|file| read_pem("ca", file)).transpose()
    }

    /// Reads our certificate and its key.
    #[cfg(any(feature = "rabbitmq", feature = "redis"))]
    pub(crate) fn read_identity(&self) -> Result<Option<Identity>, StoreError> {
        let (Some(cert), Some(key)) = (&self.cert, &self.key) else { return Ok(None) };
        Ok(Some(Identity { cert: read_pem("cert", cert)?, key: read_pem("key", key)? }))
    }
}

/// Reads the file that a parameter names.
pub(crate) fn read_file(parameter: &str, file: &str) -> Result<Vec<u8>, StoreError> {
    fs::read(file).map_err(|error| {
        StoreError::misconfigured(format_args!(
            "file \"{file}\" of parameter {parameter} cannot be read: {error}; name a file that this process may read"
        ))
    })
}

/// Reads a file that has to be in PEM form: a key for the parameter `key`, else certificates. Some clients take another one
/// without a word, and then trust nobody.
pub(crate) fn read_pem(parameter: &str, file: &str) -> Result<Vec<u8>, StoreError> {
    let text = read_file(parameter, file)?;
    let (what, mark) = match parameter {
        "key" => ("private key", "PRIVATE KEY-----"),
        _ => ("certificate", "-----BEGIN CERTIFICATE-----"),
    };
    if !text.windows(mark.len()).any(|window| window == mark.as_bytes()) {
        return Err(StoreError::misconfigured(format_args!(
            "file \"{file}\" of parameter {parameter} holds no {what} in PEM form; name one with a line that has {mark}"
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_the_usual_port_unless_it_says_another() {
        let told = |text| host_and_port(text, 7).map_err(|why| why.split(' ').next().unwrap().to_owned());
        assert_eq!(told("one"), Ok(("one".to_owned(), 7)));
        assert_eq!(told("one:1"), Ok(("one".to_owned(), 1)));
        assert_eq!(told("[::1]"), Ok(("::1".to_owned(), 7)));
        assert_eq!(told("[::1]:65535"), Ok(("::1".to_owned(), 65_535)));
        for (text, word) in
            [("", "a"), (":1", "a"), ("[]", "a"), ("[::1", "a"), ("one:", "the"), ("one:65536", "the")]
        {
            assert_eq!(told(text), Err(word.to_owned()), "of {text}");
        }
    }

    #[test]
    fn parameters_are_handed_out_decoded_until_one_is_wrong() {
        let mut seen = Vec::new();
        let told = each_parameter("a=1%26&&b&c=x=y&d=&wrong=1&e=2", |name, value| {
            if name == "wrong" {
                return Err("it is wrong".to_owned());
            }
            seen.push((name.to_owned(), value));
            Ok(())
        });
        assert_eq!(told, Err("it is wrong".to_owned()));
        let want = [("a", "1&"), ("b", ""), ("c", "x=y"), ("d", "")];
        assert_eq!(seen, want.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(each_parameter("a=%FF", |_, _| Ok(())), Err("parameter \"a\" is not UTF-8".to_owned()));
        let told = each_parameter("token=a?b&ca=c?token=d", |_, _| Ok(()));
        assert!(told.unwrap_err().contains("percent-encode"));
        let behind_a_secret = each_parameter("token=a&b", |name, _| match name {
            "token" => Ok(()),
            _ => Err("there is no parameter \"b\"".to_owned()),
        });
        assert!(behind_a_secret.unwrap_err().contains("percent-encode"));
    }

    #[test]
    fn files_for_tls_need_tls_and_a_certificate_needs_its_key() {
        let refused = TlsFiles::set(None, "ca", "ca.pem".to_owned(), "tls://");
        assert_eq!(refused, Err("ca is for TLS; begin with tls://".to_owned()));
        let mut tls = TlsFiles::default();
        for (name, is_whole) in [("ca", true), ("cert", false), ("key", true)] {
            TlsFiles::set(Some(&mut tls), name, format!("{name}.pem"), "tls://").unwrap();
            assert_eq!(tls.check().is_ok(), is_whole, "with {name}");
        }
        assert_eq!((tls.ca.as_deref(), tls.cert.as_deref()), (Some("ca.pem"), Some("cert.pem")));
        assert_eq!(tls.key.as_deref(), Some("key.pem"));
    }
}
