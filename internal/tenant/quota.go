package tenant

import (
	"fmt"
	"math"
	"strings"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/money"
)

// Subject is whose usage a quota counts.
type Subject struct {
	User    id.User    `json:"user,omitempty"`
	Project id.Project `json:"project,omitempty"`
	// Each says that the quota applies to every user, or project, that has none of its own.
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

// Period is how long usage is added up before it resets.
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

// OnExceeded is what happens when money or GPU-hours of a period are used up.
type OnExceeded string

// What happens when a quota is exceeded. Except with warn, nothing new is provisioned.
const (
	ExceededWarn OnExceeded = "warn" // people are notified, jobs continue
	ExceededAsk  OnExceeded = "ask"  // no new job starts until the quota is raised; running jobs continue
	// jobs on on-demand nodes checkpoint and move to nodes that are paid for anyway
	ExceededDowngrade OnExceeded = "downgrade"
	// running jobs checkpoint, stop, and wait for the next period or a higher quota
	ExceededStop OnExceeded = "stop"
)

// ExceededActions lists what may happen when a quota is exceeded.
func ExceededActions() []OnExceeded {
	return []OnExceeded{ExceededWarn, ExceededAsk, ExceededDowngrade, ExceededStop}
}

// Quota is what one user or project may use at a time and in a period. Zero means no limit.
type Quota struct {
	Subject    Subject    `json:"subject"`
	Seq        uint64     `json:"seq"`
	GPUs       int        `json:"gpus,omitempty"`      // at a time
	Nodes      int        `json:"nodes,omitempty"`     // on-demand nodes at a time
	GPUHours   float64    `json:"gpu_hours,omitempty"` // in a period
	Budget     job.Money  `json:"budget,omitempty"`    // in a period, for nodes and energy
	Period     Period     `json:"period,omitempty"`
	OnExceeded OnExceeded `json:"on_exceeded,omitempty"`
	// Borrow lets jobs use more GPUs than the quota while nobody else waits for them. Borrowed
	// GPUs are preempted first.
	Borrow  bool    `json:"borrow,omitempty"`
	WarnAt  float64 `json:"warn_at,omitempty"` // share of GPUHours or Budget from which people are warned; 0 means 0.8
	Removed bool    `json:"removed,omitempty"`
}

// Text writes the quota in a line, for the audit record.
func (q *Quota) Text() string {
	var parts []string

	add := func(key string, value any, set bool) {
		if set {
			parts = append(parts, fmt.Sprintf("%s=%v", key, value))
		}
	}

	add("gpus", q.GPUs, q.GPUs > 0)
	add("borrow", "yes", q.Borrow)
	add("nodes", q.Nodes, q.Nodes > 0)
	add("gpu_hours", q.GPUHours, q.GPUHours > 0)
	add("budget", q.Budget, q.Budget > 0)
	add("period", q.Period, q.GPUHours > 0 || q.Budget > 0)
	add("on_exceeded", q.OnExceeded, q.GPUHours > 0 || q.Budget > 0)
	add("warn_at", q.WarnAt, q.WarnAt > 0)

	if len(parts) == 0 {
		return "no limit"
	}

	return strings.Join(parts, " ")
}

// Allowance is what a job may still use under all quotas that apply to it.
type Allowance struct {
	GPUs           int          // more at a time; NoLimit if that is not limited
	Part           float64      // fraction of one more GPU, for a job that shares one
	Nodes          int          // more on-demand nodes at a time; NoLimit if that is not limited
	Money          money.Amount // more in this period, after the expected cost of running jobs; infinite if not limited
	GPUHours       float64      // the same
	Borrow         bool         // more GPUs may be borrowed while nobody else is queued for them
	Ceiling        int          // GPUs with what may be borrowed; NoLimit if that is not limited
	NoProvisioning bool         // only local and reserved nodes: a used-up quota says downgrade
	HoldReason     string       // why nothing may start, as a sentence; "" if something may
	Hold           Hold         // what nothing may start by; "" if something may
	FirstLimit     string       // names the quota that is reached first
	LimitedBy      Bounds       // names the quota that limits each number
	// HeldUntil is when the quota by which nothing may start resets; zero if it does not by itself.
	HeldUntil time.Time
}

// Hold is what keeps a job out of the queue: the kind of quota or budget, or a secret.
type Hold string

// The kinds of hold.
const (
	HoldGPUs     Hold = "gpus"       // GPUs at a time
	HoldGPUHours Hold = "gpu_hours"  // GPU-hours in a period
	HoldMoney    Hold = "money"      // money in a period
	HoldBudget   Hold = "job_budget" // the job's own budget
	HoldSecret   Hold = "secret"     // a secret that is not there or cannot be decrypted
	HoldArray    Hold = "array"      // the limit of running elements of the job's array
)

// Holds lists the kinds of hold.
func Holds() []Hold {
	return []Hold{HoldGPUs, HoldGPUHours, HoldMoney, HoldBudget, HoldSecret, HoldArray}
}

// Bounds names the quotas that limit the numbers of an allowance, "" where none does.
type Bounds struct {
	GPUs     string // a clause: "ann may use 4 GPUs at a time"
	Nodes    string // "ann's quota of 2 on-demand nodes"
	Money    string // "ann's budget of $100.00 per month"; of NoProvisioning too
	GPUHours string // "ann's quota of 100 GPU-hours per month"
}

// NoLimit is a count that is not limited.
const NoLimit = math.MaxInt

// Unlimited is the allowance of a job to which no quota applies.
func Unlimited() Allowance {
	return Allowance{
		GPUs: NoLimit, Ceiling: NoLimit, Nodes: NoLimit, Money: money.Amount(math.Inf(1)), GPUHours: math.Inf(1),
	}
}
