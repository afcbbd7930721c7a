"""Where the bytes are, and how a new version becomes real."""
