package main

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var routed = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "gatekeeper_canary_requests_total",
	Help: "Requests for models that have a canary, by the revision that they were sent to.",
}, []string{"model", "revision"})

// canary is a second revision of a model, and who gets it.
type canary struct {
	Revision string            `json:"revision"` // its name: of its route, pool and objectives
	Percent  int               `json:"percent"`
	Sticky   string            `json:"sticky"` // what stays on one revision: session or tenant
	Pinned   map[string]string `json:"pinned"` // tenant -> stable or canary
}

// asked is what of a body decides about its revision.
type asked struct {
	model   string // as the client calls it
	session string // as the client names it; empty: it does not
}

// revisionFor is the name of the revision that serves a request where that is not the model's stable one; else empty.
// gone: whether no replica of a pool is ready.
func (c *callers) revisionFor(a asked, tenant, client string, gone func(pool string) bool) string {
	model := c.Names[a.model]
	if own, has := c.Tenants[tenant].Dedicated[model]; has {
		return own.unless(gone)
	}
	of, has := c.Canaries[model]
	if !has {
		return ""
	}
	if !of.serves(tenant, client, a.session) {
		routed.WithLabelValues(model, model).Inc()
		return ""
	}
	routed.WithLabelValues(model, of.Revision).Inc()
	return of.Revision
}

func (c canary) serves(tenant, client, session string) bool {
	if pinned := c.Pinned[tenant]; pinned != "" {
		return pinned == "canary"
	}
	parts := []string{c.Revision, tenant}
	if c.Sticky == "session" {
		// A session that a client names is of its tenant, whichever of its keys it comes with.
		if session == "" {
			parts = append(parts, "key", client)
		} else {
			parts = append(parts, "session", session)
		}
	}
	// As the share grows, a session that has the canary keeps it.
	return percentile(parts...) < c.Percent
}

// percentile is 0 to 99, the same for the same texts in every gatekeeper.
func percentile(parts ...string) int {
	hash := sha256.New()
	for _, part := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		hash.Write(slices.Concat(length[:], []byte(part)))
	}
	return int(binary.BigEndian.Uint64(hash.Sum(nil)) % 100)
}
