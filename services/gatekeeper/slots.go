package main

import (
	"context"
	"crypto/rand"
	"log/slog"
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
	settled = time.Second
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
	held  ids // requests under way
	owed  ids // those that have ended, and that the store may count: it may do later what it has not answered
}

// ids are of requests of this gatekeeper, by the set that they are in.
type ids map[string]map[string]struct{}

func (i ids) add(set, id string) {
	if i[set] == nil {
		i[set] = map[string]struct{}{}
	}
	i[set][id] = struct{}{}
}

func (i ids) remove(set, id string) {
	delete(i[set], id)
	if len(i[set]) == 0 {
		delete(i, set)
	}
}

func newSlots(address string, refuse bool) *slots {
	return &slots{
		store: redis.NewClient(&redis.Options{
			Addr: address, DialTimeout: counterPatience, ReadTimeout: counterPatience, WriteTimeout: counterPatience,
			MaxRetries: -1, ContextTimeoutEnabled: true,
		}),
		refuse: refuse,
		held:   ids{},
		owed:   ids{},
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
	release = func() { s.release(set, id) }
	got, err := take.Run(ctx, s.store, []string{set}, most, kept.Milliseconds(), id).Int()
	if err == nil && got == 0 {
		return func() {}, true, false
	}
	if err != nil && ctx.Err() == nil {
		uncounted.Inc()
	}
	// The store may have counted it all the same; and once it is back, a request that was admitted counts.
	if err != nil && s.refuse {
		return release, false, false
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.held.add(set, id)
	return release, err == nil, true
}

func (s *slots) release(set, id string) {
	s.mutex.Lock()
	s.held.remove(set, id)
	s.mutex.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.store.ZRem(ctx, set, id).Err(); err != nil {
		slog.Warn("an ended request counts until the store answers", "error", err)
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.owed.add(set, id)
	}
}

// renewing keeps the requests of this gatekeeper from being forgotten, and has those forgotten that have ended.
func (s *slots) renewing() {
	for tick := 1; ; tick++ {
		time.Sleep(settled)
		if tick%int(renewed/settled) == 0 {
			s.renewAll()
		}
		s.settle()
	}
}

func (s *slots) renewAll() {
	for set, ids := range s.all(s.held) {
		err := renew.Run(context.Background(), s.store, []string{set}, append([]any{kept.Milliseconds()}, ids...)...).Err()
		if err != nil && err != redis.Nil {
			slog.Warn("requests under way are not renewed", "set", set, "error", err)
		}
		s.mutex.Lock()
		for _, id := range ids {
			// It ended meanwhile, and has come back.
			if _, held := s.held[set][id.(string)]; !held {
				s.owed.add(set, id.(string))
			}
		}
		s.mutex.Unlock()
	}
}

// settle takes out what has ended, until the store answers that it has.
func (s *slots) settle() {
	for set, ids := range s.all(s.owed) {
		if err := s.store.ZRem(context.Background(), set, ids...).Err(); err != nil {
			return
		}
		s.mutex.Lock()
		for _, id := range ids {
			s.owed.remove(set, id.(string))
		}
		s.mutex.Unlock()
	}
}

func (s *slots) all(of ids) map[string][]any {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	all := make(map[string][]any, len(of))
	for set, ids := range of {
		for id := range ids {
			all[set] = append(all[set], id)
		}
	}
	return all
}
