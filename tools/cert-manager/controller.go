package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	config "github.com/cert-manager/cert-manager/internal/apis/config/controller"
	defaults "github.com/cert-manager/cert-manager/internal/apis/config/controller/v1alpha1"
	"github.com/cert-manager/cert-manager/pkg/controller"
	gateways "github.com/cert-manager/cert-manager/pkg/controller/certificate-shim/gateways"
	"github.com/cert-manager/cert-manager/pkg/controller/configfile"
	"github.com/cert-manager/cert-manager/pkg/healthz"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/acme"
	dnsutil "github.com/cert-manager/cert-manager/pkg/issuer/acme/dns/util"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/vault"
	logf "github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/util/feature"
)

func runController(ctx context.Context, flags *pflag.FlagSet, arguments []string) error {
	text, err := fileOf(arguments, "controller", "ControllerConfiguration")
	if err != nil {
		return err
	}
	file := configfile.New()
	if err := file.DecodeAndConfigure(text); err != nil {
		return err
	}
	settings := file.Config
	flags.String("config", "", "a file of kind ControllerConfiguration")
	flags.StringVar(&settings.ClusterResourceNamespace, "cluster-resource-namespace", settings.ClusterResourceNamespace, "where cluster issuers keep Secrets")
	flags.StringVar(&settings.LeaderElectionConfig.Namespace, "leader-election-namespace", settings.LeaderElectionConfig.Namespace, "where the lease is")
	flags.StringVar(&settings.ACMEHTTP01Config.SolverImage, "acme-http01-solver-image", settings.ACMEHTTP01Config.SolverImage, "image that answers challenges")
	flags.StringSliceVar(&settings.ACMEDNS01Config.RecursiveNameservers, "dns01-recursive-nameservers", settings.ACMEDNS01Config.RecursiveNameservers, "DNS servers that are asked for records")
	flags.BoolVar(&settings.ACMEDNS01Config.RecursiveNameserversOnly, "dns01-recursive-nameservers-only", settings.ACMEDNS01Config.RecursiveNameserversOnly, "ask no server of the zone")
	flags.IntVar(&settings.MaxConcurrentChallenges, "max-concurrent-challenges", settings.MaxConcurrentChallenges, "challenges at once")
	logf.AddFlags(&settings.Logging, flags)
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if err := logf.ValidateAndApply(&settings.Logging); err != nil {
		return err
	}
	if err := feature.DefaultMutableFeatureGate.SetFromMap(settings.FeatureGates); err != nil {
		return err
	}
	options, err := contextOptions(settings)
	if err != nil {
		return err
	}
	factory, err := controller.NewContextFactory(ctx, options)
	if err != nil {
		return err
	}
	return lead(ctx, settings, factory)
}

func contextOptions(settings *config.ControllerConfiguration) (controller.ContextOptions, error) {
	solver := settings.ACMEHTTP01Config
	quantities := make([]resource.Quantity, 4)
	for at, text := range []string{solver.SolverResourceRequestCPU, solver.SolverResourceRequestMemory, solver.SolverResourceLimitsCPU, solver.SolverResourceLimitsMemory} {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return controller.ContextOptions{}, fmt.Errorf("a quantity of the solver, %q: %w", text, err)
		}
		quantities[at] = quantity
	}
	nameservers := settings.ACMEDNS01Config.RecursiveNameservers
	if len(nameservers) == 0 {
		nameservers = dnsutil.RecursiveNameservers
	}
	return controller.ContextOptions{
		Kubeconfig:         settings.KubeConfig,
		APIServerHost:      settings.APIServerHost,
		KubernetesAPIQPS:   settings.KubernetesAPIQPS,
		KubernetesAPIBurst: settings.KubernetesAPIBurst,
		Namespace:          settings.Namespace,
		ACMEOptions: controller.ACMEOptions{
			HTTP01SolverImage:                 solver.SolverImage,
			HTTP01SolverResourceRequestCPU:    quantities[0],
			HTTP01SolverResourceRequestMemory: quantities[1],
			HTTP01SolverResourceLimitsCPU:     quantities[2],
			HTTP01SolverResourceLimitsMemory:  quantities[3],
			ACMEHTTP01SolverRunAsNonRoot:      solver.SolverRunAsNonRoot,
			HTTP01SolverNameservers:           solver.SolverNameservers,
			HTTP01SolverExtraLabels:           solver.SolverExtraLabels,
			HTTP01SolverRuntimeClassName:      solver.SolverRuntimeClassName,
			DNS01Nameservers:                  nameservers,
			DNS01CheckRetryPeriod:             settings.ACMEDNS01Config.CheckRetryPeriod,
			DNS01CheckAuthoritative:           !settings.ACMEDNS01Config.RecursiveNameserversOnly,
		},
		IssuerOptions: controller.IssuerOptions{
			ClusterIssuerAmbientCredentials: settings.ClusterIssuerAmbientCredentials,
			IssuerAmbientCredentials:        settings.IssuerAmbientCredentials,
			ClusterResourceNamespace:        settings.ClusterResourceNamespace,
		},
		IngressShimOptions: controller.IngressShimOptions{
			DefaultIssuerName:                 settings.IngressShimConfig.DefaultIssuerName,
			DefaultIssuerKind:                 settings.IngressShimConfig.DefaultIssuerKind,
			DefaultIssuerGroup:                settings.IngressShimConfig.DefaultIssuerGroup,
			DefaultAutoCertificateAnnotations: settings.IngressShimConfig.DefaultAutoCertificateAnnotations,
			ExtraCertificateAnnotations:       settings.IngressShimConfig.ExtraCertificateAnnotations,
			GatewayAPIExtraProtocols:          sets.New(settings.GatewayAPIConfig.ExtraProtocols...),
		},
		CertificateOptions: controller.CertificateOptions{
			EnableOwnerRef:                           settings.EnableCertificateOwnerRef,
			CopiedAnnotationPrefixes:                 settings.CopiedAnnotationPrefixes,
			CertificateRequestMinimumBackoffDuration: settings.CertificateRequestMinimumBackoffDuration,
			CertificateRequestMaximumBackoffDuration: settings.CertificateRequestMaximumBackoffDuration,
		},
		SchedulerOptions: controller.SchedulerOptions{MaxConcurrentChallenges: settings.MaxConcurrentChallenges},
		ConfigOptions: controller.ConfigOptions{
			EnableGatewayAPI:            settings.GatewayAPIConfig.Enabled,
			EnableGatewayAPIListenerSet: settings.GatewayAPIConfig.EnableListenerSet,
		},
	}, nil
}

