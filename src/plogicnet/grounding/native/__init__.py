"""The native engine: chains of relations, walked over sorted arrays in compiled code."""
