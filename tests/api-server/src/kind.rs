//! The kinds that the server knows, and how they are called in paths and objects.

use std::fmt;

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `core/v1`.
    Node,
    /// `core/v1`.
    Service,
    /// `discovery.k8s.io/v1`.
    EndpointSlice,
    /// `networking.k8s.io/v1`, absent from servers before 1.31.
    ServiceCidr,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Node,
        Self::Service,
        Self::EndpointSlice,
        Self::ServiceCidr,
    ];

    /// `kind` in an object.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::ServiceCidr => "ServiceCIDR",
        }
    }

    /// `apiVersion` in an object.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::Node | Self::Service => "v1",
            Self::EndpointSlice => "discovery.k8s.io/v1",
            Self::ServiceCidr => "networking.k8s.io/v1",
        }
    }

    /// The last part of the path of a list over all namespaces.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::Service => "services",
            Self::EndpointSlice => "endpointslices",
            Self::ServiceCidr => "servicecidrs",
        }
    }

    /// The path of its group and version.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Node | Self::Service => "/api/v1/",
            Self::EndpointSlice => "/apis/discovery.k8s.io/v1/",
            Self::ServiceCidr => "/apis/networking.k8s.io/v1/",
        }
    }

    /// Whether its objects are in namespaces.
    pub const fn is_namespaced(self) -> bool {
        matches!(self, Self::Service | Self::EndpointSlice)
    }

    /// Whether the server counts changes of its content in `metadata.generation`.
    pub(super) const fn has_generation(self) -> bool {
        matches!(self, Self::EndpointSlice)
    }

    /// The kind of an object that says it is `name` of `api_version`.
    pub fn find(api_version: &str, name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name && kind.api_version() == api_version)
    }

    /// What the fields beside `metadata` of an empty object look like: Go writes lists that must
    /// be there, but are not, as `null`.
    pub(super) const fn empty_fields(self) -> &'static str {
        match self {
            Self::Node => {
                r#""spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}"#
            }
            Self::Service => r#""spec":{},"status":{"loadBalancer":{}}"#,
            Self::EndpointSlice => r#""addressType":"","endpoints":null,"ports":null"#,
            Self::ServiceCidr => r#""spec":{},"status":{}"#,
        }
    }

    /// `managedFields` as those who write such objects leave them: they are a good part of the
    /// bytes of an object.
    pub(super) const fn managed_fields(self) -> &'static str {
        match self {
            Self::Node => {
                r#"[{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/hostname":{},"f:topology.kubernetes.io/zone":{}}},"f:spec":{"f:podCIDR":{},"f:podCIDRs":{}}}}]"#
            }
            Self::Service => {
                r#"[{"manager":"kubectl-client-side-apply","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:clusterIP":{},"f:internalTrafficPolicy":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}},"f:selector":{},"f:sessionAffinity":{},"f:type":{}}}}]"#
            }
            Self::EndpointSlice => {
                r#"[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"discovery.k8s.io/v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:addressType":{},"f:endpoints":{},"f:metadata":{"f:annotations":{".":{},"f:endpoints.kubernetes.io/last-change-trigger-time":{}},"f:generateName":{},"f:labels":{".":{},"f:endpointslice.kubernetes.io/managed-by":{},"f:kubernetes.io/service-name":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"00000000-0000-4000-8000-000000000000\"}":{}}},"f:ports":{}}}]"#
            }
            Self::ServiceCidr => {
                r#"[{"manager":"kube-apiserver","operation":"Update","apiVersion":"networking.k8s.io/v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:cidrs":{}}}}]"#
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