// lead serves metrics and health at once, and runs the controllers from the moment on that the lease is held.
func lead(ctx context.Context, settings *config.ControllerConfiguration, factory *controller.ContextFactory) error {
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	metrics, err := net.Listen("tcp", settings.MetricsListenAddress)
	if err != nil {
		return err
	}
	health, err := net.Listen("tcp", settings.HealthzListenAddress)
	if err != nil {
		return err
	}
	issuers := shared.SharedInformerFactory.Certmanager().V1()
	shared.Metrics.SetupACMECollector(shared.SharedInformerFactory.Acme().V1().Challenges().Lister())
	shared.Metrics.SetupCertificateCollector(issuers.Certificates().Lister())
	shared.Metrics.SetupIssuerCollector(issuers.Issuers().Lister())
	shared.Metrics.SetupClusterIssuerCollector(issuers.ClusterIssuers().Lister())
	server := shared.Metrics.NewServer(metrics)
	group.Go(func() error {
		if err := server.Serve(metrics); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error { <-ctx.Done(); return server.Close() })
	checks := healthz.NewServer(settings.LeaderElectionConfig.HealthzTimeout)
	group.Go(func() error { return checks.Start(ctx, health) })

	host, err := os.Hostname()
	if err != nil {
		return err
	}
	election := settings.LeaderElectionConfig
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, election.Namespace, "cert-manager-controller",
		shared.Client.CoreV1(), shared.Client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: host + "-external-cert-manager-controller", EventRecorder: shared.Recorder})
	if err != nil {
		return err
	}
	elected := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   election.LeaseDuration,
		RenewDeadline:   election.RenewDeadline,
		RetryPeriod:     election.RetryPeriod,
		ReleaseOnCancel: true,
		WatchDog:        checks.LeaderHealthzAdaptor,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(elected) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	group.Go(func() error {
		elector.Run(ctx)
		if ctx.Err() == nil {
			return errors.New("the lease is lost")
		}
		return nil
	})
	select {
	case <-ctx.Done():
	case <-elected:
		if err := start(ctx, group, settings, factory, shared); err != nil {
			return err
		}
	}
	return group.Wait()
}

func start(ctx context.Context, group *errgroup.Group, settings *config.ControllerConfiguration, factory *controller.ContextFactory, shared *controller.Context) error {
	enabled := slices.Clone(defaults.DefaultEnabledControllers)
	if settings.GatewayAPIConfig.Enabled {
		enabled = append(enabled, gateways.ControllerName)
	}
	for _, name := range enabled {
		build, known := controller.Known()[name]
		if !known {
			return fmt.Errorf("no controller %s is linked into this program", name)
		}
		loop, err := build(factory)
		if err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
		group.Go(func() error { return loop.Run(settings.NumberOfConcurrentWorkers, ctx) })
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	shared.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	if settings.GatewayAPIConfig.Enabled {
		shared.GWShared.Start(ctx.Done())
	}
	logf.FromContext(ctx).Info("controllers run", "count", len(enabled), "since", time.Now().UTC())
	return nil
}
