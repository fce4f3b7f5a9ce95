package main

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	process "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	kind "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

// Seconds. Of what most refusals wait for, something ends nearly at any time.
const retryAfter = 1

// In Envoy's words for why it answered itself, before the code of the error.
const refusedBy = "gatekeeper_"

var bodies = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "gatekeeper_bodies_total",
	Help: "Bodies of requests by what became of them: passed, or the code of the error that refused them.",
}, []string{"answer"})

// hook gets the body of each request whose caller Check has named, and sets what only the platform decides.
type hook struct {
	process.UnimplementedExternalProcessorServer
	salt  []byte
	slots *slots // nil: no tenant has a limit of what is under way
	turns *turns
	// callers has which models have a second revision.
	callers *atomic.Pointer[callers]
	// nil: no tenant has a limit of a month.
	budgets *budgets
	// Namespaces of metadata: under which Envoy keeps Check's answer, and that which this one gets.
	decisions, checked string
	prompts            *atomic.Pointer[book]
	loads              *loads
	named              string // NAMESPACE:KEY of the metadata in which a log finds a prompt's name; empty: nothing reads it
}

// Process answers for one request. Envoy goes on without it when it ends, so it ends where nothing is left to count.
func (h *hook) Process(stream process.ExternalProcessor_ProcessServer) error {
	release, err := h.first(stream)
	if release == nil {
		return err
	}
	defer release()
	if err != nil {
		return err
	}
	// Until the request ends. An answer may have trailers, for which Envoy waits.
	for {
		asked, err := stream.Recv()
		if err != nil {
			return nil
		}
		if asked.GetResponseTrailers() != nil {
			trailers := &process.ProcessingResponse_ResponseTrailers{ResponseTrailers: &process.TrailersResponse{}}
			if err := stream.Send(&process.ProcessingResponse{Response: trailers}); err != nil {
				return nil
			}
		}
	}
}

// first reads the body and answers about it; release is nil where the end of the request is of no interest.
func (h *hook) first(stream process.ExternalProcessor_ProcessServer) (release func(), err error) {
	ctx := stream.Context()
	answer, holds, err := h.reading(ctx, stream)
	if err != nil {
		return nil, err
	}
	if len(holds) > 0 && h.slots != nil {
		var full *refusal
		if release, full = h.slots.acquire(ctx, holds); full != nil {
			answer = refusing(full)
		}
	}
	code := strings.TrimPrefix(answer.GetImmediateResponse().GetDetails(), refusedBy)
	bodies.WithLabelValues(cmp.Or(code, "passed")).Inc()
	return release, stream.Send(answer)
}

// reading is done by some calls at once only: a body is in memory several times while it is read. Before that it waits at
// the connection.
func (h *hook) reading(
	ctx context.Context, stream process.ExternalProcessor_ProcessServer,
) (answer *process.ProcessingResponse, holds []hold, err error) {
	end, err := h.turns.begin(ctx, tenantOf(ctx))
	if err != nil {
		return nil, nil, err
	}
	defer end()
	asked, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	body, is := asked.GetRequest().(*process.ProcessingRequest_RequestBody)
	if !is {
		return nil, nil, grpcstatus.Error(codes.InvalidArgument, "the first message is not a body")
	}
	decided := asked.GetMetadataContext().GetFilterMetadata()[h.decisions].GetFields()
	answer, holds = h.answer(body.RequestBody.GetBody(), decided)
	return answer, holds, nil
}

// tenantOf is what Envoy names before the body (components/gateway/front_door.py).
func tenantOf(ctx context.Context) string {
	named := metadata.ValueFromIncomingContext(ctx, "tenant")
	return strings.Join(named, ",")
}

