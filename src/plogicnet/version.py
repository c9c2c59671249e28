"""The version of the program, which is stored in every run."""

VERSION = "0.1.0"
