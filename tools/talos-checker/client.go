package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Outcome is what Talos's own client made of one call; Code is the gRPC status as that client reads it.
type Outcome struct {
	OK    bool   `json:"ok"`
	Code  string `json:"code"`
	Error string `json:"error,omitempty"`
	Reply any    `json:"reply,omitempty"`
}

// target says which machine is called, and as whom.
type target struct {
	talosconfig, endpoint, node, nodes, fingerprint string
	insecure                                        bool
	timeout                                         time.Duration
}

// choices are what single calls take.
type choices struct {
	mode, wipe, roles  string
	dryRun, graceful   bool
	recover            bool
	tryTimeout, expiry time.Duration
}

// callMachine makes one call with Talos's own client: `client [flags] CALL [ARGUMENT]`.
func callMachine(arguments []string) (Outcome, error) {
	flags := flag.NewFlagSet("client", flag.ContinueOnError)
	flags.SetOutput(io.Discard)

	var (
		where target
		what  choices
	)

	flags.StringVar(&where.talosconfig, "talosconfig", "", "")
	flags.StringVar(&where.endpoint, "endpoint", "", "")
	flags.StringVar(&where.node, "node", "", "")
	flags.StringVar(&where.nodes, "nodes", "", "")
	flags.StringVar(&where.fingerprint, "fingerprint", "", "")
	flags.BoolVar(&where.insecure, "insecure", false, "")
	flags.DurationVar(&where.timeout, "timeout", 20*time.Second, "")
	flags.StringVar(&what.mode, "mode", "AUTO", "")
	flags.StringVar(&what.wipe, "wipe", "ALL", "")
	flags.StringVar(&what.roles, "roles", "os:reader", "")
	flags.BoolVar(&what.dryRun, "dry-run", false, "")
	flags.BoolVar(&what.graceful, "graceful", true, "")
	flags.BoolVar(&what.recover, "recover", false, "")
	flags.DurationVar(&what.tryTimeout, "try-timeout", 0, "")
	flags.DurationVar(&what.expiry, "ttl", time.Hour, "")

	if err := flags.Parse(arguments); err != nil {
		return Outcome{}, fmt.Errorf("%w: %w", errUsage, err)
	}

	if flags.NArg() == 0 || where.endpoint == "" {
		return Outcome{}, fmt.Errorf("%w: client needs --endpoint and a call", errUsage)
	}

	ctx, cancel := context.WithTimeout(context.Background(), where.timeout)
	defer cancel()

	connection, err := where.connect(ctx)
	if err != nil {
		return Outcome{}, err
	}

	defer connection.Close() //nolint:errcheck

	switch {
	case where.node != "":
		ctx = client.WithNode(ctx, where.node)
	case where.nodes != "":
		ctx = client.WithNodes(ctx, strings.Split(where.nodes, ",")...)
	}

	reply, err := call(ctx, connection, flags.Arg(0), flags.Arg(1), what)
	if errors.Is(err, errUsage) {
		return Outcome{}, err
	}

	if err != nil {
		return Outcome{Code: client.StatusCode(err).String(), Error: err.Error(), Reply: reply}, nil
	}

	return Outcome{OK: true, Code: codes.OK.String(), Reply: reply}, nil
}

func (where target) connect(ctx context.Context) (*client.Client, error) {
	options := []client.OptionFunc{client.WithEndpoints(where.endpoint)}

	if where.insecure {
		// What talosctl does with --insecure and --cert-fingerprint.
		trust := &tls.Config{InsecureSkipVerify: true} //nolint:gosec
		if where.fingerprint != "" {
			trust.VerifyConnection = where.verify
		}

		return client.New(ctx, append(options, client.WithTLSConfig(trust))...)
	}

	login, err := clientconfig.Open(where.talosconfig)
	if err != nil {
		return nil, err
	}

	return client.New(ctx, append([]client.OptionFunc{client.WithConfig(login)}, options...)...)
}

func (where target) verify(state tls.ConnectionState) error {
	key, err := stdx509.MarshalPKIXPublicKey(state.PeerCertificates[0].PublicKey)
	if err != nil {
		return err
	}

	sum := sha256.Sum256(key)
	if shown := base64.StdEncoding.EncodeToString(sum[:]); shown != where.fingerprint {
		return fmt.Errorf("fingerprint is %s, expected %s", shown, where.fingerprint)
	}

	return nil
}

