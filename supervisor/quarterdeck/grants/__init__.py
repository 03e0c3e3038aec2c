"""What servers ask of this machine: by what their rows name, and by what is known of their packages."""
