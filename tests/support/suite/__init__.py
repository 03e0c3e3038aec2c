"""The run of the suite itself: collecting, its state directory, logging, a second run."""
