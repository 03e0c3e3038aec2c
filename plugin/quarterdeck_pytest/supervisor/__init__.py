"""The one process of a run that holds its servers; started by `activation`, spoken to by `client`."""
