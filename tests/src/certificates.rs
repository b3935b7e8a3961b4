//! Certificates for servers and clients of one test.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// Whoever signs certificates.
#[derive(Debug)]
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
#[derive(Debug)]
pub struct Identity {
    /// Signed by the authority.
    pub certificate: String,
    /// Private.
    pub key: String,
}

impl Authority {
    /// One that nobody trusts yet.
    ///
    /// # Panics
    /// When there is no randomness.
    #[must_use]
    pub fn new() -> Self {
        let mut parameters = parameters("an authority", &[]);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a new key");
        let certificate = parameters.self_signed(&key).expect("a certificate").pem();
        Self { certificate, issuer: Issuer::new(parameters, key) }
    }

    /// Its own certificate as PEM: who has it trusts what it signed.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Signs a new key of somebody who is reached at these hosts, names or addresses. A client is called `name`.
    ///
    /// # Panics
    /// For a host that can be none.
    #[must_use]
    pub fn issue(&self, name: &str, hosts: &[&str]) -> Identity {
        let key = KeyPair::generate().expect("a new key");
        let certificate = parameters(name, hosts).signed_by(&key, &self.issuer).expect("a certificate");
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

fn parameters(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut parameters = CertificateParams::new(hosts).expect("hosts");
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters
}
