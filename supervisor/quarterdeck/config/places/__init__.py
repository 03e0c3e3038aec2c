"""The places where we write: state, runtime directory, servers' private homes."""
