//! Network namespaces: entering one, its cookie and addresses, finding a pod's.
