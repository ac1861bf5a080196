"""Crawl policies to compare with: fixed rules, tuned heuristics, hindsight."""
