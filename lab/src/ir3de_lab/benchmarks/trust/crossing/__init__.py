"""Requests that cross the gateway's features: every pair of features meets in some case, and laws hold in each."""
