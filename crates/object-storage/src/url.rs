//! Where a cluster's bucket is: the store URL.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The place all of a cluster's data lives under.
///
/// | Form | Store |
/// |---|---|
/// | `./data`, `/var/lib/tidegate`, `file:///var/lib/tidegate` | a local folder |
/// | `s3://<bucket>[/<prefix>]` | S3 and what speaks its protocol |
/// | `gs://<bucket>[/<prefix>]` | Google Cloud Storage |
/// | `az://<container>[/<prefix>]` | Azure Blob Storage |
/// | `memory:///` | this process's memory: for tests, gone with the process |
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    Folder(PathBuf),
    S3(BucketUrl),
    Gcs(BucketUrl),
    Azure(BucketUrl),
    Memory,
}

/// A bucket (or container) and the prefix of this cluster's objects in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketUrl {
    pub bucket: String,
    /// Without slashes at either end; empty for the whole bucket.
    pub prefix: String,
}

/// A text that names no store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid object store URL {url:?}: {problem}; {remedy}")]
pub struct InvalidStoreUrl {
    pub url: String,
    pub problem: String,
    pub remedy: String,
}

const FORMS: &str =
    "use a folder, file:///<folder>, s3://<bucket>/<prefix>, gs://…, az://… or memory:///";

impl FromStr for StoreUrl {
    type Err = InvalidStoreUrl;

    fn from_str(url: &str) -> Result<Self, InvalidStoreUrl> {
        let invalid = |problem: String, remedy: String| InvalidStoreUrl {
            url: url.to_owned(),
            problem,
            remedy,
        };
        if url.trim().is_empty() {
            return Err(invalid("it is empty".to_owned(), FORMS.to_owned()));
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            return match url.split_once(':') {
                Some((scheme @ ("s3" | "gs" | "az" | "file" | "memory"), _)) => Err(invalid(
                    format!("\"//\" is missing after \"{scheme}:\""),
                    format!("write {scheme}://…"),
                )),
                _ => Ok(Self::Folder(PathBuf::from(url))),
            };
        };
        let bucket = || {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            if bucket.is_empty() {
                return Err(invalid(
                    "the bucket's name is missing".to_owned(),
                    format!("write {scheme}://<bucket>/<prefix>"),
                ));
            }
            if bucket.contains(['@', '?', '#']) || prefix.contains(['?', '#']) {
                return Err(invalid(
                    "it carries credentials or options".to_owned(),
                    "give those in the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …)"
                        .to_owned(),
                ));
            }
            let prefix = prefix.trim_matches('/').to_owned();
            if let Err(error) = object_store::path::Path::parse(&prefix) {
                return Err(invalid(
                    format!("the prefix can't be used ({error})"),
                    "name its parts with letters, digits, '-', '_' and '.'".to_owned(),
                ));
            }
            Ok(BucketUrl {
                bucket: bucket.to_owned(),
                prefix,
            })
        };
        match scheme {
            "file" if rest.starts_with('/') && rest.len() > 1 => {
                Ok(Self::Folder(PathBuf::from(rest)))
            }
            "file" => Err(invalid(
                "the folder isn't absolute".to_owned(),
                "write file:///<folder>, with three slashes".to_owned(),
            )),
            "s3" | "s3a" => Ok(Self::S3(bucket()?)),
            "gs" => Ok(Self::Gcs(bucket()?)),
            "az" => Ok(Self::Azure(bucket()?)),
            "memory" if rest.trim_matches('/').is_empty() => Ok(Self::Memory),
            "memory" => Err(invalid(
                "memory has no folders".to_owned(),
                "write memory:///".to_owned(),
            )),
            "http" | "https" => Err(invalid(
                "an endpoint isn't a bucket".to_owned(),
                "write s3://<bucket>/<prefix> and put the endpoint into AWS_ENDPOINT_URL"
                    .to_owned(),
            )),
            other => Err(invalid(
                format!("the scheme \"{other}\" is unknown"),
                FORMS.to_owned(),
            )),
        }
    }
}

impl StoreUrl {
    /// What messages call the bucket: its name, or the folder.
    pub fn bucket(&self) -> String {
        match self {
            Self::Folder(folder) => folder.display().to_string(),
            Self::S3(url) | Self::Gcs(url) | Self::Azure(url) => url.bucket.clone(),
            Self::Memory => "memory".to_owned(),
        }
    }

    /// The folder of a local store.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Folder(folder) => Some(folder),
            Self::S3(_) | Self::Gcs(_) | Self::Azure(_) | Self::Memory => None,
        }
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix.is_empty() {
            f.write_str(&self.bucket)
        } else {
            write!(f, "{}/{}", self.bucket, self.prefix)
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => write!(f, "{}", folder.display()),
            Self::S3(url) => write!(f, "s3://{url}"),
            Self::Gcs(url) => write!(f, "gs://{url}"),
            Self::Azure(url) => write!(f, "az://{url}"),
            Self::Memory => f.write_str("memory:///"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_form_parses_and_prints_back() {
        for url in [
            "./data",
            "/var/lib/t",
            "s3://b",
            "s3://b/p/q",
            "gs://b/p",
            "az://c/p",
            "memory:///",
        ] {
            assert_eq!(url.parse::<StoreUrl>().unwrap().to_string(), url);
        }
        assert_eq!(
            "file:///var/t".parse::<StoreUrl>().unwrap(),
            StoreUrl::Folder("/var/t".into())
        );
        assert_eq!(
            "s3://b/p/".parse::<StoreUrl>().unwrap().to_string(),
            "s3://b/p"
        );
    }

    #[test]
    fn a_refusal_names_the_problem_and_the_remedy() {
        for (url, problem, remedy) in [
            ("", "empty", "s3://<bucket>"),
            ("s4://b", "\"s4\" is unknown", "s3://<bucket>"),
            (
                "s3:///p",
                "bucket's name is missing",
                "s3://<bucket>/<prefix>",
            ),
            ("s3:b/p", "\"//\" is missing", "s3://"),
            ("s3://key@b/p", "credentials", "AWS_ACCESS_KEY_ID"),
            ("s3://b/a//b", "prefix", "letters"),
            ("file://data", "isn't absolute", "three slashes"),
            ("http://localhost:9000/b", "endpoint", "AWS_ENDPOINT_URL"),
            ("memory://x", "no folders", "memory:///"),
        ] {
            let error = url.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(
                error.contains(problem) && error.contains(remedy),
                "{url}: {error}"
            );
        }
    }
}
