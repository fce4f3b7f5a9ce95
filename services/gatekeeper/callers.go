package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
)

// Keys of the directory carry an id and are hashed under a secret; those of the site's file may be of any form.
var withID = regexp.MustCompile(`^sk-([a-z2-7]{10})-[a-z2-7]{52}$`)

type digest [sha256.Size]byte

func (d *digest) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(d)) {
		return fmt.Errorf("a digest has %d hexadecimal digits, not %d", hex.EncodedLen(len(d)), len(text))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

func (d digest) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(d[:])), nil }

// key is what is known of an API key; nobody can make the key out of it.
type key struct {
	ID      string   `json:"id"`
	Digest  digest   `json:"digest"`
	Tenant  string   `json:"tenant"`
	Name    string   `json:"name"`
	Models  []string `json:"models"`  // nil: all of the tenant's
	Expires *float64 `json:"expires"` // Unix seconds; nil: never
	Revoked bool     `json:"revoked"`
}

func (k *key) works(now time.Time) bool {
	return !k.Revoked && (k.Expires == nil || float64(now.UnixMilli())/1000 < *k.Expires)
}

// tenant is as the site's file has it.
type tenant struct {
	Models  []string                   `json:"models"`
	Tier    string                     `json:"tier"`
	Limits  map[string]json.RawMessage `json:"limits"` // what Envoy's rate limit filter reads
	Bounds  map[string]float64         `json:"bounds"` // what is held here, by the keys of the site's file
	Budgets budget                     `json:"budgets"`
	Shared  bool                       `json:"shared"` // whether it shares the engines' caches with others that do
	// Overflows is whether another model may answer it, where its own has no room.
	Overflows bool `json:"overflows"`
	// Dedicated are the replicas that it has in the place of all others', by model.
	Dedicated map[string]dedicated `json:"dedicated"`
}

type site struct {
	Tenants   map[string]tenant          `json:"tenants"`
	Unlimited map[string]json.RawMessage `json:"unlimited"` // what stands for each limit that a tenant has not
	Names     map[string]string          `json:"names"`     // what a model may be called -> its own name
	Owners    map[string]string          `json:"owners"`    // model -> who owns it
	Tiers     map[string]int             `json:"tiers"`     // tier -> its priority
	Rooms     map[string]float64         `json:"rooms"`     // tier -> the share of a model's room that it may fill, below 1
	Contexts  map[string]int64           `json:"contexts"`  // model -> tokens of a prompt with its answer
	Canaries  map[string]canary          `json:"canaries"`  // model -> the second revision that it has
	Adapters  map[string]adapter         `json:"adapters"`  // those of the names that are adapters
	Overflows map[string]overflow        `json:"overflows"` // model -> where requests go that it has no room for
	Pools     map[string]pool            `json:"pools"`     // of these models, on both sides
	Caches    map[string]cache           `json:"caches"`    // by revision, of which a tenant may hold a share only
}

// adapter is small weights beside a model's own, which clients call by a name of its own.
type adapter struct {
	Model   string   `json:"model"`
	Tenants []string `json:"tenants"` // nil: all that may call the model
}

func (a adapter) opensTo(tenant string) bool {
	return a.Tenants == nil || slices.Contains(a.Tenants, tenant)
}

// grant is what Envoy is answered about a tenant, made once for all of its keys.
type grant struct {
	tenant   string
	metadata map[string]*structpb.Value
	models   string // body of GET /v1/models
}

// caller is a key, and what it opens.
type caller struct {
	*grant
	key    *key
	client string
}

// callers are all keys that work. They are replaced while requests are answered: as a whole when the files change, and
// those of the directory when it has others.
type callers struct {
	site
	pepper  []byte
	limits  map[string]map[string]*structpb.Value
	whole   map[string]*grant // by tenant, of a key for all of its models
	static  map[digest]*caller
	ordered atomic.Pointer[map[string]*caller] // by id
	// complete is whether the directory's keys are known, of whenever that was.
	complete atomic.Bool
}

func loadCallers(tenantsFile, keysFile string, pepper []byte) (*callers, error) {
	var declared site
	if err := readJSON(tenantsFile, &declared); err != nil {
		return nil, err
	}
	var keys struct {
		Keys []*key `json:"keys"`
	}
	if err := readJSON(keysFile, &keys); err != nil {
		return nil, err
	}
	c := &callers{
		site:   declared,
		pepper: pepper,
		limits: map[string]map[string]*structpb.Value{},
		whole:  map[string]*grant{},
		static: map[digest]*caller{},
	}
	for name, t := range declared.Tenants {
		all := maps.Clone(declared.Unlimited)
		if all == nil {
			all = map[string]json.RawMessage{}
		}
		maps.Copy(all, t.Limits)
		c.limits[name] = map[string]*structpb.Value{}
		for limit, raw := range all {
			value := &structpb.Value{}
			if err := value.UnmarshalJSON(raw); err != nil {
				return nil, fmt.Errorf("%s: limit %s of tenant %s: %w", tenantsFile, limit, name, err)
			}
			c.limits[name][limit] = value
		}
		c.whole[name] = c.grant(name, t, nil)
	}
	for _, k := range keys.Keys {
		known := c.caller(k)
		if known == nil {
			return nil, fmt.Errorf("%s: the key %s is of the tenant %q, which %s has not", keysFile, k.Name, k.Tenant, tenantsFile)
		}
		c.static[k.Digest] = known
	}
	return c, nil
}

