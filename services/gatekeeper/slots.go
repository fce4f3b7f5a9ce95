package main

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"
)

// A request that no gatekeeper renews any more, as its gatekeeper was killed, is forgotten after this.
const (
	kept    = 30 * time.Second
	renewed = 10 * time.Second
	// As the limit service's, in components/tenants/limits.py.
	counterPatience = 250 * time.Millisecond
)

var uncounted = promauto.NewCounter(prometheus.CounterOpts{
	Name: "gatekeeper_parallel_uncounted_total",
	Help: "Requests of tenants with a limit of parallel ones that were decided without the counters.",
})

// slots count the requests that a tenant has under way, in the store that all gatekeepers share: a sorted set per
// tenant, with the time at which each request is forgotten.
type slots struct {
	store  *redis.Client
	refuse bool // while the store does not answer

	mutex sync.Mutex
	held  map[string]map[string]struct{} // set -> its requests of this gatekeeper
}

func newSlots(address string, refuse bool) *slots {
	return &slots{
		store: redis.NewClient(&redis.Options{
			Addr: address, DialTimeout: counterPatience, ReadTimeout: counterPatience, WriteTimeout: counterPatience,
			MaxRetries: -1, ContextTimeoutEnabled: true,
		}),
		refuse: refuse,
		held:   map[string]map[string]struct{}{},
	}
}

// The store's clock counts, so that gatekeepers need not agree.
var take = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
  return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
`)

// A request whose entry is gone, as the store was away for longer than it was kept, comes back.
var renew = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for place = 2, #ARGV do
  redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[place])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
`)

// acquire counts a request until release is called. Not ok: the tenant has as many as it may, or none can be counted
// (counted is false then).
func (s *slots) acquire(ctx context.Context, tenant string, most int64) (release func(), counted, ok bool) {
	set, id := "parallel:"+tenant, rand.Text()
	got, err := take.Run(ctx, s.store, []string{set}, most, kept.Milliseconds(), id).Int()
	if err != nil {
		if ctx.Err() == nil {
			uncounted.Inc()
		}
		// The store may have counted it all the same; and once it is back, a request that was admitted counts.
		if !s.refuse {
			s.hold(set, id)
		}
		return func() { s.release(set, id) }, false, !s.refuse
	}
	if got == 0 {
		return func() {}, true, false
	}
	s.hold(set, id)
	return func() { s.release(set, id) }, true, true
}

func (s *slots) hold(set, id string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.held[set] == nil {
		s.held[set] = map[string]struct{}{}
	}
	s.held[set][id] = struct{}{}
}

func (s *slots) release(set, id string) {
	s.mutex.Lock()
	delete(s.held[set], id)
	if len(s.held[set]) == 0 {
		delete(s.held, set)
	}
	s.mutex.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.store.ZRem(ctx, set, id).Err(); err != nil {
		slog.Warn("an ended request counts until it is forgotten", "after", kept, "error", err)
	}
}

// renewing keeps the requests of this gatekeeper from being forgotten.
func (s *slots) renewing() {
	ctx := context.Background()
	for range time.Tick(renewed) {
		for set, ids := range s.all() {
			if err := renew.Run(ctx, s.store, []string{set}, append([]any{kept.Milliseconds()}, ids...)...).Err(); err != nil && err != redis.Nil {
				slog.Warn("requests under way are not renewed", "set", set, "error", err)
				continue
			}
			// Those that ended meanwhile have come back.
			if ended := s.ended(set, ids); len(ended) > 0 {
				s.store.ZRem(ctx, set, ended...)
			}
		}
	}
}

func (s *slots) ended(set string, ids []any) []any {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.DeleteFunc(slices.Clone(ids), func(id any) bool {
		_, held := s.held[set][id.(string)]
		return held
	})
}

func (s *slots) all() map[string][]any {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	all := make(map[string][]any, len(s.held))
	for set, ids := range s.held {
		for id := range ids {
			all[set] = append(all[set], id)
		}
	}
	return all
}
