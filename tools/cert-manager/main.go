// Cert-manager starts cert-manager's own parts as its images do: controller, webhook, cainjector and acmesolver, by the
// name of the file that it is called as. Each part is a Go module of its own upstream, which no proxy has, so this is
// the little that is missing around the packages of cert-manager's main module. Flags are those that its chart sets.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	ctrl "sigs.k8s.io/controller-runtime"

	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/util"
)

var parts = map[string]func(context.Context, *pflag.FlagSet, []string) error{
	"acmesolver": runSolver,
	"cainjector": runInjector,
	"controller": runController,
	"webhook":    runWebhook,
}

func main() {
	name := filepath.Base(os.Args[0])
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(util.VersionInfo().GitVersion)
		return
	}
	run, known := parts[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%s: call me as acmesolver, cainjector, controller or webhook, or with --version\n", name)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	logs.InitLogs()
	ctrl.SetLogger(logf.Log)
	ctx = logf.NewContext(ctx, logf.Log, name)
	err := run(ctx, pflag.NewFlagSet(name, pflag.ContinueOnError), os.Args[1:])
	logs.FlushLogs()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// fileOf is the content of the file that --config names among the arguments, or an empty configuration of this kind:
// flags come after the file, so the file has to be read before they are parsed.
func fileOf(arguments []string, group, kind string) ([]byte, error) {
	flags := pflag.NewFlagSet("file", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	path := flags.String("config", "", "")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if *path == "" {
		return fmt.Appendf(nil, "apiVersion: %s.config.cert-manager.io/v1alpha1\nkind: %s\n", group, kind), nil
	}
	return os.ReadFile(*path)
}
