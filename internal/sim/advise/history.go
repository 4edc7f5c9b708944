package advise

import (
	"slices"
	"time"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

// History is what happened in a yard in a period, and what it had.
type History struct {
	From, To time.Time
	Policy   string // that the yard uses, with its parameters
	Jobs     []Job  // by submission
	Nodes    []Node // local and reserved ones, by name
	Tariff   *fleet.Tariff
	Offers   []fleet.Offer // what the yard can provision
	Quotas   []tenant.Quota
	Data     []dataset.Dataset
	Idle     time.Duration // for which a provisioned node is kept that nothing uses
	Cost     float64       // what all nodes cost in the period, by the usage report
	// LeftOut says what is not replayed, Gaps what is replayed other than it was.
	LeftOut, Gaps []string
}

// Job is a job as it went.
type Job struct {
	ID        id.Job
	Owner     id.User
	Spec      *job.Spec
	Submitted time.Time
	Ended     time.Time // zero if it has not
	// Carried says that it had been submitted before the period: it is replayed from
	// the beginning of the period on, and not counted among the jobs.
	Carried   bool
	Stretches []Stretch
}

// Stretch is a time in which a job ran somewhere.
type Stretch struct {
	Lasted time.Duration
	GPU    string // kind, "" if it had none or that is not known
	Memory job.Bytes
	TFLOPS float64 // of one GPU; 0 if unknown
	GPUs   int     // of all its nodes together
	Nodes  int
	// Lost says that nothing of what it did was kept, through no fault of its own.
	Wasted bool
}

// Node is one of the yard's own nodes, and when it was there.
type Node struct {
	fleet.Node
	Came, Removed time.Time // zero: before the period, after it
	Away          []Absence // when nothing new could run there
	// price is what it costs if that is not what the tariff says.
	price *fleet.NodePrice
}

// Absence is a time in which nothing new went to a node.
type Absence struct {
	From, To time.Time
	Drained  bool // what ran there went on; else it was lost
}

// counted returns how many jobs are counted.
func (h *History) counted() int {
	n := 0
	for i := range h.Jobs {
		if !h.Jobs[i].Carried {
			n++
		}
	}

	return n
}

// span is how long the period is.
func (h *History) span() time.Duration { return h.To.Sub(h.From) }

// stay returns from when until when a node was there, since the beginning.
func (h *History) stay(n *Node) (from, to time.Duration) {
	to = h.span()

	if n.Came.After(h.From) {
		from = n.Came.Sub(h.From)
	}

	if !n.Removed.IsZero() && n.Removed.Before(h.To) {
		to = max(n.Removed.Sub(h.From), 0)
	}

	return from, max(from, to)
}

// completions returns how long jobs really took that are counted and have ended.
func (h *History) completions() map[id.Job]time.Duration {
	took := map[id.Job]time.Duration{}
	for i := range h.Jobs {
		if j := &h.Jobs[i]; !j.Carried && !j.Ended.IsZero() {
			took[j.ID] = j.Ended.Sub(j.Submitted)
		}
	}

	return took
}

// kindOf names the GPUs of a node: A100:80GB. It is "" for a node without any.
func kindOf(n *fleet.Node) string {
	if len(n.Inventory.GPUs) == 0 {
		return ""
	}

	g := &n.Inventory.GPUs[0]

	return kindText(g.Model, g.Memory)
}

// kindText names a kind of GPU as in a job file. Memory is rounded to whole GB: a
// card that is sold with 80 reports a little less or more.
func kindText(model string, memory job.Bytes) string {
	const gib = 1 << 30
	return job.GPUKind{Model: model, Memory: (memory + gib/2) / gib * gib}.String()
}

// offerKind names the GPUs of an offer.
func offerKind(o *fleet.Offer) string {
	if o.GPUs == 0 {
		return ""
	}

	return kindText(o.GPU, o.GPUMemory)
}

// sortedNodes returns the nodes by name.
func sortedNodes(nodes []Node) []Node {
	list := slices.Clone(nodes)
	slices.SortFunc(list, func(a, b Node) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}

		return 0
	})

	return list
}
