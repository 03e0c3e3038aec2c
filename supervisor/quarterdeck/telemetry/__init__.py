"""What runs, in figures and traces, for Prometheus and OpenTelemetry. No call passes here."""