//nolint:cyclop,gocyclo
func call(ctx context.Context, machines *client.Client, name, argument string, what choices) (any, error) {
	switch name {
	case "version":
		return message(machines.Version(ctx))
	case "services":
		return message(machines.ServiceList(ctx))
	case "etcd-members":
		return message(machines.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{}))
	case "etcd-remove-member":
		member, err := strconv.ParseUint(argument, 10, 64)
		if err != nil {
			return nil, err
		}

		return nil, machines.EtcdRemoveMemberByID(ctx, &machine.EtcdRemoveMemberByIDRequest{MemberId: member})
	case "disks":
		return message(machines.Disks(ctx))
	case "machine-status":
		found, err := safe.StateGetByID[*runtime.MachineStatus](ctx, machines.COSI, runtime.MachineStatusID)
		if err != nil {
			return nil, err
		}

		spec := found.TypedSpec()

		return map[string]any{
			"stage": spec.Stage.String(), "ready": spec.Status.Ready, "unmet": spec.Status.UnmetConditions,
		}, nil
	case "extensions":
		return extensions(ctx, machines)
	case "kubeconfig":
		text, err := machines.Kubeconfig(ctx)

		return string(text), err
	case "read":
		return stream(machines.Read(ctx, argument))
	case "etcd-snapshot":
		snapshot, err := machines.EtcdSnapshot(ctx, &machine.EtcdSnapshotRequest{})
		if err != nil {
			return nil, err
		}

		content, err := io.ReadAll(snapshot)

		return map[string]any{"size": len(content), "whole": wholeSnapshot(content)}, err
	case "apply":
		return apply(ctx, machines, argument, what)
	case "bootstrap":
		return nil, machines.Bootstrap(ctx, &machine.BootstrapRequest{RecoverEtcd: what.recover})
	case "etcd-recover":
		snapshot, err := os.Open(argument)
		if err != nil {
			return nil, err
		}

		defer snapshot.Close() //nolint:errcheck

		return message(machines.EtcdRecover(ctx, snapshot))
	case "reboot":
		return message(machines.RebootWithResponse(ctx))
	case "reset":
		wipe := machine.ResetRequest_WipeMode(machine.ResetRequest_WipeMode_value[what.wipe])

		return message(machines.ResetGenericWithResponse(ctx, &machine.ResetRequest{
			Graceful: what.graceful, Reboot: true, Mode: wipe,
		}))
	case "upgrade-legacy":
		return message(machines.UpgradeWithOptions(ctx, client.WithUpgradeImage(argument), client.WithUpgradePreserve(true))) //nolint:staticcheck
	case "generate-client-configuration":
		return message(machines.GenerateClientConfiguration(ctx, &machine.GenerateClientConfigurationRequest{
			Roles: strings.Split(what.roles, ","), CrtTtl: durationpb.New(what.expiry),
		}))
	case "pull":
		return pull(ctx, machines, argument)
	case "upgrade":
		return upgrade(ctx, machines, argument)
	}

	return nil, fmt.Errorf("%w: no call %q", errUsage, name)
}

func apply(ctx context.Context, machines *client.Client, file string, what choices) (any, error) {
	config, err := read(file)
	if err != nil {
		return nil, err
	}

	request := &machine.ApplyConfigurationRequest{
		Data: config, DryRun: what.dryRun,
		Mode: machine.ApplyConfigurationRequest_Mode(machine.ApplyConfigurationRequest_Mode_value[what.mode]),
	}

	if what.tryTimeout > 0 {
		request.TryModeTimeout = durationpb.New(what.tryTimeout)
	}

	return message(machines.ApplyConfiguration(ctx, request))
}

func extensions(ctx context.Context, machines *client.Client) (any, error) {
	found, err := safe.StateListAll[*runtime.ExtensionStatus](ctx, machines.COSI)
	if err != nil {
		return nil, err
	}

	versions := map[string]string{}
	for each := range found.All() {
		versions[each.TypedSpec().Metadata.Name] = each.TypedSpec().Metadata.Version
	}

	return versions, nil
}

func system() *common.ContainerdInstance {
	return &common.ContainerdInstance{
		Driver: common.ContainerDriver_CONTAINERD, Namespace: common.ContainerdNamespace_NS_SYSTEM,
	}
}

func pull(ctx context.Context, machines *client.Client, image string) (any, error) {
	answer, err := machines.ImageClient.Pull(ctx, &machine.ImageServicePullRequest{Containerd: system(), ImageRef: image})
	if err != nil {
		return nil, err
	}

	name, layers := "", 0

	for {
		reply, err := answer.Recv()
		if errors.Is(err, io.EOF) {
			return map[string]any{"name": name, "progress": layers}, nil
		}

		if err != nil {
			return nil, err
		}

		if reply.GetPullProgress() != nil {
			layers++
		}

		if reply.GetName() != "" {
			name = reply.GetName()
		}
	}
}

func upgrade(ctx context.Context, machines *client.Client, image string) (any, error) {
	answer, err := machines.LifecycleClient.Upgrade(ctx, &machine.LifecycleServiceUpgradeRequest{
		Containerd: system(), Source: &machine.InstallArtifactsSource{ImageName: image},
	})
	if err != nil {
		return nil, err
	}

	var (
		said     []string
		exitCode *int32
	)

	for {
		reply, err := answer.Recv()
		if errors.Is(err, io.EOF) {
			return map[string]any{"messages": said, "exitCode": exitCode}, nil
		}

		if err != nil {
			return map[string]any{"messages": said}, err
		}

		switch progress := reply.GetProgress().GetResponse().(type) {
		case *machine.LifecycleServiceInstallProgress_Message:
			said = append(said, progress.Message)
		case *machine.LifecycleServiceInstallProgress_ExitCode:
			exitCode = &progress.ExitCode
		}
	}
}

func stream(content io.ReadCloser, err error) (any, error) {
	if err != nil {
		return nil, err
	}

	text, err := io.ReadAll(content)

	return string(text), err
}

// wholeSnapshot checks the digest that etcd appends to a snapshot.
func wholeSnapshot(content []byte) bool {
	if len(content) < sha256.Size {
		return false
	}

	end := len(content) - sha256.Size

	return sha256.Sum256(content[:end]) == [sha256.Size]byte(content[end:])
}

// message is a reply in protobuf's JSON form; an error may come with the replies of those machines that had none.
func message(reply proto.Message, err error) (any, error) {
	if reply == nil || !reply.ProtoReflect().IsValid() {
		return nil, err
	}

	text, failure := protojson.Marshal(reply)
	if failure != nil {
		return nil, status.Error(codes.Internal, failure.Error())
	}

	return json.RawMessage(text), err
}
