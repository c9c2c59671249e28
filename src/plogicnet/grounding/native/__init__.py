"""The native engine, which mines and grounds chains of relations in compiled code."""
