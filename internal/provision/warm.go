package provision

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// WarmPool is how many idle nodes of a kind are kept ready while there is demand for them.
type WarmPool struct {
	Offer string      // by its name; "" for any
	GPU   job.GPUKind // of the node; no model for any
	Nodes int
	// LookBack is how long a job's use of a node counts as demand; 0 for forever.
	LookBack time.Duration
	// MaxHourly bounds the rent of the nodes that are kept ready; 0 for no bound.
	MaxHourly job.Money
}

// InVain says which warm line could never keep a node ready: no offer matches it, or each costs more
// than the line may. It is "" if there is none.
func InVain(lines []WarmPool, offers []fleet.Offer) string {
	for line := range lines {
		w := &lines[line]
		var cheapest *fleet.Offer

		for i := range offers {
			if lineOf(lines, &offers[i]) == line && (cheapest == nil || offers[i].Hourly < cheapest.Hourly) {
				cheapest = &offers[i]
			}
		}

		switch {
		case cheapest == nil:
			return fmt.Sprintf("no offer is left for entry %d", line+1)
		case w.MaxHourly > 0 && w.MaxHourly < cheapest.Hourly:
			return fmt.Sprintf("max_hourly of entry %d is %s, and the cheapest offer for it, %s, costs %s", line+1,
				humanize.Rate(w.MaxHourly.PerHour()), cheapest.Name, humanize.Rate(cheapest.PerHour()))
		}
	}

	return ""
}

// Demand is when a job last used or was given a node of each warm line; zero for never.
type Demand []time.Time

// Record records that a job uses a node of an offer.
func (d Demand) Record(lines []WarmPool, o *fleet.Offer, now time.Time) {
	if line := lineOf(lines, o); line >= 0 && d[line].Before(now) {
		d[line] = now
	}
}

// lineOf returns the first line that matches an offer, -1 if none does.
func lineOf(lines []WarmPool, o *fleet.Offer) int {
	return slices.IndexFunc(lines, func(w WarmPool) bool { return w.matches(o) })
}

// ends returns when the demand for a line is over: zero for never, and false if there is none now.
func (d Demand) ends(lines []WarmPool, line int, now time.Time) (time.Time, bool) {
	lookBack := lines[line].LookBack
	if lookBack == 0 {
		return time.Time{}, true
	}

	if line >= len(d) || d[line].IsZero() {
		return time.Time{}, false
	}

	end := d[line].Add(lookBack)

	return end, now.Before(end)
}

// AheadNode is a node to provision before a job needs it.
type AheadNode struct {
	Offer  fleet.Offer
	Reason string
}

// Ahead decides which nodes to provision so that as many as the warm lines say are idle or on
// their way, as long as jobs have used such nodes lately. live are the leases that have not
// ended, idle those of them whose nodes nothing uses, and offers what can be had now, the
// cheapest first. short reports that a line lacks nodes that cannot be had now.
func Ahead(
	live []*fleet.Lease, idle []IdleNode, offers []fleet.Offer, now time.Time, cfg IdlePolicy, d Demand,
) (nodes []AheadNode, short bool) {
	for line := range cfg.Warm {
		w := &cfg.Warm[line]
		if _, demanded := d.ends(cfg.Warm, line, now); !demanded || line >= len(d) || d[line].IsZero() {
			continue
		}

		ready, rent := readyNodes(live, idle, cfg.Warm, line)

		for ; ready < w.Nodes; ready++ {
			o := w.choose(offers, live, nodes, cfg.Warm, line)
			if o == nil {
				short = true
				break
			}

			if w.MaxHourly > 0 && rent+o.Hourly > w.MaxHourly {
				break
			}

			rent += o.Hourly
			nodes = append(nodes, AheadNode{*o, w.ahead(d[line], now)})
		}
	}

	return nodes, short
}

// readyNodes counts the nodes of a line that are idle or being provisioned ahead, and their rent.
func readyNodes(live []*fleet.Lease, idle []IdleNode, lines []WarmPool, line int) (ready int, rent job.Money) {
	count := func(l *fleet.Lease) {
		if lineOf(lines, &l.Offer) == line {
			ready++
			rent += l.Offer.Hourly
		}
	}

	for i := range idle {
		count(idle[i].Lease)
	}

	for _, l := range live {
		if l.Job == "" && !l.Stray && (l.State == fleet.LeaseRequested || l.State == fleet.LeaseBooting) {
			count(l)
		}
	}

	return ready, rent
}

// choose returns the cheapest offer of a line of which there may be one more node, nil if there is none.
func (w *WarmPool) choose(
	offers []fleet.Offer, live []*fleet.Lease, chosen []AheadNode, lines []WarmPool, line int,
) *fleet.Offer {
	for i := range offers {
		o := &offers[i]
		if lineOf(lines, o) != line {
			continue
		}

		held := 0
		for _, l := range live {
			if l.Offer.Name == o.Name {
				held++
			}
		}

		for k := range chosen {
			if chosen[k].Offer.Name == o.Name {
				held++
			}
		}

		if o.MaxNodes == 0 || held < o.MaxNodes {
			return o
		}
	}

	return nil
}

// ahead says why a node is provisioned ahead.
func (w *WarmPool) ahead(last, now time.Time) string {
	return fmt.Sprintf("provisioned ahead: %s; a job last used one at %s", w.words(), humanize.Time(last, now.UTC()))
}
