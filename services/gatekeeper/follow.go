package main

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	tokenHeader = "x-directory-token"
	wait        = 25 * time.Second
	// For an answer, beside the time that the directory waits for a change.
	answered  = 10 * time.Second
	mostPause = 2 * time.Second
	// However changes get lost, they are all there again after this long.
	refresh = 10 * time.Minute
)

var (
	keysKnown = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "gatekeeper_directory_keys",
		Help: "Keys of the directory that this gatekeeper knows.",
	})
	lastAnswer = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "gatekeeper_directory_last_answer_timestamp_seconds",
		Help: "When the directory last answered. A key made or revoked since then is not known here.",
	})
)

// changes is what the directory answers, what is kept on disk, and what another gatekeeper answers.
type changes struct {
	Cursor string `json:"cursor"`
	Full   bool   `json:"full"`
	Keys   []row  `json:"keys"`

	Prompts []template `json:"prompts"`

	Suspensions []suspension `json:"suspensions"`
}

// row is one key of it. One that cannot be read must not hold up the others: it counts as revoked.
type row struct{ *key }

func (r *row) UnmarshalJSON(text []byte) error {
	var known struct {
		ID string `json:"id"`
	}
	r.key = &key{}
	if err := json.Unmarshal(text, r.key); err != nil || r.ID == "" {
		_ = json.Unmarshal(text, &known)
		slog.Error("a key of the directory cannot be read and does not work", "id", known.ID, "error", err)
		r.key = &key{ID: known.ID, Revoked: true}
	}
	return nil
}

// follower keeps the directory's keys up to date. Without the directory the last ones stay in force.
type follower struct {
	callers   atomic.Pointer[callers]
	directory string
	peers     string
	tokenFile string
	kept      string
	client    *http.Client

	mutex  sync.Mutex
	cursor string
	keys   map[string]*key
	// Replaced under the mutex, and read without it.
	prompts atomic.Pointer[book]
	// By client. A map that is there is never changed.
	suspensions atomic.Pointer[map[string]suspension]

	ready   atomic.Bool
	leaving atomic.Bool
}

func newFollower(s settings, callers *callers) (*follower, error) {
	f := &follower{
		directory: s.directory,
		peers:     s.peers,
		kept:      s.kept,
		tokenFile: s.token,
		client:    &http.Client{},
		keys:      map[string]*key{},
	}
	f.prompts.Store(&book{})
	f.suspensions.Store(&map[string]suspension{})
	f.put(callers)
	if s.directory == "" {
		f.ready.Store(true)
		callers.complete.Store(true)
		return f, nil
	}
	var last changes
	switch err := readJSON(f.kept, &last); {
	case err == nil:
		last.Full = true
		f.take(last)
		f.ready.Store(true)
	case !errors.Is(err, os.ErrNotExist):
		slog.Warn("what was kept of the directory cannot be read", "error", err)
	}
	time.AfterFunc(s.patience, func() {
		if f.ready.CompareAndSwap(false, true) {
			slog.Warn("the directory has not answered; only keys of the site's file work", "directory", f.directory)
		}
	})
	return f, nil
}

func (f *follower) follow(ctx context.Context) {
	if f.directory == "" {
		return
	}
	pause, since, cursor := time.Duration(0), time.Now(), f.all().Cursor
	for ctx.Err() == nil {
		if time.Since(since) > refresh {
			since, cursor = time.Now(), ""
		}
		got, err := f.ask(ctx, f.directory, cursor, wait)
		if err != nil {
			if pause == 0 {
				slog.Warn("the directory does not answer; its last keys stay in force", "error", err)
			}
			if f.all().Cursor == "" {
				f.askPeers(ctx)
			}
			pause = min(max(2*pause, 100*time.Millisecond), mostPause)
			select {
			case <-ctx.Done():
			case <-time.After(pause/2 + rand.N(pause)):
			}
			continue
		}
		pause = 0
		lastAnswer.SetToCurrentTime()
		if got.Full || len(got.Keys) > 0 || len(got.Prompts) > 0 || len(got.Suspensions) > 0 {
			f.take(got)
			f.keep()
		}
		cursor = got.Cursor
		f.ready.Store(true)
	}
}

