package yardmaster_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/queue"
	"trainyard/internal/share"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// record is a store in memory. It applies batches, refuses those that tell an
// impossible story, and gives back what the real store promises at load.
type record struct {
	drops     bool // plans may be wrong
	jobs      map[id.Job]job.Job
	runs      map[id.Run]job.Run
	nodes     map[id.Node]fleet.Node
	users     map[id.User]tenant.User
	tokens    map[id.Token]tenant.Token
	shares    map[id.Project]queue.Share
	past      map[uint64]queue.PastRun
	observed  map[id.Job]job.Observed
	shortages map[string]job.Shortage
	beside    map[string]share.Record
	questions map[id.Question]inbox.Question
	orders    map[string]yardmaster.Order
	decisions map[id.Job]ledger.JobDecisions
	catalogue map[id.Checkpoint]checkpoint.Checkpoint
	saved     uint64 // savings so far
	lastJob   uint64
	lastEvent uint64
	lastAt    time.Time // of the last event since the yard was started

	incarnation yardmaster.Incarnation
	events      map[string]int
}

func newRecord() *record {
	return &record{
		jobs:   map[id.Job]job.Job{},
		runs:   map[id.Run]job.Run{},
		nodes:  map[id.Node]fleet.Node{},
		users:  map[id.User]tenant.User{},
		tokens: map[id.Token]tenant.Token{},
		shares: map[id.Project]queue.Share{},
		past:   map[uint64]queue.PastRun{},
		orders: map[string]yardmaster.Order{},
		events: map[string]int{},

		incarnation: yardmaster.Incarnation{Number: 1, Mark: "first", Began: start, Settled: start, Reason: "the first"},

		observed:  map[id.Job]job.Observed{},
		shortages: map[string]job.Shortage{},
		beside:    map[string]share.Record{},
		questions: map[id.Question]inbox.Question{},
		decisions: map[id.Job]ledger.JobDecisions{},
		catalogue: map[id.Checkpoint]checkpoint.Checkpoint{},
	}
}

// commit applies a batch.
func (s *record) commit(b *yardmaster.Batch) error {
	if err := s.checkEvents(b); err != nil {
		return err
	}

	for _, j := range b.Jobs {
		if err := s.commitJob(b, j); err != nil {
			return err
		}
	}

	for _, i := range b.Incarnations {
		if i.Number < s.incarnation.Number || i.Number == s.incarnation.Number && i.Mark != s.incarnation.Mark {
			return fmt.Errorf("incarnation %+v follows %+v", i, s.incarnation)
		}

		s.incarnation = i
		s.lastJob = max(s.lastJob, i.Last.Job)
	}

	for _, r := range b.Runs {
		if err := s.commitRun(r); err != nil {
			return err
		}
	}

	for _, n := range b.Nodes {
		if old, ok := s.nodes[n.ID]; ok && (n.Seq <= old.Seq || old.State == fleet.Removed) {
			return fmt.Errorf("node %s changed from %+v to %+v", n.ID, old, n)
		}

		s.nodes[n.ID] = n
	}

	for _, u := range b.Users {
		if old, ok := s.users[u.ID]; ok && u.Seq <= old.Seq {
			return fmt.Errorf("user %s has number %d after %d", u.ID, u.Seq, old.Seq)
		}

		s.users[u.ID] = u
	}

	for _, t := range b.Tokens {
		if old, ok := s.tokens[t.ID]; ok && t.Seq <= old.Seq {
			return fmt.Errorf("token %s has number %d after %d", t.ID, t.Seq, old.Seq)
		}

		s.tokens[t.ID] = t
	}

	for _, h := range b.Shares {
		if old, ok := s.shares[h.Project]; ok && h.Seq <= old.Seq {
			return fmt.Errorf("the share of %s has number %d after %d", h.Project, h.Seq, old.Seq)
		}

		s.shares[h.Project] = h
	}

	if err := s.commitMemory(b); err != nil {
		return err
	}
	if err := s.commitQuestions(b); err != nil {
		return err
	}

	if err := s.commitCheckpoints(b); err != nil {
		return err
	}

	for _, o := range b.Orders {
		s.orders[o.Key()] = o
	}

	for _, key := range b.Closed {
		delete(s.orders, key)
	}

	if err := s.commitDecisions(&b.Ledger); err != nil {
		return err
	}

	return s.checkTouched(b)
}

