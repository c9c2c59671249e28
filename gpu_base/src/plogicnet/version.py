"""The version of the program, which every run remembers."""

VERSION = "0.1.0"
