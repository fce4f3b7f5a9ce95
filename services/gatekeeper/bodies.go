package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// terms are what holds for the bodies of one caller's requests.
type terms struct {
	salt         string // the tenant's own part of every prefix cache; empty: it shares one
	answerTokens int64  // most of all answers to one request; 0: the engine's own limit
	promptTokens int64  // most, taken as a token for 4 bytes of the body; 0: the engine's own limit
	// priority is that of the tier which a request has with this wish: the higher, the sooner.
	priority func(wish string) int64
}

// refusal is what a client gets in the place of an answer.
type refusal struct {
	status     int
	code, text string
	of         string // of several that have the code, for the log
	noPrompt   bool   // the directory has no such prompt, as far as it is known
	after      int64  // seconds in which nothing else can be the answer; 0: it may be at any time
}

func (r *refusal) Error() string { return r.text }

// api is what is particular to the bodies of a path.
type api struct {
	// answers are the fields by which a client bounds an answer; the first one is set where it has set none.
	answers []string
	// usage: whether a stream of it counts its tokens only for a client that asks.
	usage bool
	// unsalted: the AI gateway writes these bodies for the engine, and drops a salt and a priority (v1.0.0,
	// internal/translator/anthropic_openai.go).
	unsalted bool
	// ranks: an engine reads all but the documents again with each of them (vLLM 0.32, entrypoints/pooling/scoring).
	ranks bool
}

// Of other paths that take JSON, nothing is known but what must not be in it.
var apis = map[string]api{
	"/v1/chat/completions":   {answers: []string{"max_completion_tokens", "max_tokens"}, usage: true},
	"/v1/completions":        {answers: []string{"max_tokens"}, usage: true},
	"/v1/responses":          {answers: []string{"max_output_tokens"}},
	"/anthropic/v1/messages": {answers: []string{"max_tokens"}, unsalted: true},
	"/cohere/v2/rerank":      {ranks: true},
}

// What only the platform decides; a client's own is dropped. Those with "transfer" name the host that vLLM fetches a
// prompt's cache from (vLLM 0.32, v1/request.py).
var dropped = []string{
	"priority", "cache_salt", "service_tier",
	"kv_transfer_params", "ec_transfer_params", "vllm_xargs", // which may have the two before
	"stream_interval",          // many tokens in one event would be counted as one
	"request_id", "session_id", // an engine ends all requests of an id together
}

// To find one that comes twice, the parser remembers each name, some 60 bytes.
const mostNames = 50_000

// What the picker reads, too. Go's JSON takes a name in any case, and vLLM in small letters only.
var watched = []string{"model", "stream", "stream_options", "messages", "input", "prompt", "n"}

// request is a body as far as anything is decided by it.
type request struct {
	out     bytes.Buffer
	answers map[string]jsontext.Value
	n       jsontext.Value
	prompts int64
	ranked  int64  // documents
	listed  int64  // bytes of all of them
	wish    string // service_tier
	stream  bool
	options jsontext.Value // stream_options
	model   string
	modelAt [2]int // where it begins and ends in out
	session [len(sessions)]string
	tied    bool // it says something that its model alone understands
}

// Tokens of one vocabulary, and answers that one model's engines keep.
var tied = []string{
	"previous_response_id", "logit_bias", "stop_token_ids", "allowed_token_ids", "prompt_token_ids",
}

// What a client may name a session by, the narrowest first.
var sessions = [...]string{"prompt_cache_key", "safety_identifier", "user", "metadata"}

// asked is what decides about the revision that serves it.
func (r *request) asked() asked {
	return asked{model: r.model, session: cmp.Or(r.session[:]...)}
}

