package main

// dedicated is what answers a tenant in the place of the replicas that all others share.
type dedicated struct {
	Revision string `json:"revision"`  // its name: of its route, pool and objectives
	WhenAway string `json:"when_away"` // what is done while none of its replicas is ready: refuse or shared
}

// unless is its revision's name; empty where the model's shared replicas answer in its place.
func (d dedicated) unless(gone func(pool string) bool) string {
	if d.WhenAway == "shared" && gone(d.Revision) {
		return ""
	}
	return d.Revision
}
