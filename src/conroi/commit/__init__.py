"""conroi.commit"""