// rewritten is the body as the engine gets it, and what was asked for. An error is a *refusal.
func rewritten(path string, body []byte, t terms) ([]byte, *request, error) {
	of := apis[path]
	if of.unsalted && t.salt != "" {
		text := "This API cannot keep this tenant's prompts apart from others in the engine's cache. Use " +
			"/v1/chat/completions, or ask the operator for prefix_cache: shared."
		return nil, nil, &refusal{status: 403, code: "not_isolated", text: text}
	}
	if t.promptTokens > 0 && int64(len(body))/bytesOfAToken > t.promptTokens {
		text := fmt.Sprintf("This request has about %d tokens, a token for %d bytes, and this tenant's limit is %d.",
			len(body)/bytesOfAToken, bytesOfAToken, t.promptTokens)
		return nil, nil, &refusal{status: 400, code: "context_length_exceeded", text: text}
	}
	got, err := parse(body, of)
	if err != nil {
		return nil, nil, err
	}
	if t.answerTokens > 0 && len(of.answers) > 0 {
		if err := got.bound(of.answers, t.answerTokens); err != nil {
			return nil, nil, err
		}
	}
	for _, name := range of.answers {
		if value, given := got.answers[name]; given {
			got.add(name, value)
		}
	}
	if got.options != nil || (of.usage && got.stream) {
		got.add("stream_options", got.streamOptions(of.usage))
	}
	if t.salt != "" {
		salt, _ := jsontext.AppendQuote(nil, t.salt)
		got.add("cache_salt", salt)
	}
	// In an engine the smallest goes first. Without the field it is 0.
	if priority := t.priority(got.wish); priority != 0 && !of.unsalted {
		got.add("priority", fmt.Appendf(nil, "%d", -priority))
	}
	got.out.WriteByte('}')
	return got.out.Bytes(), got, nil
}

// parse takes one JSON object in which no name comes twice at any depth, and leaves out what a client may not set.
func parse(body []byte, of api) (*request, error) {
	if names(body) > mostNames {
		return nil, invalid(fmt.Sprintf("The body has more than %d fields.", mostNames))
	}
	got := &request{answers: map[string]jsontext.Value{}, prompts: 1}
	got.out.Grow(len(body) + 128)
	decoder := jsontext.NewDecoder(bytes.NewBuffer(body))
	if decoder.PeekKind() != '{' {
		return nil, invalid("The body is not a JSON object.")
	}
	if _, err := decoder.ReadToken(); err != nil {
		return nil, notStrict(err)
	}
	got.out.WriteByte('{')
	for decoder.PeekKind() != '}' {
		token, err := decoder.ReadToken()
		if err != nil {
			return nil, notStrict(err)
		}
		name := token.String()
		value, err := decoder.ReadValue()
		if err != nil {
			return nil, notStrict(err)
		}
		if err := got.take(name, value, of); err != nil {
			return nil, err
		}
	}
	if _, err := decoder.ReadToken(); err != nil {
		return nil, notStrict(err)
	}
	if _, err := decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, invalid("Something follows the JSON object.")
	}
	return got, nil
}

// names counts the colons outside of texts.
func names(body []byte) int {
	count, text, escaped := 0, false, false
	for _, char := range body {
		switch {
		case escaped:
			escaped = false
		case text && char == '\\':
			escaped = true
		case char == '"':
			text = !text
		case char == ':' && !text:
			count++
		}
	}
	return count
}

func (r *request) take(name string, value jsontext.Value, of api) error {
	for _, known := range [][]string{dropped, watched, of.answers} {
		for _, other := range known {
			if name != other && strings.EqualFold(name, other) {
				return invalid(fmt.Sprintf("The field %q is written %q.", name, other))
			}
		}
	}
	switch {
	case slices.Contains(of.answers, name):
		r.answers[name] = value.Clone()
		return nil
	case name == "service_tier":
		// Any other value than a text asks for nothing.
		_ = json.Unmarshal(value, &r.wish)
		return nil
	case slices.Contains(dropped, name):
		return nil
	case name == "model":
		// What is no text is refused by those behind.
		_ = json.Unmarshal(value, &r.model)
		r.add(name, value)
		r.modelAt = [2]int{r.out.Len() - len(value), r.out.Len()}
		return nil
	case slices.Contains(tied, name):
		r.tied = r.tied || value.Kind() != 'n'
	case slices.Contains(sessions[:], name):
		r.session[slices.Index(sessions[:], name)] = sessionIn(value)
	case name == "stream":
		// The AI gateway takes no other value for it.
		r.stream = value.Kind() == 't'
	case name == "stream_options":
		r.options = value.Clone()
		return nil
	case name == "n":
		r.n = value.Clone()
	case name == "documents" && of.ranks:
		r.ranked, r.listed = prompts(value), int64(len(value))
	case name == "prompt":
		r.prompts = prompts(value)
		r.tied = r.tied || ofTokens(value)
	}
	r.add(name, value)
	return nil
}

