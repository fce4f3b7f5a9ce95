// Talos-checker asks Talos's own libraries about what this project generates: machine configs, patches, secrets
// bundles and talosconfigs. Every answer is a line of JSON; it exits with 1 when an answer says no, with 2 when it was
// asked wrongly. Answers to `golden`, `patch` and `secrets-new` hold secrets, and an error may quote the config.
package main

import (
	"bytes"
	"crypto"
	stdx509 "crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"go.yaml.in/yaml/v4"
)

const (
	machinery = "github.com/siderolabs/talos/pkg/machinery"
	usage     = `usage: talos-checker COMMAND ...
  validate [--allow-warnings] FILE...   load and validate machine configs for metal mode; - is standard input
  secrets-check FILE...                 load secrets bundles, compare each key with its certificate, issue from the CA
  secrets-new [--contract v1.13]        a new secrets bundle of Talos's own, as {"secrets": YAML}
  talosconfig-check FILE...             load client configs, chain each certificate to its CA, list its roles
  golden --secrets FILE --cluster NAME --endpoint URL --kubernetes VERSION [--contract v1.13]
         [--install-disk DEVICE] [--install-image IMAGE]   Talos's own base configs, as {"controlplane", "worker"}
  patch --config FILE PATCH...          the config with Talos's own strategic merge of the patches, as {"config": YAML}
  change OLD NEW                        what differs, and whether a machine takes it without a reboot; OLD may be empty
  client [--insecure [--fingerprint F] | --talosconfig FILE] --endpoint HOST[:PORT] [--node IP | --nodes IP,IP] CALL
         one call of the machine API by Talos's own client
  version                               the version of Talos's libraries
`
)

// Answer is what is said of one file.
type Answer struct {
	File     string   `json:"file"`
	OK       bool     `json:"ok"`
	Errors   []string `json:"errors"`
	Warnings []string `json:"warnings"`
	Keys     []string `json:"keys,omitempty"`
	Contexts []Login  `json:"contexts,omitempty"`
}

