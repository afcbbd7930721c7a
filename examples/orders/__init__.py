"""The parts of examples/orders_pipeline.py. Start with steps.py: those are the transactions."""
