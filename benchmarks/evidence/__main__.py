"""Run `python -m benchmarks.evidence`; the grid is a module of its own for its processes."""

from benchmarks.evidence.grid import main

if __name__ == "__main__":
    main()
