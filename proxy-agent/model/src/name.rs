//! Names of cluster objects. Cheap to clone: a name is shared, never copied.

use std::{fmt, sync::Arc};

/// Namespace and name of a namespaced object, ordered by namespace, then name.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Namespace, a DNS label.
    pub namespace: Arc<str>,
    /// Name within the namespace.
    pub name: Arc<str>,
}

impl ObjectName {
    /// Names the object `name` in `namespace`.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The name of a Service.
pub type ServiceName = ObjectName;

/// The name of an EndpointSlice.
pub type SliceName = ObjectName;
