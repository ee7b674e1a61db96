//! The certificate authority and the tokens of one data directory.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::rest::access::{Identity, Role};

/// Why certificates or tokens are not to be had.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A file could not be read or written.
    #[error("{what} {}", path.display())]
    File {
        /// What was attempted.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A certificate could not be made.
    #[error("making a certificate")]
    Certificate(#[from] rcgen::Error),
    /// TLS could not be set up with what was made.
    #[error("setting up TLS")]
    Tls(#[from] rustls::Error),
}

/// Tokens and whom they stand for.
#[derive(Default)]
pub(super) struct Tokens(BTreeMap<String, Identity>);

impl Tokens {
    /// Whom a token stands for. All are compared in full, so that the time tells nothing of how much is right.
    pub(super) fn identity(&self, token: &str) -> Option<Identity> {
        let mut found = None;
        for (known, identity) in &self.0 {
            let same = known.len() == token.len()
                && known
                    .bytes()
                    .zip(token.bytes())
                    .fold(0, |sum, (a, b)| sum | (a ^ b))
                    == 0;
            if same {
                found = Some(identity.clone());
            }
        }
        found
    }
}

/// A certificate authority of its own and a token for each user.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
    names: Vec<String>,
    tokens: Arc<Tokens>,
    admin: String,
    viewer: String,
}

impl Authority {
    /// The authority kept in `directory`, made when it is not there. `names` are the host names and addresses, besides
    /// the loopback ones, under which the server is reached.
    ///
    /// # Errors
    /// When files cannot be read or written.
    pub fn open(directory: &Path, names: &[String]) -> Result<Self, AuthorityError> {
        let file = |what| {
            let path = directory.to_owned();
            move |source| AuthorityError::File { what, path, source }
        };
        fs::create_dir_all(directory).map_err(file("creating"))?;
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700))
            .map_err(file("protecting"))?;
        let key = kept(&directory.join("ca.key"), || {
            Ok(KeyPair::generate()?.serialize_pem())
        })?;
        let key = KeyPair::from_pem(&key)?;
        let certificate = kept(&directory.join("ca.crt"), || {
            Ok(authority_params().self_signed(&key)?.pem())
        })?;
        let admin = kept(&directory.join("admin.token"), || Ok(token()))?;
        let viewer = kept(&directory.join("viewer.token"), || Ok(token()))?;
        Ok(Self::with(certificate, key, admin, viewer, names))
    }

    /// An authority that is gone with the process.
    ///
    /// # Errors
    /// When a certificate cannot be made.
    pub fn ephemeral(names: &[String]) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let certificate = authority_params().self_signed(&key)?.pem();
        Ok(Self::with(certificate, key, token(), token(), names))
    }

    fn with(
        certificate: String,
        key: KeyPair,
        admin: String,
        viewer: String,
        names: &[String],
    ) -> Self {
        let identity = |user: &str, role| Identity {
            user: user.to_owned(),
            role,
        };
        let tokens = BTreeMap::from([
            (admin.clone(), identity("admin", Role::Admin)),
            (viewer.clone(), identity("viewer", Role::Viewer)),
        ]);
        let mut all: Vec<String> = ["127.0.0.1", "::1", "localhost"].map(String::from).into();
        all.extend(
            names
                .iter()
                .filter(|name| !all.contains(name))
                .cloned()
                .collect::<Vec<_>>(),
        );
        Self {
            certificate,
            issuer: Issuer::new(authority_params(), key),
            names: all,
            tokens: Arc::new(Tokens(tokens)),
            admin,
            viewer,
        }
    }

    /// The authority's certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The token of a user with that role.
    pub fn token(&self, role: Role) -> &str {
        match role {
            Role::Admin => &self.admin,
            Role::Viewer => &self.viewer,
        }
    }

    pub(super) fn tokens(&self) -> Arc<Tokens> {
        Arc::clone(&self.tokens)
    }

    /// TLS with a fresh server certificate.
    pub(super) fn server_config(&self) -> Result<ServerConfig, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(self.names.clone())?;
        params.distinguished_name.push(DnType::CommonName, "muster");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&key, &self.issuer)?;
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "muster-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// 256 bits by chance.
fn token() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

/// The content of a file that only its owner can read; made when it is not there.
fn kept(
    path: &Path,
    make: impl FnOnce() -> Result<String, AuthorityError>,
) -> Result<String, AuthorityError> {
    let file = |what| {
        let path = path.to_owned();
        move |source| AuthorityError::File { what, path, source }
    };
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = make()?;
            write_private(path, text.as_bytes()).map_err(file("writing"))?;
            Ok(text)
        }
        Err(source) => Err(file("reading")(source)),
    }
}

/// Writes a file that only its owner can read, whole or not at all.
pub(super) fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}
