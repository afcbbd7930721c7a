"""Small programs around the code: what `make contract` and `make docs` run."""
