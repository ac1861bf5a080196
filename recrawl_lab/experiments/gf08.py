"""GF08 (Grimes, Ford 2008): its figures 2 to 7 in their order; figure 1 is a drawing."""

from recrawl_lab.experiments.gf08_corpus import FIGURE_3
from recrawl_lab.experiments.gf08_initial import FIGURE_2, FIGURE_4
from recrawl_lab.experiments.gf08_new import FIGURE_7
from recrawl_lab.experiments.gf08_prior import FIGURE_5, FIGURE_6

EXPERIMENTS = (FIGURE_2, FIGURE_3, FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7)