// commitMemory checks that runs are numbered in order, and that what was learned of a job is kept until it ends.
func (s *record) commitMemory(b *yardmaster.Batch) error {
	for _, r := range b.Past {
		if _, known := s.past[r.Number-1]; r.Number == 0 || len(s.past) > 0 && !known {
			return fmt.Errorf("past run %+v does not follow the %d that are known", r, len(s.past))
		}

		s.past[r.Number] = r
	}

	for _, number := range b.PastForgotten {
		if _, known := s.past[number]; !known {
			return fmt.Errorf("past run %d is forgotten and was not known", number)
		}

		delete(s.past, number)
	}

	for _, o := range b.Observed {
		s.observed[o.Job] = o
	}

	for _, j := range b.ObservedForgotten {
		delete(s.observed, j)
	}

	for _, short := range b.Shortages {
		s.shortages[short.Key] = short
	}

	for _, r := range b.Beside {
		s.beside[r.Key()] = r
	}

	for _, key := range b.BesideForgotten {
		delete(s.beside, key)
	}

	for _, key := range b.ShortagesForgotten {
		delete(s.shortages, key)
	}

	for _, j := range b.Jobs {
		if o, known := s.observed[j.ID]; known && j.State.Final() {
			return fmt.Errorf("job %s has ended and what was learned of it is still stored: %+v", j.ID, o)
		}
	}

	return nil
}

// commitQuestions checks that a question ends once, and that none is open about a job that has ended.
func (s *record) commitQuestions(b *yardmaster.Batch) error {
	for _, q := range b.Questions {
		old, known := s.questions[q.ID]
		switch {
		case known && (old.State.Final() || q.Seq <= old.Seq):
			return fmt.Errorf("question %+v changed to %+v", old, q)
		case q.State != inbox.Open && q.Reason == "":
			return fmt.Errorf("question %+v does not say why it ended", q)
		}

		s.questions[q.ID] = q
	}

	for _, q := range s.questions {
		if q.State == inbox.Open && s.jobs[q.Job].State.Final() {
			return fmt.Errorf("job %s has ended and question %+v is open", q.Job, q)
		}
	}

	return nil
}

// commitDecisions checks that decisions are settled when their job ends, and not before.
func (s *record) commitDecisions(c *ledger.Changes) error {
	for _, d := range c.Decisions {
		if s.jobs[d.Job].State.Final() {
			return fmt.Errorf("job %s has ended and has decisions that are not settled: %+v", d.Job, d)
		}

		s.decisions[d.Job] = d
	}

	for _, j := range c.Settled {
		delete(s.decisions, j)
	}

	for i := range c.Savings {
		s.saved++
		if p := &c.Savings[i]; p.Seq != s.saved || !s.jobs[p.Job].State.Final() || p.Reason == "" {
			return fmt.Errorf("saving %d: %+v of a job that is %s", s.saved, p, s.jobs[p.Job].State)
		}
	}

	return nil
}

func (s *record) checkEvents(b *yardmaster.Batch) error {
	for _, e := range b.Events {
		s.lastEvent++
		s.events[e.Kind]++
		switch {
		case e.Seq != s.lastEvent:
			return fmt.Errorf("event %d follows %d", e.Seq, s.lastEvent-1)
		case e.At.Before(s.lastAt):
			return fmt.Errorf("event %d is earlier than the one before it", e.Seq)
		case e.Kind == "" || e.Actor == "" || e.Reason == "":
			return fmt.Errorf("event tells too little: %+v", e)
		case e.Kind == "yard.bug" || e.Kind == "plan.dropped" && !s.drops:
			return fmt.Errorf("event %+v", e)
		}

		s.lastAt = e.At
	}

	return nil
}

// commitJob checks that events lead from the state that is known to the new one.
func (s *record) commitJob(b *yardmaster.Batch, j job.Job) error {
	old, known := s.jobs[j.ID]
	number, _ := j.ID.Number()
	switch {
	case !known && number != s.lastJob+1:
		return fmt.Errorf("job %s follows j%d", j.ID, s.lastJob)
	case known && old.State.Final():
		return fmt.Errorf("job %s was %s and changed to %+v", j.ID, old.State, j)
	case j.Seq <= old.Seq:
		return fmt.Errorf("job %s has number %d after %d", j.ID, j.Seq, old.Seq)
	case j.Epoch < old.Epoch:
		return fmt.Errorf("job %s went from epoch %d to %d", j.ID, old.Epoch, j.Epoch)
	}

	s.lastJob = max(s.lastJob, number)

	at := old.State
	for _, e := range b.Events {
		if e.Job != j.ID || e.To == "" || e.Kind == "run.ended" || strings.HasPrefix(e.Kind, "checkpoint.") {
			continue
		}
		if e.Kind != "job.submitted" && (e.From != string(at) || !leads(at, job.State(e.To))) {
			return fmt.Errorf("event %+v of a job that was %s", e, at)
		}

		at = job.State(e.To)
	}

	if at != j.State {
		return fmt.Errorf("events leave job %s %q and it is %q", j.ID, at, j.State)
	}

	s.jobs[j.ID] = j

	return nil
}

// leads reports whether some event leads from one state to the other.
func leads(from, to job.State) bool {
	return slices.ContainsFunc(job.Events(), func(ev job.Event) bool {
		got, err := from.After(ev)
		return err == nil && got == to
	})
}

