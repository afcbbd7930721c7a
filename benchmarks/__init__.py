"""Measurements beside pylance, deltalake and pyiceberg; `make bench` runs all of them."""