// Login is one context of a talosconfig.
type Login struct {
	Name      string    `json:"name"`
	Roles     []string  `json:"roles"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	Endpoints []string  `json:"endpoints"`
	Nodes     []string  `json:"nodes"`
}

// metal is the mode of a machine that Talos installs itself on.
type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return true }
func (metal) InContainer() bool     { return false }

var errUsage = errors.New("usage")

func main() {
	ok, err := run(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintf(os.Stderr, "%v\n%s", err, usage)
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	case !ok:
		os.Exit(1)
	}
}

func run(arguments []string, out io.Writer) (bool, error) {
	if len(arguments) == 0 {
		return false, errUsage
	}

	say := json.NewEncoder(out)
	say.SetEscapeHTML(false)

	switch arguments[0] {
	case "client":
		outcome, err := callMachine(arguments[1:])
		if err != nil {
			return false, err
		}

		return outcome.OK, say.Encode(outcome)
	case "change":
		change, err := compare(arguments[1:])
		if err != nil {
			return false, err
		}

		return true, say.Encode(change)
	}

	flags := flag.NewFlagSet(arguments[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard)

	var (
		allowWarnings = flags.Bool("allow-warnings", false, "")
		contract      = flags.String("contract", "v1.13", "")
		bundle        = flags.String("secrets", "", "")
		cluster       = flags.String("cluster", "", "")
		endpoint      = flags.String("endpoint", "", "")
		kubernetes    = flags.String("kubernetes", "", "")
		installDisk   = flags.String("install-disk", "", "")
		installImage  = flags.String("install-image", "", "")
		configFile    = flags.String("config", "", "")
	)

	if err := flags.Parse(arguments[1:]); err != nil {
		return false, fmt.Errorf("%w: %w", errUsage, err)
	}

	files := flags.Args()

	switch arguments[0] {
	case "validate":
		return each(files, say, func(source []byte, answer *Answer) { validate(source, answer, *allowWarnings) })
	case "secrets-check":
		return each(files, say, checkSecrets)
	case "talosconfig-check":
		return each(files, say, checkTalosconfig)
	case "secrets-new":
		text, err := newSecrets(*contract)
		if err != nil {
			return false, err
		}

		return true, say.Encode(map[string]string{"secrets": text})
	case "golden":
		options := []generate.Option{generate.WithInstallDisk(*installDisk), generate.WithInstallImage(*installImage)}

		configs, err := golden(*bundle, *cluster, *endpoint, *kubernetes, *contract, options)
		if err != nil {
			return false, err
		}

		return true, say.Encode(configs)
	case "patch":
		text, err := patched(*configFile, files)
		if err != nil {
			return false, err
		}

		return true, say.Encode(map[string]string{"config": text})
	case "version":
		fmt.Fprintln(out, version())

		return true, nil
	}

	return false, fmt.Errorf("%w: no command %q", errUsage, arguments[0])
}

// each answers for every file, and says whether all of them are good.
func each(files []string, say *json.Encoder, check func([]byte, *Answer)) (bool, error) {
	if len(files) == 0 {
		return false, fmt.Errorf("%w: no file named", errUsage)
	}

	good := true

	for _, file := range files {
		answer := Answer{File: file, Errors: []string{}, Warnings: []string{}}

		source, err := read(file)
		if err != nil {
			answer.fail(err)
		} else {
			check(source, &answer)
		}

		answer.OK = len(answer.Errors) == 0
		good = good && answer.OK

		if err := say.Encode(answer); err != nil {
			return false, err
		}
	}

	return good, nil
}

func read(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(os.Stdin)
	}

	return os.ReadFile(file)
}

// fail notes an error, each part of a joined one on its own.
func (answer *Answer) fail(err error) {
	var many *multierror.Error
	if errors.As(err, &many) {
		for _, one := range many.Errors {
			answer.fail(one)
		}

		return
	}

	answer.Errors = append(answer.Errors, err.Error())
}

func validate(source []byte, answer *Answer, allowWarnings bool) {
	provider, err := configloader.NewFromBytes(source)
	if err != nil {
		answer.fail(err)

		return
	}

	if !provider.CompleteForBoot() {
		answer.fail(errors.New("the v1alpha1 document is missing: the machine could not boot"))
	}

	warnings, err := provider.Validate(metal{})
	if err != nil {
		answer.fail(err)
	}

	answer.Warnings = append(answer.Warnings, warnings...)

	if !allowWarnings {
		for _, warning := range warnings {
			answer.fail(errors.New("warning: " + warning))
		}
	}
}

func newSecrets(contract string) (string, error) {
	parsed, err := config.ParseContractFromVersion(contract)
	if err != nil {
		return "", err
	}

	bundle, err := secrets.NewBundle(secrets.NewClock(), parsed)
	if err != nil {
		return "", err
	}

	text, err := yaml.Marshal(bundle)

	return string(text), err
}

func checkSecrets(source []byte, answer *Answer) {
	bundle := &secrets.Bundle{Clock: secrets.NewClock()}
	if err := yaml.Unmarshal(source, bundle); err != nil {
		answer.fail(err)

		return
	}

	if err := bundle.Validate(); err != nil {
		answer.fail(err)

		return
	}

	authorities := []struct {
		name string
		pair *x509.PEMEncodedCertificateAndKey
	}{
		{"etcd", bundle.Certs.Etcd}, {"k8s", bundle.Certs.K8s},
		{"k8saggregator", bundle.Certs.K8sAggregator}, {"os", bundle.Certs.OS},
	}

	for _, authority := range authorities {
		checkAuthority(authority.name, authority.pair, answer)
	}

	answer.Keys = append(answer.Keys, "k8sserviceaccount: "+label(bundle.Certs.K8sServiceAccount.Key))

	if _, err := bundle.GenerateTalosAPIClientCertificate(role.MakeSet(role.Admin)); err != nil {
		answer.fail(fmt.Errorf("certs.os cannot issue a client certificate: %w", err))
	}
}

func checkAuthority(name string, pair *x509.PEMEncodedCertificateAndKey, answer *Answer) {
	answer.Keys = append(answer.Keys, name+": "+label(pair.Key))

	authority, err := x509.NewCertificateAuthorityFromCertificateAndKey(pair)
	if err != nil {
		answer.fail(fmt.Errorf("certs.%s: %w", name, err))

		return
	}

	signer, isSigner := authority.Key.(crypto.Signer)
	public, isComparable := authority.Crt.PublicKey.(interface{ Equal(crypto.PublicKey) bool })

	if !isSigner || !isComparable || !public.Equal(signer.Public()) {
		answer.fail(fmt.Errorf("certs.%s: the key is not the certificate's", name))
	}

	if !authority.Crt.IsCA || authority.Crt.KeyUsage&stdx509.KeyUsageCertSign == 0 {
		answer.fail(fmt.Errorf("certs.%s: the certificate may not sign others", name))
	}
}

func label(text []byte) string {
	if block, _ := pem.Decode(text); block != nil {
		return block.Type
	}

	return "no PEM"
}

func checkTalosconfig(source []byte, answer *Answer) {
	parsed, err := clientconfig.FromBytes(source)
	if err != nil {
		answer.fail(err)

		return
	}

	if _, found := parsed.Contexts[parsed.Context]; !found {
		answer.fail(fmt.Errorf("context %q is not among the contexts", parsed.Context))
	}

	for name, context := range parsed.Contexts {
		login, err := checkContext(context)
		if err != nil {
			answer.fail(fmt.Errorf("contexts.%s: %w", name, err))

			continue
		}

		login.Name = name
		answer.Contexts = append(answer.Contexts, login)
	}
}

// checkContext does what Talos's client and its API server do with a client certificate.
func checkContext(context *clientconfig.Context) (Login, error) {
	pair, err := client.CertificateFromConfigContext(context)
	if err != nil {
		return Login{}, err
	}

	if pair == nil {
		return Login{}, errors.New("no certificate")
	}

	roots := stdx509.NewCertPool()
	if !roots.AppendCertsFromPEM(decoded(context.CA)) {
		return Login{}, errors.New("no CA")
	}

	_, err = pair.Leaf.Verify(stdx509.VerifyOptions{
		Roots:       roots,
		CurrentTime: pair.Leaf.NotBefore.Add(time.Second),
		KeyUsages:   []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return Login{}, err
	}

	roles, unknown := role.Parse(pair.Leaf.Subject.Organization)
	if len(unknown) > 0 {
		return Login{}, fmt.Errorf("unknown roles %q", unknown)
	}

	return Login{
		Roles: roles.Strings(), NotBefore: pair.Leaf.NotBefore, NotAfter: pair.Leaf.NotAfter,
		Endpoints: context.Endpoints, Nodes: context.Nodes,
	}, nil
}

func decoded(text string) []byte {
	pair := &x509.PEMEncodedCertificate{}
	if err := yaml.Unmarshal([]byte("crt: "+text), pair); err != nil {
		return nil
	}

	return pair.Crt
}

func golden(file, cluster, endpoint, kubernetes, contract string, options []generate.Option) (map[string]string, error) {
	parsed, err := config.ParseContractFromVersion(contract)
	if err != nil {
		return nil, err
	}

	bundle, err := secrets.LoadBundle(file)
	if err != nil {
		return nil, err
	}

	options = append(options, generate.WithVersionContract(parsed), generate.WithSecretsBundle(bundle))

	input, err := generate.NewInput(cluster, endpoint, kubernetes, options...)
	if err != nil {
		return nil, err
	}

	configs := map[string]string{}

	for _, kind := range []machine.Type{machine.TypeControlPlane, machine.TypeWorker} {
		provider, err := input.Config(kind)
		if err != nil {
			return nil, err
		}

		if configs[kind.String()], err = provider.EncodeString(encoder.WithComments(encoder.CommentsDisabled)); err != nil {
			return nil, err
		}
	}

	return configs, nil
}

func patched(file string, patches []string) (string, error) {
	source, err := read(file)
	if err != nil {
		return "", err
	}

	loaded := make([]configpatcher.Patch, 0, len(patches))

	for _, name := range patches {
		text, err := read(name)
		if err != nil {
			return "", err
		}

		patch, err := configpatcher.LoadPatch(bytes.TrimSpace(text))
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}

		loaded = append(loaded, patch)
	}

	result, err := configpatcher.Apply(configpatcher.WithBytes(source), loaded)
	if err != nil {
		return "", err
	}

	provider, err := result.Config()
	if err != nil {
		return "", err
	}

	return provider.EncodeString(encoder.WithComments(encoder.CommentsDisabled))
}

func version() string {
	information, ok := debug.ReadBuildInfo()
	if ok {
		for _, module := range information.Deps {
			if module.Path == machinery {
				return module.Version
			}
		}
	}

	return "unknown"
}
