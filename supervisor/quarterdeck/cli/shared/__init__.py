"""What commands share: options, output, exit codes, signals."""
