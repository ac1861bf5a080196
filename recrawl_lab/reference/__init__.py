"""Reference solvers and simulations for tests of the numeric core."""
