package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	ledgerHeader = "x-ledger-token"
	// What is used goes beyond a budget by what is admitted within it.
	spentEvery = 5 * time.Second
	// A ledger adds up a whole month. The first decision waits this long for it.
	spentPatience = 5 * time.Second
	millionths    = 1_000_000
)

var (
	lastSpent = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "gatekeeper_budgets_last_answer_timestamp_seconds",
		Help: "When the ledger last answered what tenants have used. 0: never, and no budget is held.",
	})
	budgetUsed = prometheus.NewDesc(
		"gatekeeper_budget_used_ratio", "Share of a budget of this month that is used.", []string{"tenant", "budget"}, nil,
	)
)

// budget is what a tenant may use in a calendar month, UTC.
type budget struct {
	Spend  *float64 `json:"spend_per_month"` // in the ledger's currency
	Tokens *int64   `json:"tokens_per_month"`
}

// spent is what the ledger has of the running month.
type spent struct {
	Month    string          `json:"month"`
	Ends     int64           `json:"ends"` // Unix seconds
	Currency string          `json:"currency"`
	Tenants  map[string]used `json:"tenants"`
}

type used struct {
	Cost   int64 `json:"cost_millionths"`
	Tokens int64 `json:"tokens"`
}

// share is of one budget, in millionths of the currency or in tokens.
type share struct {
	budget     string
	used, most int64
	text       func(int64) string
}

// budgets refuse tenants that have used what they may in a month. Without the ledger its last answer stays in force, for
// as long as the month that it is of.
type budgets struct {
	callers           *atomic.Pointer[callers]
	ledger, tokenFile string
	client            *http.Client
	last              atomic.Pointer[spent]
}

func newBudgets(ledger, tokenFile string, callers *atomic.Pointer[callers]) *budgets {
	b := &budgets{ledger: ledger, tokenFile: tokenFile, callers: callers, client: &http.Client{Timeout: spentPatience}}
	prometheus.MustRegister(b)
	return b
}

// follow asks at once, and from then on in the background.
func (b *budgets) follow(ctx context.Context) {
	heard := b.ask(ctx, true)
	go func() {
		ticker := time.NewTicker(spentEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				heard = b.ask(ctx, heard)
			}
		}
	}()
}

// ask is whether the ledger answered. heard: whether it did the last time.
func (b *budgets) ask(ctx context.Context, heard bool) bool {
	got, err := b.answer(ctx)
	if err != nil {
		if heard {
			slog.Warn("the ledger does not answer; what it last had of this month stays in force", "error", err)
		}
		return false
	}
	b.last.Store(got)
	lastSpent.SetToCurrentTime()
	return true
}

func (b *budgets) answer(ctx context.Context) (*spent, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.ledger+"/v1/spent", nil)
	if err != nil {
		return nil, err
	}
	// The Secret that it is from may be made again.
	token, err := secret(b.tokenFile, true)
	if err != nil {
		return nil, err
	}
	request.Header.Set(ledgerHeader, string(token))
	response, err := b.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", b.ledger, response.Status)
	}
	var got spent
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
		return nil, err
	}
	if got.Month == "" || got.Ends == 0 {
		return nil, errors.New("the answer is of no month")
	}
	return &got, nil
}

// shares are those of a tenant's budgets now. Of a month that is over, nothing is known.
func (b *budgets) shares(tenant string, now time.Time) (*spent, []share) {
	last := b.last.Load()
	if last == nil || now.Unix() >= last.Ends {
		return nil, nil
	}
	may, has := b.callers.Load().Tenants[tenant].Budgets, last.Tenants[tenant]
	var all []share
	if may.Spend != nil {
		money := func(amount int64) string { return moneyText(amount) + " " + last.Currency }
		all = append(all, share{"spend_per_month", has.Cost, int64(math.Round(*may.Spend * millionths)), money})
	}
	if may.Tokens != nil {
		tokens := func(count int64) string { return strconv.FormatInt(count, 10) + " tokens" }
		all = append(all, share{"tokens_per_month", has.Tokens, *may.Tokens, tokens})
	}
	return last, all
}

// refusal is nil for a tenant that may go on.
func (b *budgets) refusal(tenant string, now time.Time) *refusal {
	if b == nil {
		return nil
	}
	last, all := b.shares(tenant, now)
	for _, s := range all {
		if s.used >= s.most {
			ends := time.Unix(last.Ends, 0)
			return &refusal{
				status: http.StatusTooManyRequests,
				code:   "insufficient_quota",
				text: fmt.Sprintf("This tenant has used its %s of %s: %s in %s. It may go on at %s.",
					s.budget, s.text(s.most), s.text(s.used), last.Month, ends.UTC().Format(time.RFC3339)),
				of:    s.budget,
				after: int64(math.Ceil(ends.Sub(now).Seconds())),
			}
		}
	}
	return nil
}

// moneyText has all digits, and at least two behind the point.
func moneyText(amount int64) string {
	digits := strings.TrimRight(fmt.Sprintf("%06d", amount%millionths), "0")
	return fmt.Sprintf("%d.%s", amount/millionths, digits+strings.Repeat("0", max(0, 2-len(digits))))
}

func (b *budgets) Describe(to chan<- *prometheus.Desc) { to <- budgetUsed }

func (b *budgets) Collect(to chan<- prometheus.Metric) {
	now := time.Now()
	for tenant := range b.callers.Load().Tenants {
		_, all := b.shares(tenant, now)
		for _, s := range all {
			of := float64(s.used) / float64(s.most)
			to <- prometheus.MustNewConstMetric(budgetUsed, prometheus.GaugeValue, of, tenant, s.budget)
		}
	}
}
