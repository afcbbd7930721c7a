"""What people see of a lake: facts as rows of text, for the command line and for notebooks alike."""
