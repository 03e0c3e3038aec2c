"""From configuration files to server configurations, with everything that is wrong with them."""
