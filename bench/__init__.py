"""The benchmark: the product's figures, its peers' figures and their baselines, in one sitting."""
