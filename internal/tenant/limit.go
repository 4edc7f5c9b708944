package tenant

import (
	"math"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Subject is whose use a limit counts.
type Subject struct {
	User    id.User    `json:"user,omitempty"`
	Project id.Project `json:"project,omitempty"`
	// Each says that the limit holds for every user, or project, by itself that has none of its own.
	Each string `json:"each,omitempty"` // "user" or "project"
}

// String names the subject: user/ann, project/vision, each/user.
func (s Subject) String() string {
	switch {
	case s.User != "":
		return "user/" + string(s.User)
	case s.Project != "":
		return "project/" + string(s.Project)
	}
	return "each/" + s.Each
}

// Period is how long use is added up before it starts again from nothing.
type Period string

// The periods, each beginning at midnight UTC; weeks on Monday.
const (
	Day   Period = "day"
	Week  Period = "week"
	Month Period = "month"
)

// Periods lists every period.
func Periods() []Period { return []Period{Day, Week, Month} }

// Begin returns when the period began that this time is in.
func (p Period) Begin(t time.Time) time.Time {
	t = t.UTC()
	year, month, day := t.Date()
	switch p {
	case Week:
		day -= (int(t.Weekday()) + 6) % 7
	case Month:
		day = 1
	case Day:
	}
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// End returns when that period ends.
func (p Period) End(t time.Time) time.Time {
	begin := p.Begin(t)
	switch p {
	case Week:
		return begin.AddDate(0, 0, 7)
	case Month:
		return begin.AddDate(0, 1, 0)
	case Day:
	}
	return begin.AddDate(0, 0, 1)
}

// AtLimit is what happens when money or GPU-hours of a period are used up.
type AtLimit string

// What happens at a limit. Nothing new that costs rent starts at any of them but warn.
const (
	LimitWarn      AtLimit = "warn"      // people are told, and all goes on
	LimitAsk       AtLimit = "ask"       // nothing new starts until the limit is raised; what runs goes on
	LimitDowngrade AtLimit = "downgrade" // what costs rent saves itself and goes on where no rent is paid
	LimitStop      AtLimit = "stop"      // what runs saves itself, stops, and waits for the next period or a higher limit
)

// LimitActions lists what may happen at a limit.
func LimitActions() []AtLimit { return []AtLimit{LimitWarn, LimitAsk, LimitDowngrade, LimitStop} }

// Limit is a quota and a budget: what one researcher or project may have at once and
// in a period. A zero number is no limit.
type Limit struct {
	Subject  Subject
	Seq      uint64
	GPUs     int       // at once
	Nodes    int       // on-demand nodes at once
	GPUHours float64   // in a period
	Money    job.Money // in a period: rent and energy
	Period   Period
	At       AtLimit
	// Borrow lets jobs have more GPUs than GPUs while nobody else waits for them.
	// They are the first to give them back.
	Borrow  bool
	WarnAt  float64 // share of a period's limit from which people are warned; 0 means 0.8
	Removed bool
}

// Allowance is what a job may still take by all limits that bind it.
type Allowance struct {
	GPUs     int     // more at once; NoLimit if that is not limited
	Part     float64 // of one GPU, besides: what is left for a share
	Nodes    int     // more on-demand nodes at once; NoLimit if that is not limited
	Money    float64 // more in this period, after what runs is paid; infinite if that is not limited
	GPUHours float64 // the same
	Borrow   bool    // GPUs beyond may be borrowed while nobody else waits
	Ceiling  int     // GPUs with what may be borrowed; NoLimit if that is not limited
	NoRent   bool    // only where no rent is paid: the budget says downgrade
	Hold     string  // why nothing may start at all, in a sentence; "" if it may
	Bound    string  // the limit that binds first, in words: "ann's limit of 4 GPUs at once"
	By       Bounds  // the one that binds each number
}

// Bounds names the limits that bind the numbers of an allowance, "" where none does.
type Bounds struct {
	GPUs     string
	Nodes    string
	Money    string // and NoRent
	GPUHours string
}

// Affords reports whether a job may go where it costs so much rent per hour for so
// many hours. Where no rent is paid it always may. Of a job of unknown length, with
// no hours, it is asked only that something is left.
func (a Allowance) Affords(rentPerHour, hours float64) bool {
	switch {
	case a.Hold != "":
		return false
	case rentPerHour <= 0:
		return true
	case a.NoRent:
		return false
	case hours <= 0:
		return a.Money > 0
	}
	return rentPerHour*hours <= a.Money
}

// NoLimit is a count that is not limited.
const NoLimit = math.MaxInt

// Unlimited is the allowance of who has no limits.
func Unlimited() Allowance {
	return Allowance{GPUs: NoLimit, Ceiling: NoLimit, Nodes: NoLimit, Money: math.Inf(1), GPUHours: math.Inf(1)}
}
