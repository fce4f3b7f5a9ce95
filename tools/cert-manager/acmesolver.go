package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/spf13/pflag"

	"github.com/cert-manager/cert-manager/pkg/issuer/acme/http/solver"
	logf "github.com/cert-manager/cert-manager/pkg/logs"
)

func runSolver(ctx context.Context, flags *pflag.FlagSet, arguments []string) error {
	var one solver.HTTP01Solver
	flags.IntVar(&one.ListenPort, "listen-port", 8089, "where challenges are answered")
	flags.StringVar(&one.Domain, "domain", "", "the name that is proven")
	flags.StringVar(&one.Token, "token", "", "the challenge's token")
	flags.StringVar(&one.Key, "key", "", "the answer to it")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- one.Listen(logf.FromContext(ctx)) }()
	select {
	case err := <-failed:
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	case <-ctx.Done():
		return one.Shutdown(context.WithoutCancel(ctx))
	}
}
