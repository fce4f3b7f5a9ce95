package main

import (
	"context"

	"github.com/spf13/pflag"

	cmwebhook "github.com/cert-manager/cert-manager/internal/webhook"
	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/webhook/configfile"
	"github.com/cert-manager/cert-manager/pkg/webhook/options"
)

func runWebhook(ctx context.Context, flags *pflag.FlagSet, arguments []string) error {
	text, err := fileOf(arguments, "webhook", "WebhookConfiguration")
	if err != nil {
		return err
	}
	file := configfile.New()
	if err := file.DecodeAndConfigure(text); err != nil {
		return err
	}
	options.NewWebhookFlags().AddFlags(flags)
	options.AddConfigFlags(flags, file.Config)
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if err := logf.ValidateAndApply(&file.Config.Logging); err != nil {
		return err
	}
	server, err := cmwebhook.NewCertManagerWebhookServer(logf.FromContext(ctx), *file.Config)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}
