"""What both ends of a link use to reach its socket: the only input and output of this package.  Impure."""
