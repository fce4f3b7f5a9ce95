package main

import (
	"cmp"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Of answers to one request. Engines take fewer, and a product of what a client writes stays a number.
const mostAnswers = 1 << 16

var noPlace = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "gatekeeper_room_refusals_total",
	Help: "Requests that a model, by its replicas, had no room for: it was full, or what is left is kept for other tiers.",
}, []string{"model", "why"})

// cache is the KV cache of the replicas that answer a tenant, and the longest that a request holds of it.
type cache struct {
	Tokens  int64 `json:"tokens"`
	Context int64 `json:"context"` // tokens of a prompt with its answer
	Answer  int64 `json:"answer"`  // most tokens of an answer whose client gives no length
	Room    int64 `json:"room"`    // tokens that all tenants together may hold; 0: no such limit
	// Expected are the most tokens that an answer counts with there.
	Expected int64 `json:"expected"`
}

// size is how large a request may become, as far as its body has it.
type size struct {
	prompt  int64 // tokens of all prompts, one for bytesOfAToken bytes, and of what ranks documents once for each of them
	prompts int64
	answers int64 // 0: this API has none
	longest int64 // tokens that the client gives each answer; 0: it gives no length
}

// size is of a body of so many bytes, whose answers are bounded already.
func (r *request) size(path string, bytes int) size {
	of := apis[path]
	read := int64(bytes) + max(r.ranked-1, 0)*max(int64(bytes)-r.listed, 0)
	s := size{prompt: read / bytesOfAToken, prompts: min(max(r.prompts, 1), mostAnswers)}
	if len(of.answers) == 0 {
		return s
	}
	// What is no number is refused by those behind.
	n, _ := whole("n", r.n)
	s.answers = min(min(max(n, 1), mostAnswers)*s.prompts, mostAnswers)
	// Of two lengths, vLLM takes the first one (v0.32, entrypoints/openai/chat_completion/protocol.py).
	for _, name := range of.answers {
		if given, _ := whole(name, r.answers[name]); given > 0 {
			s.longest = given
			break
		}
	}
	return s
}

// mostRead is what a model reads of a body of so many bytes, where no engine reports it: a picture, or text that is
// escaped, has many bytes for a token, and no prompt is longer than the model's context.
func (s *site) mostRead(bytes int, of size, model string) int64 {
	read := int64(bytes) / bytesOfAToken
	if context := s.Contexts[model]; context > 0 {
		return min(read, of.prompts*context)
	}
	return read
}

// held are the tokens of this cache that a request may hold at its end: each prompt once, and all answers, none of which is
// longer than most.
func (c cache) held(s size, most int64) int64 {
	if s.answers == 0 {
		return max(s.prompt, 1)
	}
	each := min(s.prompt/s.prompts, c.Context)
	return max(s.prompts*each+s.answers*min(cmp.Or(s.longest, c.Answer), most, c.Context-each), 1)
}

// holdsOf are the limits of what is under way that a tenant's request comes under. called: a model, by any of its names.
// tier: that which it has. revision: the one that answers it; empty for the model's own replicas.
func (c *callers) holdsOf(tenant, tier, called, revision string, s size) []hold {
	var holds []hold
	has := c.Tenants[tenant]
	if most := int64(has.Bounds["parallel_requests"]); most > 0 {
		text := fmt.Sprintf("This tenant has as many requests under way as it may, which is %d. "+
			"Try again when one has ended.", most)
		holds = append(holds, hold{set: "requests:" + tenant, most: most, takes: 1, full: noRoom(text)})
	}
	model := cmp.Or(c.Names[called], called)
	pool := cmp.Or(revision, model)
	of := c.Caches[pool]
	if share := has.Bounds["kv_cache_share"]; share > 0 && of.Tokens > 0 {
		most := max(int64(share*float64(of.Tokens)), 1)
		takes := of.held(s, of.Context)
		text := fmt.Sprintf("This request may need %d tokens of the KV cache of %s, and the requests that this tenant has "+
			"under way leave less of the %d that it may hold. Try again when one has ended, or set a shorter answer.",
			takes, model, most)
		holds = append(holds, hold{set: "cache:" + tenant + ":" + pool, most: most, takes: takes, full: noRoom(text)})
	}
	if of.Room > 0 {
		most := max(int64(float64(of.Room)*cmp.Or(c.Rooms[tier], 1)), 1)
		why := "full"
		if most < of.Room {
			why = "kept"
		}
		holds = append(holds, hold{
			set: "pages:" + pool, most: most, takes: of.held(s, of.Expected), full: taken(called, tier, why),
			refused: noPlace.WithLabelValues(pool, why),
		})
	}
	return holds
}

func noRoom(text string) *refusal {
	return &refusal{status: 429, code: "rate_limit_exceeded", text: text}
}

// taken is the answer while a model's room is.
func taken(model, tier, why string) *refusal {
	if why == "kept" {
		text := fmt.Sprintf("The room that the model '%s' has is kept for other tiers than %s now. Try again later.", model, tier)
		return noRoom(text)
	}
	text := fmt.Sprintf("The model '%s' has no room for this request in its KV cache. Try again later.", model)
	return &refusal{status: 503, code: "model_overloaded", text: text}
}
