"""Files that somebody else may have made: followed, read and replaced without being misled."""
