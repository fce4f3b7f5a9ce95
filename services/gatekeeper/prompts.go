package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// template is one version of a prompt, as the directory has it.
type template struct {
	Tenant  string  `json:"tenant"`
	ID      string  `json:"id"`
	Version int     `json:"version"`
	Text    *string `json:"text"` // nil: it was removed
	InUse   bool    `json:"in_use"`
}

// place is where a template is found; version 0 is the one in use.
type place struct {
	tenant, id string
	version    int
}

// book has all templates. It is replaced as a whole, while requests read it.
type book map[place]template

// with is the book after these changes.
func (b book) with(changed []template) book {
	next := maps.Clone(b)
	if next == nil {
		next = book{}
	}
	for _, t := range changed {
		at, current := place{t.Tenant, t.ID, t.Version}, place{t.Tenant, t.ID, 0}
		if t.Text == nil {
			delete(next, at)
		} else {
			next[at] = t
		}
		if next[current].Version == t.Version && !t.InUse {
			delete(next, current)
		}
	}
	// The version before and the next one change together, in any order.
	for _, t := range changed {
		if t.InUse && t.Text != nil {
			next[place{t.Tenant, t.ID, 0}] = t
		}
	}
	return next
}

// all are the templates, each once.
func (b book) all() []template {
	all := []template{}
	for at, t := range b {
		if at.version != 0 {
			all = append(all, t)
		}
	}
	return all
}

// As services/directory/prompts.py has it.
var variable = regexp.MustCompile(`\{\{([A-Za-z_][A-Za-z0-9_]{0,63})\}\}`)

// The front door takes no larger body, and the picker no larger message: a value may come many times in a template.
const mostExpanded = 4 << 20

// spoken is how a path takes a template: a text that goes before what the client sends, or in the place of it.
type spoken struct {
	// before is a field of its own for the text; empty: it becomes the first message of content.
	before, content string
}

var prompted = map[string]spoken{
	"/v1/chat/completions": {content: "messages"},
	"/v1/responses":        {before: "instructions", content: "input"},
}

// expanded is the body with the template's text in the place of a field `prompt` that names one, and the name under which
// a log finds it; empty: there is none, and the body is as it was. An error is a *refusal.
func (b book) expanded(path, tenant string, body []byte) ([]byte, string, error) {
	speaks, takes := prompted[path]
	if !takes || !bytes.Contains(body, []byte(`"prompt"`)) || names(body) > mostNames {
		return body, "", nil
	}
	var fields []jsontext.Value // names and values by turns
	asked, given := -1, map[string]int{}
	decoder := jsontext.NewDecoder(bytes.NewBuffer(body))
	if token, err := decoder.ReadToken(); err != nil || token.Kind() != '{' {
		return body, "", nil
	}
	for decoder.PeekKind() != '}' {
		name, err := decoder.ReadToken()
		if err != nil {
			return body, "", nil // it is refused where all bodies are read
		}
		text := name.String()
		value, err := decoder.ReadValue()
		if err != nil {
			return body, "", nil
		}
		quoted, _ := jsontext.AppendQuote(nil, text)
		if text == "prompt" && value.Kind() == '{' {
			asked = len(fields)
		}
		given[text] = len(fields)
		fields = append(fields, quoted, value.Clone())
	}
	if _, err := decoder.ReadToken(); err != nil || asked < 0 || len(bytes.TrimSpace(body[decoder.InputOffset():])) > 0 {
		return body, "", nil
	}
	text, named, err := b.text(tenant, fields[asked+1], mostExpanded-len(body))
	if err != nil {
		return nil, "", err
	}
	fields = slices.Delete(fields, asked, asked+2)
	value := func(name string) *jsontext.Value {
		at, is := given[name]
		if !is {
			return nil
		}
		if at > asked {
			at -= 2
		}
		return &fields[at+1]
	}
	if fields, err = speaks.put(text, fields, value); err != nil {
		return nil, "", err
	}
	size := 1
	for _, part := range fields {
		size += len(part) + 1
	}
	if size > mostExpanded {
		return nil, "", tooLong(named)
	}
	var out bytes.Buffer
	out.Grow(size)
	out.WriteByte('{')
	for at := 0; at < len(fields); at += 2 {
		if at > 0 {
			out.WriteByte(',')
		}
		out.Write(fields[at])
		out.WriteByte(':')
		out.Write(fields[at+1])
	}
	out.WriteByte('}')
	return out.Bytes(), named, nil
}

