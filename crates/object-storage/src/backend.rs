//! Building the client of a store from its URL and the environment.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
#[cfg(test)]
use object_store::client::HttpConnector;
use object_store::client::ReqwestConnector;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::prefix::PrefixStore;
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use rustix::fs::{Access, access};
use tidegate_runtime::SharedClock;

use crate::folder::FolderStore;
use crate::http::WatchingConnector;
use crate::metrics::Metrics;
use crate::options::StoreOptions;
use crate::url::{BucketUrl, StoreUrl};

/// Why a store can't be opened: its description is wrong. A store that can't be reached opens.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "can't create the folder {folder:?} for the object store; choose another or allow writing"
    )]
    Folder {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the settings for object store {url} (URL and environment) can't be used: {detail}")]
    Settings { url: String, detail: String },
}

/// A client, and what must be known of its kind.
#[derive(Debug, Clone)]
pub(crate) struct Backend {
    /// Keys are relative to the prefix.
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) traits: BackendTraits,
    pub(crate) bucket: String,
}

/// How stores differ.
#[derive(Debug, Clone)]
pub(crate) struct BackendTraits {
    /// The last `n` bytes can be asked for without knowing the size.
    pub(crate) suffix_ranges: bool,
    /// An answer to HEAD has no body, so it can't tell a missing bucket from a missing key.
    pub(crate) bodiless_head: bool,
    /// Listings come in the order of keys and can start after one.
    pub(crate) ordered_lists: bool,
    /// The root of a local folder: requests can't get lost there, and directories must be synced.
    pub(crate) folder: Option<PathBuf>,
}

impl BackendTraits {
    pub(crate) const IN_PROCESS: Self = Self {
        suffix_ranges: true,
        bodiless_head: false,
        ordered_lists: true,
        folder: None,
    };
    const HTTP: Self = Self {
        suffix_ranges: true,
        bodiless_head: true,
        ordered_lists: true,
        folder: None,
    };
}

/// A store whose description is right. Nothing was made yet, and nothing asked.
#[derive(Debug)]
pub(crate) enum Planned {
    /// A folder, which may have to be made.
    Folder(PathBuf),
    Client(Backend),
}

impl Planned {
    pub(crate) fn new(
        url: &StoreUrl,
        options: &StoreOptions,
        clock: &SharedClock,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, OpenError> {
        let connector = WatchingConnector {
            inner: ReqwestConnector::default(),
            clock: Arc::clone(clock),
            metrics: Arc::clone(metrics),
        };
        let settings = |error: object_store::Error| OpenError::Settings {
            url: url.to_string(),
            detail: error.to_string(),
        };
        let (store, traits) = match url {
            StoreUrl::Folder(folder) => {
                check_folder(folder).map_err(folder_error(folder))?;
                return Ok(Self::Folder(folder.clone()));
            }
            StoreUrl::Memory => (
                Arc::new(InMemory::new()) as Arc<dyn ObjectStore>,
                BackendTraits::IN_PROCESS,
            ),
            StoreUrl::S3(bucket) => {
                let builder = s3_builder(AmazonS3Builder::from_env(), bucket, options);
                let express = bucket.bucket.ends_with("--x-s3");
                let store = builder
                    .with_http_connector(connector)
                    .build()
                    .map_err(settings)?;
                let traits = BackendTraits {
                    ordered_lists: !express,
                    ..BackendTraits::HTTP
                };
                (prefixed(store, &bucket.prefix), traits)
            }
            StoreUrl::Gcs(bucket) => {
                let store = GoogleCloudStorageBuilder::from_env()
                    .with_bucket_name(&bucket.bucket)
                    .with_retry(no_retries())
                    .with_client_options(client_options(options))
                    .with_http_connector(connector)
                    .build()
                    .map_err(settings)?;
                (prefixed(store, &bucket.prefix), BackendTraits::HTTP)
            }
            StoreUrl::Azure(bucket) => {
                let store = MicrosoftAzureBuilder::from_env()
                    .with_container_name(&bucket.bucket)
                    .with_retry(no_retries())
                    .with_client_options(client_options(options))
                    .with_http_connector(connector)
                    .build()
                    .map_err(settings)?;
                let traits = BackendTraits {
                    suffix_ranges: false,
                    ..BackendTraits::HTTP
                };
                (prefixed(store, &bucket.prefix), traits)
            }
        };
        Ok(Self::Client(Backend {
            store,
            traits,
            bucket: url.bucket(),
        }))
    }

    /// Whether it is known without asking that nothing is stored there.
    pub(crate) fn is_empty(&self, url: &StoreUrl) -> bool {
        match self {
            Self::Folder(folder) => match std::fs::read_dir(folder) {
                Ok(mut entries) => entries.next().is_none(),
                // What can't be read may hold anything.
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            },
            Self::Client(_) => *url == StoreUrl::Memory,
        }
    }

    pub(crate) fn open(self, url: &StoreUrl) -> Result<Backend, OpenError> {
        match self {
            Self::Folder(folder) => open_folder(&folder, url),
            Self::Client(backend) => Ok(backend),
        }
    }
}

/// The settings that matter beside what the environment says, which keeps the last word where it has one.
fn s3_builder(env: AmazonS3Builder, bucket: &BucketUrl, options: &StoreOptions) -> AmazonS3Builder {
    let get = |key: AmazonS3ConfigKey| env.get_config_value(&key);
    let endpoint = get(AmazonS3ConfigKey::S3Endpoint).or_else(|| get(AmazonS3ConfigKey::Endpoint));
    let client_key = |key| AmazonS3ConfigKey::Client(key);
    let allow_http = match &endpoint {
        // Whoever writes http:// means it: the scheme is the permission.
        Some(endpoint) => endpoint.starts_with("http://"),
        None => get(client_key(ClientConfigKey::AllowHttp)).is_some_and(|v| v == "true"),
    };
    let in_env = |name: &str| std::env::var_os(name).is_some();
    let mut client = client_options(options).with_allow_http(allow_http);
    for key in [
        ClientConfigKey::ProxyUrl,
        ClientConfigKey::ProxyCaCertificate,
    ] {
        if let Some(value) = get(client_key(key)) {
            client = client.with_config(key, value);
        }
    }
    let mut builder = env
        .with_bucket_name(&bucket.bucket)
        .with_retry(no_retries())
        .with_client_options(client)
        .with_conditional_put(S3ConditionalPut::ETagMatch);
    if !in_env("AWS_UNSIGNED_PAYLOAD") {
        builder = builder.with_unsigned_payload(options.unsigned_payload);
    }
    // AWS wants the bucket in the host's name; everybody else's endpoint expects it in the path. A dot in
    // the bucket's name doesn't fit the wildcard of AWS's certificates.
    if endpoint.is_none()
        && !in_env("AWS_VIRTUAL_HOSTED_STYLE_REQUEST")
        && !bucket.bucket.contains('.')
    {
        builder = builder.with_virtual_hosted_style_request(true);
    }
    if bucket.bucket.ends_with("--x-s3") {
        builder = builder.with_s3_express(true);
    }
    builder
}

/// Retries happen in this crate, which knows deadlines and classes, and signs each attempt anew.
fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        retry_timeout: Duration::ZERO,
        ..RetryConfig::default()
    }
}