// answer is what Envoy is answered about a body, where what its request is going to hold has room. decided: what Check
// decided about its caller.
func (h *hook) answer(body []byte, decided map[string]*structpb.Value) (*process.ProcessingResponse, []hold) {
	path, client := decided["path"].GetStringValue(), decided["client"].GetStringValue()
	about := decided["body"].GetStructValue().GetFields()
	tenant := about["tenant"].GetStringValue()
	if tenant == "" {
		text := "A part of the gateway has no decision. Try again."
		return refusing(&refusal{status: 503, code: "gateway_unavailable", text: text}), nil
	}
	if spent := h.budgets.refusal(tenant, time.Now()); spent != nil {
		return refusing(spent), nil
	}
	t := terms{
		answerTokens: int64(about["max_answer_tokens"].GetNumberValue()),
		promptTokens: int64(about["max_prompt_tokens"].GetNumberValue()),
		priority: func(wish string) int64 {
			return int64(about["priorities"].GetStructValue().GetFields()[tierFor(wish, about)].GetNumberValue())
		},
	}
	if !about["shared"].GetBoolValue() {
		t.salt = saltOf(h.salt, tenant)
	}
	made, got, named, err := body, &request{}, "", error(nil)
	if !multipart[path] {
		if body, named, err = h.prompts.Load().expanded(path, tenant, body); err == nil {
			made, got, err = rewritten(path, body, t)
		}
	}
	var refused *refusal
	if errors.As(err, &refused) {
		if refused.noPrompt && !h.callers.Load().complete.Load() {
			text := "The directory's prompts are not known yet. Try again."
			refused = &refusal{status: 503, code: "gateway_unavailable", text: text}
		}
		return refusing(refused), nil
	}
	mark := map[string]*structpb.Value{"checked": structpb.NewBoolValue(true)}
	if tier := tierFor(got.wish, about); tier != "" {
		mark["tier"] = structpb.NewStringValue(tier)
	}
	callers, served := h.callers.Load(), got.asked()
	if asked, to := h.loads.of(callers, path, got, len(body), decided); to != "" {
		made, served.model = got.named(to), to
		mark["asked"], mark["served"] = structpb.NewStringValue(asked), structpb.NewStringValue(to)
	}
	revision := callers.revisionFor(served, tenant, client, h.loads.isAway)
	if revision != "" {
		mark["revision"] = structpb.NewStringValue(revision)
	}
	read := got.size(path, len(body))
	// A header with the length need not be there.
	mark["prompt"] = structpb.NewNumberValue(float64(callers.mostRead(len(body), read, served.model)))
	answer := passing(made, h.checked, mark)
	if space, key, logged := strings.Cut(h.named, ":"); logged && named != "" {
		// In the place of an id that the client gave to its request.
		of := &structpb.Struct{Fields: map[string]*structpb.Value{key: structpb.NewStringValue(named)}}
		answer.DynamicMetadata.Fields[space] = structpb.NewStructValue(of)
	}
	tier := cmp.Or(tierFor(got.wish, about), callers.Tenants[tenant].Tier)
	return answer, callers.holdsOf(tenant, tier, served.model, revision, read)
}

// The AI gateway reads these as forms. No engine takes them in the place of a prompt's JSON.
var multipart = map[string]bool{
	"/v1/audio/transcriptions": true,
	"/v1/audio/translations":   true,
}

// saltOf is 128 bits of HMAC-SHA256 over the tenant's name: no other tenant can make it, and engines log it.
func saltOf(secret []byte, tenant string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(tenant))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// tierFor is the tier that a request wishes and may have; empty: its tenant's own.
func tierFor(wish string, about map[string]*structpb.Value) string {
	if wish == "" {
		return ""
	}
	return about["tiers"].GetStructValue().GetFields()[wish].GetStringValue()
}

func passing(body []byte, namespace string, mark map[string]*structpb.Value) *process.ProcessingResponse {
	common := &process.CommonResponse{
		BodyMutation: &process.BodyMutation{Mutation: &process.BodyMutation_Body{Body: body}},
	}
	return &process.ProcessingResponse{
		Response: &process.ProcessingResponse_RequestBody{RequestBody: &process.BodyResponse{Response: common}},
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			namespace: structpb.NewStructValue(&structpb.Struct{Fields: mark}),
		}},
	}
}

func refusing(r *refusal) *process.ProcessingResponse {
	immediate := &process.ImmediateResponse{
		Status:  &kind.HttpStatus{Code: kind.StatusCode(r.status)},
		Body:    []byte(r.text),
		Details: refusedBy + r.code,
	}
	if r.of != "" {
		immediate.Details += "." + r.of
	}
	headers := map[string]string{}
	if r.status == 429 || r.status == 503 {
		headers["retry-after"] = strconv.FormatInt(cmp.Or(r.after, retryAfter), 10)
	}
	if r.after > 0 {
		// OpenAI's and Anthropic's libraries obey it, and so do not try again for what cannot succeed.
		headers["x-should-retry"] = "false"
	}
	if len(headers) > 0 {
		immediate.Headers = &process.HeaderMutation{}
	}
	for name, value := range headers {
		// Envoy takes no text here.
		header := &core.HeaderValue{Key: name, RawValue: []byte(value)}
		immediate.Headers.SetHeaders = append(immediate.Headers.SetHeaders, &core.HeaderValueOption{Header: header})
	}
	return &process.ProcessingResponse{
		Response: &process.ProcessingResponse_ImmediateResponse{ImmediateResponse: immediate},
	}
}
