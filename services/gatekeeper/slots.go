package main

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strconv"
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
	Help: "Requests of tenants with a limit of what is under way that were decided without the counters.",
})

// slots count what a tenant has under way, in the store that all gatekeepers share: a sorted set per limit, with the time
// at which each request is forgotten.
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

// hold is a limit of what is under way, and what one request takes of it.
type hold struct {
	set         string
	most, takes int64
	// full is what a client is answered that finds no room, and refused counts these; nil: nothing does.
	full    *refusal
	refused prometheus.Counter
}

// Of each script. A request's id ends with what it takes, and KEYS[2] has the sum of these, so that none is longer than
// what it changes. The store's clock counts, so that gatekeepers need not agree.
const keeping = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function takes(id)
  return tonumber(string.match(id, '%d+$'))
end
local function remove(id)
  local gone = redis.call('ZREM', KEYS[1], id)
  if redis.call('ZCARD', KEYS[1]) == 0 then
    redis.call('DEL', KEYS[2])
  elseif gone == 1 then
    redis.call('DECRBY', KEYS[2], takes(id))
  end
end
local function add(id, kept)
  if redis.call('ZADD', KEYS[1], now + kept, id) == 1 then
    redis.call('INCRBY', KEYS[2], takes(id))
  end
  redis.call('PEXPIRE', KEYS[1], kept)
  redis.call('PEXPIRE', KEYS[2], kept)
end
`

// What is larger than the room goes alone.
var take = redis.NewScript(keeping + `
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do
  remove(id)
end
local held = tonumber(redis.call('GET', KEYS[2]) or 0)
if held > 0 and held + takes(ARGV[3]) > tonumber(ARGV[1]) then
  return 0
end
add(ARGV[3], ARGV[2])
return 1
`)

// A request whose entry is gone, as the store was away for longer than it was kept, comes back.
var renew = redis.NewScript(keeping + `
for place = 2, #ARGV do
  add(ARGV[place], ARGV[1])
end
`)

var forget = redis.NewScript(keeping + `
for _, id in ipairs(ARGV) do
  remove(id)
end
`)

func keysOf(set string) []string { return []string{set, set + ":sum"} }

// acquire counts a request in each of these until release is called; refused has what the client is answered where one is
// full, or cannot be counted.
func (s *slots) acquire(ctx context.Context, holds []hold) (release func(), refused *refusal) {
	var taken []func()
	release = func() {
		for _, end := range taken {
			end()
		}
	}
	for _, r := range holds {
		end, why := s.enter(ctx, r)
		taken = append(taken, end)
		if why != nil {
			return release, why
		}
	}
	return release, nil
}

func (s *slots) enter(ctx context.Context, r hold) (leave func(), refused *refusal) {
	id := rand.Text() + ":" + strconv.FormatInt(r.takes, 10)
	leave = func() { s.release(r.set, id) }
	got, err := take.Run(ctx, s.store, keysOf(r.set), r.most, kept.Milliseconds(), id).Int()
	if err == nil && got == 0 {
		if r.refused != nil {
			r.refused.Inc()
		}
		return func() {}, r.full
	}
	if err != nil && ctx.Err() == nil {
		uncounted.Inc()
	}
	// The store may have counted it all the same; and once it is back, a request that was admitted counts.
	if err != nil && s.refuse {
		text := "What counts this tenant's requests does not answer. Try again."
		return leave, &refusal{status: 503, code: "limits_unavailable", text: text}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.held.add(r.set, id)
	return leave, nil
}

func (s *slots) release(set, id string) {
	s.mutex.Lock()
	s.held.remove(set, id)
	s.mutex.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := forget.Run(ctx, s.store, keysOf(set), id).Err(); err != nil && err != redis.Nil {
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
		err := renew.Run(context.Background(), s.store, keysOf(set), append([]any{kept.Milliseconds()}, ids...)...).Err()
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
		err := forget.Run(context.Background(), s.store, keysOf(set), ids...).Err()
		if err != nil && err != redis.Nil {
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
