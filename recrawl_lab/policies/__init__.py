"""Crawl policies for comparison: fixed rules, tuned heuristics, hindsight."""
