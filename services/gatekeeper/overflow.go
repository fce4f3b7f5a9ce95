package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	families "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	loadsEvery = time.Second
	// Percent of a model's sessions by which more overflow with each reading of it as full, and fewer with each of it as
	// having room. All do within seconds of a spike, and not all come back at once.
	rises, falls = 25, 5
	// Of these the first one may be a picker that was late to read its replicas.
	awayAfter = 2
	// Shares of its thresholds below which a model has room again: what takes it there is not what fills it again.
	queueLeft, cacheLeft = 0.5, 0.9
)

var (
	overflowed = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "gatekeeper_overflow_requests_total",
		Help: "Requests that were sent to another model, as theirs was full or away.",
	}, []string{"model", "to"})
	overflowShare = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gatekeeper_overflow_share",
		Help: "Share of a model's sessions that overflow now, 0 to 1, of those that may.",
	}, []string{"model"})
	unread = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "gatekeeper_overflow_unread_total",
		Help: "Readings of a model's load that no picker answered. The model counts as one with room.",
	}, []string{"model"})
)

// overflow is where requests go that a model has no room for.
type overflow struct {
	To      string `json:"to"`
	Context int64  `json:"context"` // tokens of a prompt with its answer that it takes
}

// pool is where to read how full a model is, and what counts as full.
type pool struct {
	Metrics string  `json:"metrics"` // HOST:PORT whose addresses are its pickers
	Queue   float64 `json:"queue"`   // requests that wait in a replica
	Cache   float64 `json:"cache"`   // share of a replica's cache in use
}

// reading is the mean of a model's replicas, as a picker has it.
type reading struct{ ready, queue, cache float64 }

type level int

const (
	room level = iota // also where it is not known
	busy              // neither: what holds goes on
	full
	away // no replica is ready
)

func (p pool) level(of reading) level {
	switch {
	case of.ready == 0:
		return away
	case of.queue >= p.Queue || of.cache >= p.Cache:
		return full
	case of.queue <= queueLeft*p.Queue && of.cache <= cacheLeft*p.Cache:
		return room
	}
	return busy
}

// next is the percentage that overflows after one more reading of a model, and of the one to which it does: that one's own
// requests come first.
func next(percent int, own, to level) int {
	switch {
	case to == away:
		return 0
	case to == full:
		percent -= rises
	case own == away:
		return 100
	case own == full:
		percent += rises
	case own == room:
		percent -= falls
	}
	return min(max(percent, 0), 100)
}

// loads follow how full models are, and so which share of their sessions overflows.
type loads struct {
	callers *atomic.Pointer[callers]
	client  *http.Client

	away     map[string]int // readings in a row, by pool; of the one that follows alone
	mutex    sync.RWMutex
	percents map[string]int
	last     map[string]level // by pool
}

func newLoads(callers *atomic.Pointer[callers]) *loads {
	return &loads{callers: callers, client: &http.Client{}, away: map[string]int{}, percents: map[string]int{}}
}

func (l *loads) follow(ctx context.Context) {
	ticker := time.NewTicker(loadsEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.step(ctx, l.callers.Load())
		}
	}
}

