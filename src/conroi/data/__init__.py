"""conroi.data"""