func readJSON(file string, into any) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// caller is nil for a tenant that the site has not: the file decides who may call.
func (c *callers) caller(k *key) *caller {
	t, known := c.Tenants[k.Tenant]
	if !known {
		return nil
	}
	granted := c.whole[k.Tenant]
	if k.Models != nil {
		granted = c.grant(k.Tenant, t, k.Models)
	}
	if own := c.limitsOf(k); len(own) > 0 {
		narrowed := *granted
		narrowed.metadata = maps.Clone(granted.metadata)
		maps.Copy(narrowed.metadata, own)
		granted = &narrowed
	}
	return &caller{key: k, client: k.Tenant + "." + k.Name, grant: granted}
}

// limitsOf are those of the key itself, which its tenant's have by its name.
func (c *callers) limitsOf(k *key) map[string]*structpb.Value {
	own := map[string]*structpb.Value{}
	for limit, value := range c.limits[k.Tenant] {
		if rest, of := strings.CutPrefix(limit, "keys."+k.Name+"."); of {
			own["key."+rest] = value
		}
	}
	return own
}

// grant is what a tenant has, or what one of its keys has that is for these models only.
func (c *callers) grant(name string, t tenant, only []string) *grant {
	allowed := map[string]*structpb.Value{}
	for _, model := range t.Models {
		if only == nil || slices.Contains(only, model) {
			allowed[model] = structpb.NewBoolValue(true)
		}
	}
	for named, a := range c.Adapters {
		if allowed[a.Model] != nil && a.opensTo(name) {
			allowed[named] = structpb.NewBoolValue(true)
		}
	}
	type card struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int    `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	cards := []card{}
	for _, called := range slices.Sorted(maps.Keys(c.Names)) {
		model, own := c.Names[called], c.Names[called]
		if _, is := c.Adapters[called]; is {
			own = called
		}
		if allowed[own] != nil {
			cards = append(cards, card{ID: called, Object: "model", OwnedBy: c.Owners[model]})
		}
	}
	// Nothing in it can fail to be written.
	list, _ := json.Marshal(map[string]any{"object": "list", "data": cards})
	metadata := maps.Clone(c.limits[name])
	metadata["models"] = structpb.NewStructValue(&structpb.Struct{Fields: allowed})
	if t.Tier != "" {
		metadata["tier"] = structpb.NewStringValue(t.Tier)
	}
	metadata["body"] = structpb.NewStructValue(&structpb.Struct{Fields: c.aboutBodies(name, t)})
	return &grant{tenant: name, metadata: metadata, models: string(list)}
}

// aboutBodies is what the hook needs to know of a tenant.
func (c *callers) aboutBodies(name string, t tenant) map[string]*structpb.Value {
	wishes := map[string]*structpb.Value{}
	own := c.Tiers[t.Tier] // without a tier its priority is 0
	priorities := map[string]*structpb.Value{"": structpb.NewNumberValue(float64(own))}
	lowest := t.Tier
	for tier, priority := range c.Tiers {
		if priority > own {
			continue
		}
		wishes[tier] = structpb.NewStringValue(tier)
		priorities[tier] = structpb.NewNumberValue(float64(priority))
		if priority < c.Tiers[lowest] || (priority == c.Tiers[lowest] && tier < lowest) {
			lowest = tier
		}
	}
	if lowest != "" {
		// OpenAI's name for what may wait.
		wishes["flex"] = structpb.NewStringValue(lowest)
	}
	about := map[string]*structpb.Value{
		"tenant": structpb.NewStringValue(name),
		"shared": structpb.NewBoolValue(t.Shared),
		"tiers":  structpb.NewStructValue(&structpb.Struct{Fields: wishes}),
		// Of a tier that a request may have; under no name, the tenant's own.
		"priorities": structpb.NewStructValue(&structpb.Struct{Fields: priorities}),
	}
	if t.Overflows {
		about["overflows"] = structpb.NewBoolValue(true)
	}
	for _, bound := range []string{"max_answer_tokens", "max_prompt_tokens"} {
		if most, has := t.Bounds[bound]; has {
			about[bound] = structpb.NewNumberValue(most)
		}
	}
	return about
}

// replace puts these keys of the directory in the place of all that it had before.
func (c *callers) replace(keys map[string]*key) {
	ordered := make(map[string]*caller, len(keys))
	for id, k := range keys {
		if known := c.caller(k); known != nil {
			ordered[id] = known
		}
	}
	c.ordered.Store(&ordered)
}

// find is the caller whose key this text is; nil for none that works now.
func (c *callers) find(text string, now time.Time) *caller {
	var made digest
	if parts := withID.FindStringSubmatch(text); parts != nil {
		if found := (*c.ordered.Load())[parts[1]]; found != nil {
			mac := hmac.New(sha256.New, c.pepper)
			mac.Write([]byte(text))
			mac.Sum(made[:0])
			if !hmac.Equal(made[:], found.key.Digest[:]) || !found.key.works(now) {
				return nil
			}
			return found
		}
	}
	// A key of the site's file has 256 random bits, so its plain digest gives nothing away.
	made = sha256.Sum256([]byte(text))
	return c.static[made]
}
