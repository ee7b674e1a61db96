//! The version of a Cluster's control plane, where it is known.

use kube::ResourceExt;
use kube::core::DynamicObject;
use muster_api::reference::VersionCount;
use muster_api::{Cluster, contract};

use super::key_of;
use crate::Context;
use crate::objects::Found;

/// Writes down what the control plane's object says, or the InfraCluster where that is the control plane too. What cannot be
/// read for a moment stays as it was.
pub(super) async fn note(context: &Context, cluster: &mut Cluster, infrastructure: &DynamicObject) {
    let namespace = cluster.namespace().unwrap_or_default();
    let version = match &cluster.spec.control_plane_ref {
        Some(reference) => {
            let found = context
                .objects
                .get(&namespace, reference, &context.clusters, key_of)
                .await;
            match found {
                Found::Here(object) => contract::control_plane_version(&object),
                Found::Missing | Found::Unusable(_) => return,
            }
        }
        None => contract::control_plane_version(infrastructure),
    };
    let status = cluster.status.get_or_insert_default();
    let Some(version) = version else {
        if let Some(control_plane) = &mut status.control_plane {
            control_plane.versions.clear();
        }
        return;
    };
    status.control_plane.get_or_insert_default().versions = vec![VersionCount {
        version,
        replicas: None,
    }];
}