func (f *follower) ask(ctx context.Context, base, after string, wait time.Duration) (changes, error) {
	var got changes
	query := url.Values{"wait": {fmt.Sprint(int(wait.Seconds()))}}
	if after != "" {
		query.Set("after", after)
	}
	limit := answered
	if after != "" {
		limit += wait
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/changes?"+query.Encode(), nil)
	if err != nil {
		return got, err
	}
	// The Secret that it is from may be made again.
	token, err := secret(f.tokenFile, true)
	if err != nil {
		return got, err
	}
	request.Header.Set(tokenHeader, string(token))
	response, err := f.client.Do(request)
	if err != nil {
		return got, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return got, fmt.Errorf("%s answers %s", base, response.Status)
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return got, err
	}
	return got, json.Unmarshal(content, &got)
}

// askPeers takes over what another gatekeeper has, so that a new one needs no directory.
func (f *follower) askPeers(ctx context.Context) {
	host, port, err := net.SplitHostPort(f.peers)
	if err != nil {
		return
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, address := range addresses {
		got, err := f.ask(ctx, "http://"+net.JoinHostPort(address, port), "", 0)
		if err == nil && got.Cursor != "" {
			f.take(got)
			f.ready.Store(true)
			slog.Info("another gatekeeper gave its keys of the directory", "from", address, "keys", len(got.Keys))
			return
		}
	}
}

func (f *follower) take(got changes) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	known, held := *f.prompts.Load(), *f.suspensions.Load()
	if got.Full {
		f.keys, known, held = map[string]*key{}, book{}, nil
	}
	known, held = known.with(got.Prompts), withSuspensions(held, got.Suspensions)
	f.prompts.Store(&known)
	f.suspensions.Store(&held)
	for _, k := range got.Keys {
		if k.key == nil {
			continue
		}
		if k.Revoked {
			delete(f.keys, k.ID)
		} else {
			f.keys[k.ID] = k.key
		}
	}
	f.cursor = got.Cursor
	keysKnown.Set(float64(len(f.keys)))
	f.callers.Load().replace(f.keys)
	f.callers.Load().complete.Store(true)
}

func (f *follower) all() changes {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	got := changes{Cursor: f.cursor, Full: true, Keys: make([]row, 0, len(f.keys)), Prompts: f.prompts.Load().all()}
	for _, k := range f.keys {
		got.Keys = append(got.Keys, row{k})
	}
	for _, s := range *f.suspensions.Load() {
		got.Suspensions = append(got.Suspensions, s)
	}
	return got
}

func (f *follower) keep() {
	content, err := json.Marshal(f.all())
	if err == nil {
		err = write(f.kept, content)
	}
	if err != nil {
		slog.Warn("the directory's keys are not kept for the next start", "error", err)
	}
}

func write(file string, content []byte) error {
	made, err := os.CreateTemp(filepath.Dir(file), ".kept-")
	if err != nil {
		return err
	}
	defer os.Remove(made.Name())
	if _, err = made.Write(content); err != nil {
		made.Close()
		return err
	}
	if err = made.Close(); err != nil {
		return err
	}
	return os.Rename(made.Name(), file)
}

func (f *follower) leave() { f.leaving.Store(true) }

func (f *follower) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if f.leaving.Load() || !f.ready.Load() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.HandleFunc("GET /v1/changes", func(w http.ResponseWriter, r *http.Request) {
		token, err := secret(f.tokenFile, true)
		if err != nil || subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), token) != 1 {
			http.Error(w, "a reader's token is needed", http.StatusUnauthorized)
			return
		}
		w.Header().Set("content-type", "application/json")
		if err := json.NewEncoder(w).Encode(f.all()); err != nil {
			slog.Warn("another gatekeeper left", "error", err)
		}
	})
	mux.Handle("GET /metrics", promhttp.Handler())
	return mux
}
