"""Directories and files of ours: state, runtime directories, servers' homes, and the files that the user trusts."""
