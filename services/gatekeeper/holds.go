package main

import (
	"cmp"
	"fmt"
)

// Of answers to one request. Engines take fewer, and a product of what a client writes stays a number.
const mostAnswers = 1 << 16

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
	prompt  int64 // tokens, one for bytesOfAToken bytes
	answers int64 // 0: this API has none
	longest int64 // tokens that the client gives each answer; 0: it gives no length
}

// size is of a body of so many bytes, whose answers are bounded already.
func (r *request) size(path string, bytes int) size {
	of := apis[path]
	s := size{prompt: int64(bytes / bytesOfAToken)}
	if len(of.answers) == 0 {
		return s
	}
	// What is no number is refused by those behind.
	n, _ := whole("n", r.n)
	s.answers = min(min(max(n, 1), mostAnswers)*min(max(r.prompts, 1), mostAnswers), mostAnswers)
	for _, name := range of.answers {
		if given, _ := whole(name, r.answers[name]); given > 0 && (s.longest == 0 || given < s.longest) {
			s.longest = given
		}
	}
	return s
}

// held are the tokens of this cache that a request may hold at its end: its prompt once, and each of its answers, which
// are no longer than most.
func (c cache) held(s size, most int64) int64 {
	prompt, each := min(s.prompt, c.Context), int64(0)
	if s.answers > 0 {
		each = min(cmp.Or(s.longest, c.Answer), most, c.Context-prompt)
	}
	return max(prompt+s.answers*each, 1)
}

// holdsOf are the limits of what is under way that a tenant's request comes under. called: a model, by any of its names.
// tier: that which it has.
func (c *callers) holdsOf(tenant, tier, called string, s size) []hold {
	var holds []hold
	has := c.Tenants[tenant]
	if most := int64(has.Bounds["parallel_requests"]); most > 0 {
		text := fmt.Sprintf("This tenant has as many requests under way as it may, which is %d. "+
			"Try again when one has ended.", most)
		holds = append(holds, hold{set: "requests:" + tenant, most: most, takes: 1, full: noRoom(text)})
	}
	model := cmp.Or(c.Names[called], called)
	pool := model
	if own, is := has.Dedicated[model]; is {
		pool = own.Revision
	}
	of := c.Caches[pool]
	if most := int64(has.Bounds["kv_cache_share"] * float64(of.Tokens)); most > 0 {
		takes := of.held(s, of.Context)
		text := fmt.Sprintf("This request may need %d tokens of the KV cache of %s, and the requests that this tenant has "+
			"under way leave less of the %d that it may hold. Try again when one has ended, or set a shorter answer.",
			takes, model, most)
		holds = append(holds, hold{set: "cache:" + tenant + ":" + pool, most: most, takes: takes, full: noRoom(text)})
	}
	if of.Room > 0 {
		most := int64(float64(of.Room) * cmp.Or(c.Rooms[tier], 1))
		holds = append(holds, hold{
			set: "pages:" + pool, most: most, takes: of.held(s, of.Expected), full: taken(called, tier, most < of.Room),
		})
	}
	return holds
}

func noRoom(text string) *refusal {
	return &refusal{status: 429, code: "rate_limit_exceeded", text: text}
}

// taken is the answer while a model's room is. kept: whether some of it is left, for other tiers.
func taken(model, tier string, kept bool) *refusal {
	if kept {
		text := fmt.Sprintf("The room that the model '%s' has is kept for other tiers than %s now. Try again later.", model, tier)
		return noRoom(text)
	}
	text := fmt.Sprintf("The model '%s' has no room for this request in its KV cache. Try again later.", model)
	return &refusal{status: 503, code: "model_overloaded", text: text}
}
