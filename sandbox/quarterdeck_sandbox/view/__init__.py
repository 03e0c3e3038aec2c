"""What a confined process sees of the filesystem, and what it must never see or change."""