/// The gate limits the time of each attempt by its size, which a fixed limit here would cut short. TCP
/// without delay is the HTTP client's default. Idle connections are dropped before common servers and
/// balancers drop them (60 s and more), so that a request rarely meets a closed one.
fn client_options(options: &StoreOptions) -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(options.connect_timeout)
        .with_pool_idle_timeout(Duration::from_secs(30))
        .with_pool_max_idle_per_host(options.max_concurrency)
}

fn prefixed(store: impl ObjectStore, prefix: &str) -> Arc<dyn ObjectStore> {
    if prefix.is_empty() {
        Arc::new(store)
    } else {
        Arc::new(PrefixStore::new(store, prefix))
    }
}

fn folder_error(folder: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let folder = folder.to_owned();
    |source| OpenError::Folder { folder, source }
}

/// Whether the folder is there or can be made, without making it.
fn check_folder(folder: &Path) -> io::Result<()> {
    let folder = std::path::absolute(folder)?;
    let existing = folder.ancestors().find(|ancestor| ancestor.exists());
    match existing {
        Some(existing) if !existing.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        Some(existing) if existing != folder => {
            Ok(access(existing, Access::WRITE_OK | Access::EXEC_OK)?)
        }
        Some(_) | None => Ok(()),
    }
}

fn open_folder(folder: &Path, url: &StoreUrl) -> Result<Backend, OpenError> {
    create_folder(folder).map_err(folder_error(folder))?;
    let store = LocalFileSystem::new_with_prefix(folder)
        .map_err(|error| OpenError::Settings {
            url: url.to_string(),
            detail: error.to_string(),
        })?
        .with_fsync(true);
    let root = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let traits = BackendTraits {
        ordered_lists: false,
        folder: Some(root),
        ..BackendTraits::IN_PROCESS
    };
    Ok(Backend {
        store: Arc::new(FolderStore::new(store)),
        traits,
        bucket: url.bucket(),
    })
}

/// Creates the folder and makes its name durable, up to the first folder that was there before.
pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
    let folder = std::path::absolute(folder)?;
    let existing = folder
        .ancestors()
        .find(|ancestor| ancestor.is_dir())
        .map(Path::to_owned);
    std::fs::create_dir_all(&folder)?;
    for ancestor in folder.ancestors().skip(1) {
        if existing.as_deref().is_some_and(|e| ancestor.starts_with(e)) {
            std::fs::File::open(ancestor)?.sync_all()?;
        }
    }
    Ok(())
}

/// An object store client over scripted HTTP answers, for tests of the classification.
#[cfg(test)]
pub(crate) fn s3_over(connector: impl HttpConnector) -> Arc<dyn ObjectStore> {
    let bucket = BucketUrl {
        bucket: "b".to_owned(),
        prefix: String::new(),
    };
    let env = AmazonS3Builder::new()
        .with_endpoint("http://store.invalid")
        .with_access_key_id("id")
        .with_secret_access_key("secret");
    let store = s3_builder(env, &bucket, &StoreOptions::default())
        .with_http_connector(connector)
        .build()
        .expect("the settings above are complete");
    Arc::new(store)
}

/// Makes the name of an object that exists durable.
///
/// A create-only write that finds its object there may have met its own first attempt, still on the way
/// to syncing the directory. Whoever takes "exists" for success must not be ahead of that.
pub(crate) async fn sync_existing(folder: &Path, key: &object_store::path::Path) -> io::Result<()> {
    let path = folder.join(key.as_ref());
    tokio::task::spawn_blocking(move || {
        std::fs::File::open(&path)?.sync_all()?;
        match path.parent() {
            Some(parent) => std::fs::File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    })
    .await
    .unwrap_or_else(|error| Err(io::Error::other(error)))
}
