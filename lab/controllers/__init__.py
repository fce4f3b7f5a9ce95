"""The gateway controllers as a site that already has them: installed into the lab before the program runs."""
