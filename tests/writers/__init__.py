"""Several writers of one version, in one process: gathering, attempts, members, and any history of them."""