func (l *loads) step(ctx context.Context, c *callers) {
	levels := l.levels(ctx, c.Pools)
	percents := map[string]int{}
	for name, of := range c.Overflows {
		percents[name] = next(l.percent(name), levels[name], levels[of.To])
		overflowShare.WithLabelValues(name).Set(float64(percents[name]) / 100)
		overflowed.WithLabelValues(name, of.To)
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for name := range l.percents {
		if _, still := percents[name]; !still {
			overflowShare.DeleteLabelValues(name)
		}
	}
	l.percents, l.last = percents, levels
}

func (l *loads) isAway(pool string) bool {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	return l.last[pool] == away
}

func (l *loads) percent(name string) int {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	return l.percents[name]
}

func (l *loads) levels(ctx context.Context, pools map[string]pool) map[string]level {
	ctx, cancel := context.WithTimeout(ctx, loadsEvery)
	defer cancel()
	levels := map[string]level{}
	var mutex sync.Mutex
	var asked sync.WaitGroup
	for name, p := range pools {
		unread.WithLabelValues(name)
		asked.Go(func() {
			got, known := l.read(ctx, name, p)
			mutex.Lock()
			defer mutex.Unlock()
			if !known {
				unread.WithLabelValues(name).Inc()
				l.away[name] = 0
				return
			}
			levels[name] = p.level(got)
			if levels[name] != away {
				l.away[name] = 0
			} else if l.away[name]++; l.away[name] < awayAfter {
				levels[name] = busy
			}
		})
	}
	asked.Wait()
	return levels
}

// read asks all pickers of a model, and takes the one that knows most replicas.
func (l *loads) read(ctx context.Context, name string, p pool) (reading, bool) {
	host, port, err := net.SplitHostPort(p.Metrics)
	if err != nil {
		return reading{}, false
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return reading{}, false
	}
	answers := make(chan *reading, len(addresses))
	for _, address := range addresses {
		go func() {
			got, err := l.ask(ctx, "http://"+net.JoinHostPort(address, port)+"/metrics", name)
			if err != nil {
				got = nil
			}
			answers <- got
		}()
	}
	var best *reading
	for range addresses {
		if got := <-answers; got != nil && (best == nil || got.ready > best.ready) {
			best = got
		}
	}
	if best == nil {
		return reading{}, false
	}
	return *best, true
}

func (l *loads) ask(ctx context.Context, url, name string) (*reading, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := l.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, err
	}
	ready, is := gauge(all, "inference_pool_ready_pods", name)
	if !is {
		return nil, fmt.Errorf("%s has nothing of %s", url, name)
	}
	queue, _ := gauge(all, "inference_pool_average_queue_size", name)
	cache, _ := gauge(all, "inference_pool_average_kv_cache_utilization", name)
	return &reading{ready: ready, queue: queue, cache: cache}, nil
}

func gauge(all map[string]*families.MetricFamily, family, pool string) (float64, bool) {
	for _, metric := range all[family].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "name" && label.GetValue() == pool {
				return metric.GetGauge().GetValue(), true
			}
		}
	}
	return 0, false
}

// of is the model that answers in the place of the one that is asked for, and that one's own name; both are empty where
// none does.
func (l *loads) of(c *callers, path string, got *request, bytes int, decided map[string]*structpb.Value) (asked, to string) {
	about := decided["body"].GetStructValue().GetFields()
	asked = c.Names[got.model]
	of, has := c.Overflows[asked]
	if _, adapter := c.Adapters[got.model]; !has || adapter || !about["overflows"].GetBoolValue() {
		return "", ""
	}
	if !decided["models"].GetStructValue().GetFields()[of.To].GetBoolValue() {
		return "", ""
	}
	_, known := apis[path]
	if !known || got.tied || int64(bytes)/bytesOfAToken+got.longestAnswer() > of.Context {
		return "", ""
	}
	tenant := about["tenant"].GetStringValue()
	for _, model := range []string{asked, of.To} {
		if _, has := c.Tenants[tenant].Dedicated[model]; has {
			// How full the shared replicas are is not how full its own are.
			return "", ""
		}
	}
	if canary, has := c.Canaries[asked]; has {
		// Who has one revision for sure keeps it, and what tries another one is not to hide how it does.
		if canary.Pinned[tenant] != "" || canary.serves(tenant, decided["client"].GetStringValue(), got.asked().session) {
			return "", ""
		}
	}
	place := rand.N(100)
	if session := got.asked().session; session != "" {
		place = percentile("overflow", asked, tenant, session)
	}
	if place >= l.percent(asked) {
		return "", ""
	}
	overflowed.WithLabelValues(asked, of.To).Inc()
	return asked, of.To
}

// longestAnswer is what the client bounds its answer by; 0: it does not.
func (r *request) longestAnswer() int64 {
	longest := int64(0)
	for name, value := range r.answers {
		if most, err := whole(name, value); err == nil {
			longest = max(longest, most)
		}
	}
	return longest
}

// named is the body with another model in it.
func (r *request) named(to string) []byte {
	// A model's name in the site's file needs no escapes.
	body := r.out.Bytes()
	return slices.Concat(body[:r.modelAt[0]], []byte(`"`+to+`"`), body[r.modelAt[1]:])
}
