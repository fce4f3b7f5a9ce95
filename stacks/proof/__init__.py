"""What a model needs and gives on a site's GPUs, by arithmetic, before a GPU is used."""
