"""Reference solvers and simulations that the numeric core is tested against."""
