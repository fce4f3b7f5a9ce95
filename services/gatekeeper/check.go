package main

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	kind "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

var answers = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "gatekeeper_answers_total",
	Help: "Requests by answer: allowed, refused for an unknown key, suspended, or unknown while the directory's keys are not there.",
}, []string{"answer"})

// Each is there before its first request: what a counter begins with is no growth to Prometheus.
func init() {
	for _, answer := range []string{"allowed", "refused", "suspended", "unknown"} {
		answers.WithLabelValues(answer)
	}
}

// As components/tenants/limits.py has it where no gatekeeper runs: few tokens of a prompt in JSON are shorter.
const bytesOfAToken = 4

// checker answers Envoy.
type checker struct {
	auth.UnimplementedAuthorizationServer
	callers        *atomic.Pointer[callers]
	suspensions    *atomic.Pointer[map[string]suspension] // by client
	networks       *networks                              // nil: no one counts them
	client, tenant string                                 // headers
}

// Check names the caller and what it has, or refuses. It takes the key away, so that nothing behind Envoy sees it.
func (c *checker) Check(_ context.Context, request *auth.CheckRequest) (*auth.CheckResponse, error) {
	asked := request.GetAttributes().GetRequest().GetHttp()
	headers := asked.GetHeaders()
	text := keyOf(headers)
	callers := c.callers.Load()
	found := callers.find(text, time.Now())
	if found == nil && withID.MatchString(text) && !callers.complete.Load() {
		answers.WithLabelValues("unknown").Inc()
		return nil, grpcstatus.Error(codes.Unavailable, "the directory's keys are not known yet")
	}
	if found == nil {
		answers.WithLabelValues("refused").Inc()
		return refused(), nil
	}
	if s, is := (*c.suspensions.Load())[found.client]; is {
		answers.WithLabelValues("suspended").Inc()
		return suspended(s), nil
	}
	answers.WithLabelValues("allowed").Inc()
	metadata := maps.Clone(found.metadata)
	metadata["client"] = structpb.NewStringValue(found.client)
	if found.key.ID != "" {
		metadata["key"] = structpb.NewStringValue(found.key.ID)
	}
	if c.networks != nil {
		address := request.GetAttributes().GetSource().GetAddress().GetSocketAddress().GetAddress()
		metadata["network"] = structpb.NewStringValue(c.networks.name(found.client, address))
	}
	path, _, _ := strings.Cut(asked.GetPath(), "?")
	metadata["path"] = structpb.NewStringValue(path)
	if path == "/v1/models" {
		metadata["listed"] = structpb.NewStringValue(found.models)
	}
	return &auth.CheckResponse{
		Status: &status.Status{Code: int32(codes.OK)},
		HttpResponse: &auth.CheckResponse_OkResponse{OkResponse: &auth.OkHttpResponse{
			Headers:         []*core.HeaderValueOption{set(c.client, found.client), set(c.tenant, found.tenant)},
			HeadersToRemove: []string{"authorization", "x-api-key"},
		}},
		DynamicMetadata: &structpb.Struct{Fields: metadata},
	}, nil
}

// OpenAI's clients send the first header, Anthropic's the second.
func keyOf(headers map[string]string) string {
	given := strings.TrimSpace(headers["authorization"])
	if given == "" {
		return strings.TrimSpace(headers["x-api-key"])
	}
	scheme, rest, cut := strings.Cut(given, " ")
	if cut && strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(rest)
	}
	return given
}

func set(name, value string) *core.HeaderValueOption {
	return &core.HeaderValueOption{
		Header:       &core.HeaderValue{Key: name, Value: value},
		AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

func refused() *auth.CheckResponse {
	return &auth.CheckResponse{
		Status: &status.Status{Code: int32(codes.Unauthenticated)},
		HttpResponse: &auth.CheckResponse_DeniedResponse{DeniedResponse: &auth.DeniedHttpResponse{
			Status: &kind.HttpStatus{Code: kind.StatusCode(http.StatusUnauthorized)},
		}},
	}
}
