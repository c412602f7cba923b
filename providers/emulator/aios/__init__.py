"""Emulate the AIOS clusters registry and its Parser, which creates clusters. No key is needed.

`routes` speaks HTTP, `records` casts and checks records as Mongoose does and stores them, `mongo`
is the part of MongoDB's filters and updates that people use.
"""
