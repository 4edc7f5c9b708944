package ledger

import (
	"math"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
)

// Span is an amount of node-time or GPU-time, in milliseconds. Nanoseconds would be
// too fine: a year of 300 nodes would not fit into 64 bits.
type Span int64

// Duration returns the amount as a duration, at most the longest there is.
func (s Span) Duration() time.Duration {
	if int64(s) > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}

	return time.Duration(s) * time.Millisecond
}

// Hours returns the amount in hours, for people.
func (s Span) Hours() float64 { return float64(s) / float64(msPerHour) }

// String writes the amount in seconds, exactly.
func (s Span) String() string { return decimal(int64(s), 3) }

// Nanos is money in billionths of a dollar: a second of a cheap node is some thousands.
type Nanos int64

// NanosOf returns an amount, rounded to the next unit.
func NanosOf(a money.Amount) Nanos {
	if a < 0 {
		return -NanosOf(-a)
	}

	return Nanos(whole(a, nanosPerDollar, math.MaxInt64))
}

// Money returns the amount rounded to millionths of a dollar.
func (n Nanos) Money() job.Money {
	if n < 0 {
		return -(-n).Money()
	}

	return job.Money(n/1000 + (n%1000+500)/1000)
}

// Dollars returns the amount in dollars, for people.
func (n Nanos) Dollars() float64 { return float64(n) / nanosPerDollar }

// Amount returns it for calculations.
func (n Nanos) Amount() money.Amount { return money.Amount(n.Dollars()) }

const nanosPerDollar = 1e9

// String writes the amount in dollars, exactly.
func (n Nanos) String() string { return decimal(int64(n), 9) }

// Millijoules is energy. A watt for a millisecond is one.
type Millijoules int64

// KWh returns the energy in kilowatt-hours, for people.
func (e Millijoules) KWh() float64 { return float64(e) / (1000 * float64(msPerHour)) }

// String writes the energy in joules, exactly.
func (e Millijoules) String() string { return decimal(int64(e), 3) }

// decimal writes a whole number of small units with the point so many digits from the right.
func decimal(n int64, digits int) string {
	sign, text := "", strconv.FormatUint(uint64(n), 10)
	if n < 0 {
		sign, text = "-", strconv.FormatUint(-uint64(n), 10)
	}

	if len(text) <= digits {
		text = strings.Repeat("0", digits+1-len(text)) + text
	}

	point := len(text) - digits
	text = text[:point] + "." + text[point:]

	return sign + strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// Amounts is what is posted.
type Amounts struct {
	NodeTime   Span        `json:"node_ms"`
	GPUTime    Span        `json:"gpu_ms"`
	NodeCost   Nanos       `json:"node_cost_nanodollars"`
	EnergyCost Nanos       `json:"energy_cost_nanodollars"`
	Energy     Millijoules `json:"energy_mj"` // with the building's share
}

// Cost returns all money.
func (a Amounts) Cost() Nanos { return a.NodeCost + a.EnergyCost }

// Account is what an interval of a node is booked to: use by a run, or one of the yard's own
// accounts.
type Account string

// The accounts.
const (
	Use       Account = "use"       // held by a run
	Idle      Account = "idle"      // available and unused
	Error     Account = "error"     // broken, silent or lost
	Foreign   Account = "foreign"   // used by processes outside the yard
	Cordoned  Account = "cordoned"  // cordoned by an operator
	Boot      Account = "boot"      // provisioned; its agent has not joined yet
	Releasing Account = "releasing" // being released
	Waste     Account = "waste"     // billed after the node was gone
)

// Accounts lists every account.
func Accounts() []Account {
	return []Account{Use, Idle, Error, Foreign, Cordoned, Boot, Releasing, Waste}
}

// Posting books what a node used in an interval to an account. Postings of the same node, From
// and To are one entry: together they are the whole node in that interval, and they are stored
// one after the other.
type Posting struct {
	Seq     uint64      `json:"seq"` // number in the ledger
	Node    id.Node     `json:"node"`
	Class   fleet.Class `json:"class"`
	GPU     string      `json:"gpu,omitempty"` // kind of the node's GPUs, "mixed" if there are several
	Lease   id.Lease    `json:"lease,omitempty"`
	Offer   string      `json:"offer,omitempty"` // of an on-demand node
	From    time.Time   `json:"from"`            // whole milliseconds, UTC
	To      time.Time   `json:"to"`              // the same as From for a charge without duration
	Account Account     `json:"account"`
	// Owner, Project and Job say who pays: the user of the node, or the owner for whom it was
	// provisioned. All are "" if the yard pays.
	Owner   id.User    `json:"owner,omitempty"`
	Project id.Project `json:"project,omitempty"`
	Job     id.Job     `json:"job,omitempty"`
	Run     id.Run     `json:"run,omitempty"` // only of the account use
	GPUs    int64      `json:"gpus_milli,omitempty"`
	Amounts
}

// Provider returns the provider of an on-demand node, "" for other nodes.
func (p *Posting) Provider() string {
	provider, _, _ := strings.Cut(p.Offer, "/")
	return provider
}

// same reports whether two postings belong to one entry.
func (p *Posting) same(q *Posting) bool {
	return p.Node == q.Node && p.From.Equal(q.From) && p.To.Equal(q.To)
}
