package main

import (
	"fmt"
	"net/http"
	"time"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	kind "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
)

// suspension is of all keys of a name, those of the site's file too. The directory keeps it.
type suspension struct {
	Tenant string `json:"tenant"`
	Name   string `json:"name"`
	Since  int64  `json:"since"` // Unix seconds
	Lifted bool   `json:"lifted"`
}

func (s suspension) client() string { return s.Tenant + "." + s.Name }

// withSuspensions is what was known, with these changes. What was known is being read, so it stays as it is.
func withSuspensions(known map[string]suspension, changed []suspension) map[string]suspension {
	next := make(map[string]suspension, len(known)+len(changed))
	for client, s := range known {
		next[client] = s
	}
	for _, s := range changed {
		if s.Lifted {
			delete(next, s.client())
		} else {
			next[s.client()] = s
		}
	}
	return next
}

// suspended refuses a caller that is known, with the reason, which who has the key may read.
func suspended(s suspension) *auth.CheckResponse {
	return &auth.CheckResponse{
		Status: &status.Status{Code: int32(codes.PermissionDenied)},
		HttpResponse: &auth.CheckResponse_DeniedResponse{DeniedResponse: &auth.DeniedHttpResponse{
			Status: &kind.HttpStatus{Code: kind.StatusCode(http.StatusForbidden)},
			Body: fmt.Sprintf("The key %s has been suspended since %s. Ask the operators of this platform why, and use "+
				"another key until they lift it.", s.client(), time.Unix(s.Since, 0).UTC().Format(time.RFC3339)),
		}},
	}
}
