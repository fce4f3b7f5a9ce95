"""A twin of a site's models that serves simulated requests: what a spike, a lost node or another traffic would do."""
