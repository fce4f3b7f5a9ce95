"""The rules that a site's resources keep: pure functions, waivers, and their hosts in the program and in CrossGuard."""
