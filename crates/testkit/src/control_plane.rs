//! A real Kubernetes API server for tests: etcd and kube-apiserver on loopback, with certificates of their own.
//!
//! The binaries are looked for in the directory that `KUBEBUILDER_ASSETS` names; `make kube-assets` builds them. Nothing
//! but these two runs, unless a test asks for the garbage collector and the namespace controller too.

mod certificates;
mod server;

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::config::Kubeconfig;
use kube::{Api, Client};
use tempfile::TempDir;

use crate::process;
use certificates::Certificates;
use server::Server;

/// How long the servers may take to start; generous, since it is a limit and not a measure.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How often the ports that were free are found taken before this gives up.
const TRIES: u32 = 5;

/// Where the binaries are, unless the tests that want them are to be skipped.
fn assets() -> Option<PathBuf> {
    std::env::var_os("KUBEBUILDER_ASSETS")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// A running control plane; it ends when it is dropped, and when the process ends in whatever way.
pub struct ControlPlane {
    assets: PathBuf,
    certificates: Certificates,
    ports: Ports,
    kubeconfig: PathBuf,
    // In the order in which they end: the controllers, the API server before its store, the files last.
    controllers: Option<Server>,
    api: Option<Server>,
    _etcd: Server,
    directory: TempDir,
}

#[derive(Clone, Copy)]
struct Ports {
    api: u16,
    etcd: u16,
}

impl ControlPlane {
    /// Starts one, or says on standard error that `cases` cases are skipped where there are no binaries.
    ///
    /// # Errors
    /// When there are binaries and they do not come to serve; with the end of what they said.
    pub async fn start(cases: usize) -> anyhow::Result<Option<Self>> {
        let Some(assets) = assets() else {
            // Not by a macro: what those print of a test that passes is swallowed.
            let _ = writeln!(
                std::io::stderr(),
                "skipped: {cases} real-server case(s), since KUBEBUILDER_ASSETS names no directory with kube-apiserver and etcd; `make test` builds them where Go is installed"
            );
            return Ok(None);
        };
        for binary in ["kube-apiserver", "etcd"] {
            let path = assets.join(binary);
            ensure!(
                path.is_file(),
                "KUBEBUILDER_ASSETS is set, and there is no {}; `make kube-assets` builds it",
                path.display()
            );
        }
        let mut last = None;
        for _ in 0..TRIES {
            match Self::try_start(&assets).await {
                Ok(started) => return Ok(Some(started)),
                // Between the choice of a port and its use somebody else may take it.
                Err(error) if format!("{error:#}").contains("address already in use") => {
                    last = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(last.context("at least one try was made")?)
    }

    async fn try_start(assets: &Path) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("muster-control-plane-")
            .tempdir()?;
        let certificates = Certificates::write(&directory.path().join("pki"))?;
        let (api, etcd) = (free_port()?, free_port()?);
        let ports = Ports { api, etcd };
        let etcd = start_etcd(assets, directory.path(), &certificates, ports)?;
        let kubeconfig = directory.path().join("kubeconfig");
        let mut plane = Self {
            assets: assets.to_owned(),
            certificates,
            ports,
            kubeconfig,
            controllers: None,
            api: None,
            _etcd: etcd,
            directory,
        };
        let admin = plane.user("admin", Some("system:masters"))?;
        process::write_private(&plane.kubeconfig, &serde_json::to_vec(&admin)?)?;
        plane.start_api().await?;
        Ok(plane)
    }

    /// Stops the API server, as `kill -9` does; the store stays.
    pub fn stop_api(&mut self) {
        self.api = None;
    }

    /// Starts the API server over what the store has, at its former address, and waits until it serves.
    ///
    /// # Errors
    /// When it does not come to serve.
    pub async fn start_api(&mut self) -> anyhow::Result<()> {
        let pki = |name: &str| self.certificates.path(name).display().to_string();
        let args = [
            format!("--etcd-servers=https://127.0.0.1:{}", self.ports.etcd),
            format!("--etcd-cafile={}", pki("ca.crt")),
            format!("--etcd-certfile={}", pki("server.crt")),
            format!("--etcd-keyfile={}", pki("server.key")),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.ports.api),
            format!("--tls-cert-file={}", pki("server.crt")),
            format!("--tls-private-key-file={}", pki("server.key")),
            format!("--client-ca-file={}", pki("ca.crt")),
            format!("--service-account-key-file={}", pki("server.crt")),
            format!("--service-account-signing-key-file={}", pki("server.key")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            // Nothing makes the accounts that it would demand of each Pod.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
        ];
        let log = self.directory.path().join("kube-apiserver.log");
        let mut server = Server::start(&self.assets.join("kube-apiserver"), &args, &log)?;
        let client = self.client().await?;
        server
            .until(START_LIMIT, || async {
                let ready = http::Request::get("/readyz").body(Vec::new());
                let Ok(ready) = ready else { return false };
                if client.request_text(ready).await.is_err() {
                    return false;
                }
                let namespaces: Api<Namespace> = Api::all(client.clone());
                namespaces.get("default").await.is_ok()
            })
            .await
            .context("starting kube-apiserver")?;
        self.api = Some(server);
        Ok(())
    }

    /// Starts Kubernetes' garbage collector and namespace controller; whether there is a binary for that, which is said on
    /// standard error where there is none. They act on the kinds that are defined when they start.
    ///
    /// # Errors
    /// When they cannot be started.
    pub fn start_controllers(&mut self) -> anyhow::Result<bool> {
        let binary = self.assets.join("kube-controller-manager");
        if !binary.is_file() {
            let _ = writeln!(
                std::io::stderr(),
                "skipped: there is no {}; `make kube-assets` builds it",
                binary.display()
            );
            return Ok(false);
        }
        let args = [
            format!("--kubeconfig={}", self.kubeconfig.display()),
            "--controllers=garbage-collector-controller,namespace-controller".to_owned(),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        let log = self.directory.path().join("kube-controller-manager.log");
        self.controllers = Some(Server::start(&binary, &args, &log)?);
        Ok(true)
    }

    /// An administrator's kubeconfig, of mode 0600.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// An administrator's client.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self) -> anyhow::Result<Client> {
        process::client(&Kubeconfig::read_from(&self.kubeconfig)?).await
    }

    /// A kubeconfig of any user, who may do what RBAC says.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub fn user(&self, name: &str, group: Option<&str>) -> anyhow::Result<Kubeconfig> {
        self.certificates.kubeconfig(
            &format!("https://127.0.0.1:{}", self.ports.api),
            name,
            group,
        )
    }

    /// Where a test may put files of its own.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

fn start_etcd(
    assets: &Path,
    directory: &Path,
    certificates: &Certificates,
    ports: Ports,
) -> anyhow::Result<Server> {
    let pki = |name: &str| certificates.path(name).display().to_string();
    let url = format!("https://127.0.0.1:{}", ports.etcd);
    let args = [
        format!("--data-dir={}", directory.join("etcd").display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        "--client-cert-auth".to_owned(),
        format!("--trusted-ca-file={}", pki("ca.crt")),
        format!("--cert-file={}", pki("server.crt")),
        format!("--key-file={}", pki("server.key")),
        // The store is gone with the test.
        "--unsafe-no-fsync".to_owned(),
    ];
    Server::start(&assets.join("etcd"), &args, &directory.join("etcd.log"))
}

fn free_port() -> anyhow::Result<u16> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
    let port = listener.local_addr()?.port();
    if port == 0 {
        bail!("the system gave no port");
    }
    Ok(port)
}
