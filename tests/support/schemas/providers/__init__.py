"""Whether model providers take a tool's schema, as tables of what each of them publishes: for tests alone."""
