"""The one process of a run that holds its servers; started by `activation`, used by `client`."""
