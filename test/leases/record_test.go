package leases_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/quota"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// record is a store in memory. It applies batches, refuses those that break what is
// promised of leases, and gives back what the real store promises at load.
type record struct {
	jobs      map[id.Job]job.Job
	runs      map[id.Run]job.Run
	nodes     map[id.Node]fleet.Node
	users     map[id.User]tenant.User
	tokens    map[id.Token]tenant.Token
	orders    map[string]yardmaster.Order
	leases    map[id.Lease]fleet.Lease
	meters    map[id.Node]ledger.State
	totals    map[string]quota.Usage
	postings  []ledger.Posting
	events    map[string]int
	lastJob   uint64
	lastEvent uint64
	lastLease uint64

	lasts    map[id.Job]time.Duration // how long each job runs
	machines int                      // ever made
}

func newRecord() *record {
	return &record{
		jobs:   map[id.Job]job.Job{},
		runs:   map[id.Run]job.Run{},
		nodes:  map[id.Node]fleet.Node{},
		users:  map[id.User]tenant.User{},
		tokens: map[id.Token]tenant.Token{},
		orders: map[string]yardmaster.Order{},
		leases: map[id.Lease]fleet.Lease{},
		meters: map[id.Node]ledger.State{},
		totals: map[string]quota.Usage{},
		events: map[string]int{},
		lasts:  map[id.Job]time.Duration{},
	}
}

// commit applies a batch.
func (s *record) commit(b *yardmaster.Batch) error {
	if err := s.checkBatch(b); err != nil {
		return err
	}

	for _, e := range b.Events {
		s.lastEvent = e.Seq
		s.events[e.Kind]++

		if e.Kind == "yard.bug" {
			return fmt.Errorf("event %+v", e)
		}
	}

	for _, j := range b.Jobs {
		number, _ := j.ID.Number()
		s.jobs[j.ID], s.lastJob = j, max(s.lastJob, number)
	}

	for _, r := range b.Runs {
		s.runs[r.ID] = r
	}

	for _, n := range b.Nodes {
		s.nodes[n.ID] = n
	}

	for _, u := range b.Users {
		s.users[u.ID] = u
	}

	for _, t := range b.Tokens {
		s.tokens[t.ID] = t
	}

	for _, o := range b.Orders {
		s.orders[o.Key()] = o
	}

	for _, key := range b.Closed {
		delete(s.orders, key)
	}

	for i := range b.Leases {
		l := &b.Leases[i]
		number, _ := l.ID.Number()
		s.leases[l.ID], s.lastLease = *l, max(s.lastLease, number)
	}

	s.book(b)

	if len(b.Leases)+len(b.Jobs)+len(b.Runs) == 0 {
		return nil
	}

	return s.check()
}

// book applies the changes of a batch to the record.
func (s *record) book(b *yardmaster.Batch) {
	for _, n := range b.Ledger.Closed {
		delete(s.meters, n)
	}

	for _, m := range b.Ledger.Meters {
		s.meters[m.Node] = m
	}

	for _, t := range b.Usage {
		s.totals[fmt.Sprint(t.Subject, t.Period, t.Begin)] = t
	}

	s.postings = append(s.postings, b.Ledger.Postings...)
}

// load returns what the store promises at a restart.
func (s *record) load() (yardmaster.State, error) {
	state := yardmaster.State{
		LastJob:   s.lastJob,
		LastEvent: s.lastEvent,
		LastLease: s.lastLease,
		Needs:     map[id.Job]job.State{},
	}

	for _, k := range slices.Sorted(maps.Keys(s.jobs)) {
		if j := s.jobs[k]; !j.State.Final() {
			state.Jobs = append(state.Jobs, j)
		}
	}

	for _, k := range slices.Sorted(maps.Keys(s.runs)) {
		if r := s.runs[k]; r.State != job.RunEnded {
			state.Runs = append(state.Runs, r)
		}
	}

	state.Nodes = slices.Collect(maps.Values(s.nodes))
	state.Users = slices.Collect(maps.Values(s.users))
	state.Tokens = slices.Collect(maps.Values(s.tokens))
	state.Orders = slices.Collect(maps.Values(s.orders))
	for n := range s.lastLease {
		if l, ok := s.leases[id.NewLease(n+1)]; ok {
			state.Leases = append(state.Leases, l)
		}
	}

	state.Ledger.Meters = slices.Collect(maps.Values(s.meters))
	state.Usage = slices.Collect(maps.Values(s.totals))
	if n := len(s.postings); n > 0 {
		state.Ledger.LastPosting = s.postings[n-1].Seq
	}

	// What is kept is text: nothing may depend on pointers that are shared in memory.
	text, err := json.Marshal(state)
	if err != nil {
		return state, err
	}

	var copied yardmaster.State
	err = json.Unmarshal(text, &copied)

	return copied, err
}

// ordersOf returns what a node shall run, by key.
func (s *record) ordersOf(n id.Node) map[string]yardmaster.Order {
	mine := map[string]yardmaster.Order{}
	for key, o := range s.orders {
		if o.Node == n {
			mine[key] = o
		}
	}

	return mine
}

// unfinished lists the jobs that have not ended.
func (s *record) unfinished() []id.Job {
	var list []id.Job
	for _, j := range slices.Sorted(maps.Keys(s.jobs)) {
		if !s.jobs[j].State.Final() {
			list = append(list, j)
		}
	}

	return list
}

// held lists the leases that have not ended.
func (s *record) held() []fleet.Lease {
	var list []fleet.Lease
	for n := range s.lastLease {
		if l, ok := s.leases[id.NewLease(n+1)]; ok && !l.State.Final() {
			list = append(list, l)
		}
	}

	return list
}
