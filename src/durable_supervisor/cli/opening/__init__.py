"""Opening the product for one call: the service, the files or a bundle; and which run was meant."""