func (s *record) commitRun(r job.Run) error {
	old, known := s.runs[r.ID]
	switch {
	case known && old.State == job.RunEnded:
		return fmt.Errorf("run %s had ended and changed to %+v", r.ID, r)
	case r.Seq <= old.Seq:
		return fmt.Errorf("run %s has number %d after %d", r.ID, r.Seq, old.Seq)
	case !known && s.liveRun(r.Job, r.Epoch):
		return fmt.Errorf("run %s begins before the one before it has ended", r.ID)
	case r.State == job.RunEnded && (r.Ended.IsZero() || r.Reason == ""):
		return fmt.Errorf("run %s ended and does not say when and why", r.ID)
	}

	for i := range old.Ranks {
		if old.Ranks[i].State == job.RunEnded && r.Ranks[i].State != job.RunEnded {
			return fmt.Errorf("rank %d of run %s had ended and is %s", i, r.ID, r.Ranks[i].State)
		}
	}

	s.runs[r.ID] = r

	return nil
}

// liveRun reports whether a job has a run before this epoch that has not ended. Epochs that only a
// lost history had are missing.
func (s *record) liveRun(j id.Job, before int) bool {
	for epoch := range before {
		if run, known := s.runs[id.NewRun(j, epoch)]; known && run.State != job.RunEnded {
			return true
		}
	}

	return false
}

// clone copies the record, as a backup does.
func (s *record) clone() *record {
	c := *s
	c.jobs, c.runs, c.nodes = maps.Clone(s.jobs), maps.Clone(s.runs), maps.Clone(s.nodes)
	c.users, c.tokens, c.shares = maps.Clone(s.users), maps.Clone(s.tokens), maps.Clone(s.shares)
	c.past, c.observed, c.orders = maps.Clone(s.past), maps.Clone(s.observed), maps.Clone(s.orders)
	c.shortages = maps.Clone(s.shortages)
	c.beside = maps.Clone(s.beside)
	c.decisions, c.events, c.questions = maps.Clone(s.decisions), maps.Clone(s.events), maps.Clone(s.questions)
	c.catalogue = maps.Clone(s.catalogue)

	return &c
}

// checkTouched compares what a batch touched in the store as a whole.
func (s *record) checkTouched(b *yardmaster.Batch) error {
	for _, r := range b.Runs {
		r = s.runs[r.ID]
		for _, k := range r.Ranks {
			_, open := s.orders[fmt.Sprintf("%s/%d", r.ID, k.Rank)]
			if open == (k.State == job.RunEnded) {
				return fmt.Errorf("stored: rank %d of run %s is %s; open order: %v", k.Rank, r.ID, k.State, open)
			}
		}
	}

	for _, j := range b.Jobs {
		run, ok := s.runs[id.NewRun(j.ID, j.Epoch)]
		if j.State.Live() != (ok && run.State != job.RunEnded) {
			return fmt.Errorf("stored: job %s is %s and its run %+v", j.ID, j.State, run)
		}
	}

	return nil
}

// load returns what the store promises at a restart.
func (s *record) load(recent time.Time) (yardmaster.State, error) {
	state := yardmaster.State{LastJob: s.lastJob, LastEvent: s.lastEvent, Needs: map[id.Job]job.State{},
		Incarnation: s.incarnation}
	for _, j := range s.jobs {
		if j.State.Final() && j.Ended.Before(recent) {
			continue
		}

		state.Jobs = append(state.Jobs, j)
		for _, n := range j.Needs {
			if need := s.jobs[n]; !j.State.Final() && need.State.Final() {
				state.Needs[n] = need.State
			}
		}
	}

	for _, r := range s.runs {
		if r.State != job.RunEnded {
			state.Runs = append(state.Runs, r)
		}
	}

	state.Nodes = slices.Collect(maps.Values(s.nodes))
	state.Users = slices.Collect(maps.Values(s.users))
	state.Tokens = slices.Collect(maps.Values(s.tokens))
	state.Shares = slices.Collect(maps.Values(s.shares))
	state.Past = slices.Collect(maps.Values(s.past))
	state.Observed = slices.Collect(maps.Values(s.observed))
	state.Shortages = slices.Collect(maps.Values(s.shortages))
	state.Beside = slices.Collect(maps.Values(s.beside))
	state.Checkpoints = slices.Collect(maps.Values(s.catalogue))
	for _, q := range s.questions {
		if q.State == inbox.Open {
			state.Questions = append(state.Questions, q)
		}
	}

	state.Orders = slices.Collect(maps.Values(s.orders))
	state.Ledger.Decisions, state.Ledger.LastSaving = slices.Collect(maps.Values(s.decisions)), s.saved

	// What is kept is text: nothing may depend on pointers that are shared in memory.
	text, err := json.Marshal(state)
	if err != nil {
		return state, err
	}

	var copied yardmaster.State
	err = json.Unmarshal(text, &copied)
	s.lastAt = time.Time{}

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
