"""What both ends of a link use to reach its socket: the one folder of this package that does input and output."""
