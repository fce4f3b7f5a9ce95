package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const rereadEvery = 5 * time.Second

var (
	fileKeys = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "gatekeeper_file_keys",
		Help: "Keys of the site's file that this gatekeeper knows.",
	})
	filesRefused = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "gatekeeper_files_refused",
		Help: "1 while the files with tenants and keys cannot be used, and what they had before is in force.",
	})
)

// reread puts the files in force when they change. A kubelet may give a new pod what another pod of its node has, and
// replaces that within two minutes.
func (f *follower) reread(ctx context.Context, s settings, pepper []byte) {
	ticker := time.NewTicker(rereadEvery)
	defer ticker.Stop()
	// Of no content: a change since the start is not missed.
	var seen digest
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := digestOf(s.tenants, s.keys)
		if now == seen {
			continue
		}
		seen = now
		next, err := loadCallers(s.tenants, s.keys, pepper)
		if err != nil {
			filesRefused.Set(1)
			slog.Error("the files with tenants and keys cannot be used; what they had before stays in force", "error", err)
			continue
		}
		filesRefused.Set(0)
		f.put(next)
	}
}

// put lets these files decide from now on, with the directory's keys as they are.
func (f *follower) put(next *callers) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	next.replace(f.keys)
	if last := f.callers.Load(); last != nil {
		next.complete.Store(last.complete.Load())
	}
	f.callers.Store(next)
	fileKeys.Set(float64(len(next.static)))
}

func digestOf(files ...string) digest {
	hash := sha256.New()
	for _, file := range files {
		content, err := os.ReadFile(file)
		fmt.Fprintln(hash, len(content), err)
		hash.Write(content)
	}
	return digest(hash.Sum(nil))
}
