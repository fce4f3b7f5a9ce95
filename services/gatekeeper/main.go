// The gatekeeper decides about each caller before anything else is known of a request: whose key it is, which models
// and limits the tenant has, and in which tier it is. Envoy asks it by ext_authz and lets no request pass without an
// answer.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	process "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// A proxy learns from DNS within 5 s that a pod is leaving.
const leaving = 10 * time.Second

// Then counted requests may end, before the pod is killed (components/tenants/gatekeeper.py).
const ending = 15 * time.Second

// A body of 4 MiB, the most that the front door passes, and what is decided about it.
const mostBytes = 5 << 20

type settings struct {
	tenants, keys, pepper      string
	directory, token, peers    string
	kept                       string
	decisions, state           string
	clientHeader, tenantHeader string
	salt, counters             string
	refuseUncounted            bool
	ledger, ledgerToken        string
	decided, checked           string
	named                      string
	networks                   bool
	patience                   time.Duration
}

func read() settings {
	var s settings
	flag.StringVar(&s.tenants, "tenants-file", "", "tenants with their models, tiers and limits, JSON")
	flag.StringVar(&s.keys, "keys-file", "", "digests of the keys that the site's file declares, JSON")
	flag.StringVar(&s.pepper, "pepper-file", "", "secret under which keys are hashed")
	flag.StringVar(&s.directory, "directory", "", "URL of the directory of keys; empty: only the site's file has keys")
	flag.StringVar(&s.token, "token-file", "", "token by which the directory knows its readers")
	flag.StringVar(&s.peers, "peers", "", "HOST:PORT whose addresses are other gatekeepers, asked while the directory is away")
	flag.StringVar(&s.kept, "kept-file", "", "where the directory's last answer is kept for the next start")
	flag.StringVar(&s.decisions, "listen", ":9001", "where Envoy asks, gRPC with TLS")
	flag.StringVar(&s.state, "listen-state", ":9002", "health, metrics, and changes for other gatekeepers, HTTP")
	flag.StringVar(&s.clientHeader, "client-header", "", "header that gets TENANT.KEY")
	flag.StringVar(&s.tenantHeader, "tenant-header", "", "header that gets the tenant")
	flag.StringVar(&s.salt, "salt-file", "", "secret out of which each tenant's part of the engines' caches is made")
	flag.StringVar(&s.counters, "counters", "", "HOST:PORT of the store that counts parallel requests; empty: none is limited")
	flag.BoolVar(&s.refuseUncounted, "refuse-uncounted", false, "refuse limited requests while that store is away")
	flag.StringVar(&s.ledger, "ledger", "", "URL of the ledger that counts a month's use; empty: no budget is held")
	flag.StringVar(&s.ledgerToken, "ledger-token-file", "", "token by which the ledger knows its readers")
	flag.StringVar(&s.decided, "decided", "", "metadata in which Envoy keeps the decision about a caller")
	flag.StringVar(&s.checked, "checked", "", "metadata that tells Envoy that a body was read")
	flag.StringVar(&s.named, "named", "", "NAMESPACE:KEY of metadata in which a log finds the name of a prompt; empty: nothing reads it")
	flag.BoolVar(&s.networks, "networks", false, "name the network of each request, for the ledger's count of the networks of a key")
	flag.DurationVar(&s.patience, "patience", 30*time.Second, "ready without the directory's keys after this long")
	flag.Parse()
	return s
}

func main() {
	if err := run(read()); err != nil {
		slog.Error("the gatekeeper ends", "error", err)
		os.Exit(1)
	}
}

func run(s settings) error {
	pepper, err := secret(s.pepper, s.directory != "")
	if err != nil {
		return err
	}
	callers, err := loadCallers(s.tenants, s.keys, pepper)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	salt, err := secret(s.salt, true)
	if err != nil {
		return err
	}
	follower, err := newFollower(s, callers)
	if err != nil {
		return err
	}
	bodies := &hook{
		salt: salt, decisions: s.decided, checked: s.checked, turns: newTurns(),
		callers: &follower.callers, prompts: &follower.prompts, named: s.named,
		loads: newLoads(&follower.callers),
	}
	go bodies.loads.follow(ctx)
	if s.counters != "" {
		bodies.slots = newSlots(s.counters, s.refuseUncounted)
		// As long as requests are under way here, also while this one ends.
		go bodies.slots.renewing()
	}
	if s.ledger != "" {
		bodies.budgets = newBudgets(s.ledger, s.ledgerToken, &follower.callers)
		bodies.budgets.follow(ctx)
	}
	go follower.follow(ctx)
	go follower.reread(ctx, s, pepper)

	certificate, err := ownCertificate()
	if err != nil {
		return err
	}
	decisions := grpc.NewServer(
		// Envoy asks with TLS 1.2 unless it is told otherwise.
		grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})),
		grpc.MaxRecvMsgSize(mostBytes),
		// A proxy tries a silent connection by a ping before the next request.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	deciding := &checker{
		callers: &follower.callers, suspensions: &follower.suspensions, client: s.clientHeader, tenant: s.tenantHeader,
	}
	if s.networks {
		deciding.networks = &networks{salt: salt}
	}
	auth.RegisterAuthorizationServer(decisions, deciding)
	process.RegisterExternalProcessorServer(decisions, bodies)
	listener, err := net.Listen("tcp", s.decisions)
	if err != nil {
		return err
	}
	state := &http.Server{Addr: s.state, Handler: follower.handler(), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 2)
	go func() { failed <- decisions.Serve(listener) }()
	go func() { failed <- state.ListenAndServe() }()
	slog.Info("the gatekeeper decides", "tenants", len(callers.Tenants), "directory", s.directory)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	follower.leave()
	time.Sleep(leaving)
	// Answers go on without it, and are forgotten as requests under way.
	time.AfterFunc(ending, decisions.Stop)
	decisions.GracefulStop()
	if err := state.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// secret is the content of a file.
func secret(file string, needed bool) ([]byte, error) {
	if !needed {
		return nil, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if content = bytes.TrimSpace(content); len(content) == 0 {
		return nil, fmt.Errorf("%s is empty", file)
	}
	return content, nil
}
