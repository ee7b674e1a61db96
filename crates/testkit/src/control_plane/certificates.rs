//! The certificates of a control plane: its authority, its servers, its users.

use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::json;

use crate::process::write_private;

/// The files of the servers, and the authority that signs users.
pub(super) struct Certificates {
    directory: PathBuf,
    authority: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Certificates {
    /// Makes `ca.crt`, `server.crt` and `server.key` in `directory`.
    pub(super) fn write(directory: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let key = KeyPair::generate()?;
        let params = authority();
        let authority = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        let server_key = KeyPair::generate()?;
        let mut server = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        server.distinguished_name = DistinguishedName::new();
        server
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        // The API server shows the same to etcd.
        server.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = server.signed_by(&server_key, &issuer)?.pem();
        write_private(&directory.join("ca.crt"), authority.as_bytes())?;
        write_private(&directory.join("server.crt"), certificate.as_bytes())?;
        write_private(
            &directory.join("server.key"),
            server_key.serialize_pem().as_bytes(),
        )?;
        Ok(Self {
            directory: directory.to_owned(),
            authority,
            issuer,
        })
    }

    /// The path of a file.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A kubeconfig for a user with a certificate of its own.
    pub(super) fn kubeconfig(
        &self,
        server: &str,
        user: &str,
        group: Option<&str>,
    ) -> anyhow::Result<Kubeconfig> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if let Some(group) = group {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        params.distinguished_name.push(DnType::CommonName, user);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": user,
            "clusters": [{"name": "test", "cluster": {
                "server": server,
                "certificate-authority-data": STANDARD.encode(&self.authority),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": STANDARD.encode(certificate),
                "client-key-data": STANDARD.encode(key.serialize_pem()),
            }}],
            "contexts": [{"name": user, "context": {
                "cluster": "test", "user": user, "namespace": "default",
            }}],
        });
        serde_json::from_value(config).context("a kubeconfig of this form deserializes")
    }
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "muster-test-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}
