"""A Flower app: distances between data sets whose owners cannot share them."""