// sessionIn is a text, or what Anthropic's clients write as the user of a request's metadata.
func sessionIn(value jsontext.Value) string {
	var text string
	var of struct {
		User string `json:"user_id"`
	}
	if value.Kind() == '{' {
		_ = json.Unmarshal(value, &of)
	} else {
		_ = json.Unmarshal(value, &text)
	}
	return cmp.Or(text, of.User)
}

// streamOptions has the client's own, and asks for the count of tokens in a stream. Without it a stream costs nothing: the
// AI gateway asks for one in chats alone (v1.0.0, internal/endpointspec/endpointspec.go). What is no object is refused by
// those behind.
func (r *request) streamOptions(usage bool) jsontext.Value {
	given := map[string]jsontext.Value{}
	if !usage || !r.stream || (r.options != nil && json.Unmarshal(r.options, &given) != nil) {
		return r.options
	}
	if given == nil { // null
		given = map[string]jsontext.Value{}
	}
	given["include_usage"] = jsontext.Value("true")
	// Nothing in it can fail to be written.
	made, _ := json.Marshal(given)
	return made
}

func (r *request) add(name string, value jsontext.Value) {
	if r.out.Len() > 1 {
		r.out.WriteByte(',')
	}
	quoted, _ := jsontext.AppendQuote(nil, name)
	r.out.Write(quoted)
	r.out.WriteByte(':')
	r.out.Write(value)
}

// bound lowers what the client allows each of its answers, so that all of them together are no longer than most.
func (r *request) bound(fields []string, most int64) error {
	each := most
	if r.n != nil && r.n.Kind() != 'n' {
		n, err := whole("n", r.n)
		if err != nil {
			return err
		}
		each /= max(n, 1)
	}
	if each /= r.prompts; each == 0 {
		return invalid(fmt.Sprintf("The request asks for more answers than the %d tokens that this tenant may have.", most))
	}
	bounded := false
	for _, name := range fields {
		value, given := r.answers[name]
		if !given || value.Kind() == 'n' {
			continue
		}
		asked, err := whole(name, value)
		if err != nil {
			return err
		}
		if asked > each {
			r.answers[name] = fmt.Appendf(nil, "%d", each)
		}
		bounded = true
	}
	if !bounded {
		r.answers[fields[0]] = fmt.Appendf(nil, "%d", each)
	}
	return nil
}

// whole reads a number as the engine's parser does, for which 5.0 is 5. It takes "5", too, which is refused here.
func whole(name string, value jsontext.Value) (int64, error) {
	var number float64
	if err := json.Unmarshal(value, &number); err != nil || number != math.Trunc(number) || math.Abs(number) > 1<<53 {
		return 0, invalid(fmt.Sprintf("%s is not a whole number.", name))
	}
	return int64(number), nil
}

// prompts counts those of a completion: a text, tokens, or a list of either.
func prompts(value jsontext.Value) int64 {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(value))
	if decoder.PeekKind() != '[' {
		return 1
	}
	_, _ = decoder.ReadToken()
	if decoder.PeekKind() == '0' {
		return 1
	}
	count := int64(0)
	for decoder.PeekKind() != ']' && decoder.SkipValue() == nil {
		count++
	}
	return max(count, 1)
}

// ofTokens is whether a completion's prompt is not a text.
func ofTokens(value jsontext.Value) bool {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(value))
	for decoder.PeekKind() == '[' {
		_, _ = decoder.ReadToken()
	}
	return decoder.PeekKind() == '0'
}

func invalid(text string) *refusal { return &refusal{status: 400, code: "invalid_request", text: text} }

func notStrict(err error) *refusal {
	var wrong *jsontext.SyntacticError
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &wrong):
		return invalid(fmt.Sprintf("The field %s comes twice.", wrong.JSONPointer))
	case errors.As(err, &wrong):
		return invalid(fmt.Sprintf("The body is not valid JSON, at byte %d.", wrong.ByteOffset))
	}
	return invalid("The body is not valid JSON.")
}
