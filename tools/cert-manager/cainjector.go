package main

import (
	"context"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cert-manager/cert-manager/pkg/cainjector/configfile"
	cmscheme "github.com/cert-manager/cert-manager/pkg/client/clientset/versioned/scheme"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/util"
)

func runInjector(ctx context.Context, flags *pflag.FlagSet, arguments []string) error {
	text, err := fileOf(arguments, "cainjector", "CAInjectorConfiguration")
	if err != nil {
		return err
	}
	file := configfile.New()
	if err := file.DecodeAndConfigure(text); err != nil {
		return err
	}
	settings := file.Config
	flags.String("config", "", "a file of kind CAInjectorConfiguration")
	flags.StringVar(&settings.LeaderElectionConfig.Namespace, "leader-election-namespace", settings.LeaderElectionConfig.Namespace, "where the lease is")
	logf.AddFlags(&settings.Logging, flags)
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if err := logf.ValidateAndApply(&settings.Logging); err != nil {
		return err
	}
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, cmscheme.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme} {
		if err := add(kinds); err != nil {
			return err
		}
	}
	connection, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	// Objects are applied as the manager that the name of the client gives.
	connection = util.RestConfigWithUserAgent(connection, "cainjector")
	election := settings.LeaderElectionConfig
	manager, err := ctrl.NewManager(connection, ctrl.Options{
		Scheme: kinds,
		Cache:  cache.Options{ReaderFailOnMissingInformer: true},
		// Secrets are read one by one: a cache would hold every Secret of the cluster.
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		LeaderElection:                election.Enabled,
		LeaderElectionNamespace:       election.Namespace,
		LeaderElectionID:              "cert-manager-cainjector-leader-election",
		LeaderElectionReleaseOnCancel: true,
		LeaderElectionResourceLock:    resourcelock.LeasesResourceLock,
		LeaseDuration:                 &election.LeaseDuration,
		RenewDeadline:                 &election.RenewDeadline,
		RetryPeriod:                   &election.RetryPeriod,
		Metrics:                       server.Options{BindAddress: settings.MetricsListenAddress},
	})
	if err != nil {
		return err
	}
	targets := settings.EnableInjectableConfig
	if err := cainjector.RegisterAllInjectors(ctx, manager, cainjector.SetupOptions{
		EnableCertificatesDataSource: settings.EnableDataSourceConfig.Certificates,
		EnabledReconcilersFor: map[string]bool{
			cainjector.MutatingWebhookConfigurationName:   targets.MutatingWebhookConfigurations,
			cainjector.ValidatingWebhookConfigurationName: targets.ValidatingWebhookConfigurations,
			cainjector.APIServiceName:                     targets.APIServices,
			cainjector.CustomResourceDefinitionName:       targets.CustomResourceDefinitions,
		},
	}); err != nil {
		return err
	}
	return manager.Start(ctx)
}
