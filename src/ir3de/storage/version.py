"""The version, in its one place: both distributions and whatever names a version take it from here."""

VERSION = "0.1.0"