// put adds the text to a body's fields. Where the client sends nothing else, the text is what it asks.
func (s spoken) put(text string, fields []jsontext.Value, value func(string) *jsontext.Value) ([]jsontext.Value, error) {
	quoted, err := jsontext.AppendQuote(nil, text)
	if err != nil {
		return nil, invalid("A variable of the prompt is not a text.")
	}
	content := value(s.content)
	if content != nil && content.Kind() == 'n' {
		return nil, invalid(fmt.Sprintf("%s is null. Leave it out, and the prompt is all that the model is asked.", s.content))
	}
	set := func(name string, to jsontext.Value) {
		if old := value(name); old != nil {
			*old = to
			return
		}
		fields = append(fields, jsontext.Value(strconv.Quote(name)), to)
	}
	message := func(role string) jsontext.Value { return fmt.Appendf(nil, `{"role":"%s","content":%s}`, role, quoted) }
	switch {
	case s.before != "":
		if own := value(s.before); own != nil && own.Kind() != 'n' {
			return nil, invalid(fmt.Sprintf("The request has %s beside a prompt, which gives them. Leave one out.", s.before))
		}
		if content == nil {
			set(s.content, quoted)
		} else {
			set(s.before, quoted)
		}
	case content == nil:
		set(s.content, slices.Concat([]byte("["), message("user"), []byte("]")))
	case content.Kind() != '[':
		return nil, invalid(fmt.Sprintf("%s is not a list.", s.content))
	default:
		rest := bytes.TrimSpace((*content)[1:])
		separator := ","
		if bytes.HasPrefix(rest, []byte("]")) {
			separator = ""
		}
		set(s.content, slices.Concat([]byte("["), message("system"), []byte(separator), rest))
	}
	return fields, nil
}

func noPrompt(text string) *refusal {
	refused := invalid(text)
	refused.noPrompt = true
	return refused
}

// text is that of the prompt that a tenant asks for, with its variables in it, and its name with its version.
func (b book) text(tenant string, asked jsontext.Value, most int) (text, named string, err error) {
	var given struct {
		ID        string                     `json:"id"`
		Version   *string                    `json:"version"`
		Variables map[string]json.RawMessage `json:"variables"`
	}
	if err := json.Unmarshal(asked, &given); err != nil || given.ID == "" {
		return "", "", invalid("prompt is not of the form {\"id\": TEXT, \"version\": TEXT, \"variables\": {NAME: TEXT}}.")
	}
	at := place{tenant: tenant, id: given.ID}
	if given.Version != nil {
		// A version of another form is none.
		if at.version, _ = strconv.Atoi(*given.Version); at.version < 1 || strconv.Itoa(at.version) != *given.Version {
			at.version = -1
		}
	}
	known, is := b[at]
	if !is && given.Version != nil {
		return "", "", noPrompt(fmt.Sprintf("This tenant has no version %.40q of the prompt %.40q.", *given.Version, given.ID))
	}
	if !is {
		return "", "", noPrompt(fmt.Sprintf("This tenant has no prompt %.40q.", given.ID))
	}
	named = fmt.Sprintf("%s@%d", known.ID, known.Version)
	values, missing := map[string]string{}, []string{}
	size := len(*known.Text)
	for _, match := range variable.FindAllStringSubmatch(*known.Text, -1) {
		name := match[1]
		if _, read := values[name]; !read {
			raw, is := given.Variables[name]
			var value *string
			if is && (json.Unmarshal(raw, &value) != nil || value == nil) {
				return "", "", invalid(fmt.Sprintf("The variable %q of the prompt %s is not a text.", name, named))
			}
			if !is {
				if !slices.Contains(missing, name) {
					missing = append(missing, name)
				}
				continue
			}
			values[name] = *value
		}
		if size += len(values[name]); size > most {
			return "", "", tooLong(named)
		}
	}
	if len(missing) > 0 {
		return "", "", invalid(fmt.Sprintf("The prompt %s needs variables that are missing: %s.", named, strings.Join(missing, ", ")))
	}
	return variable.ReplaceAllStringFunc(*known.Text, func(name string) string {
		return values[name[2:len(name)-2]]
	}), named, nil
}

func tooLong(named string) error {
	return invalid(fmt.Sprintf("With its variables, the prompt %s makes a body of more than %d bytes.", named, mostExpanded))
}
