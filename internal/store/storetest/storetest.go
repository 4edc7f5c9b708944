// Package storetest is the store's contract, written as tests.
//
// Run is called by the tests of every implementation; what it does not ask for
// is not promised. It uses a store through its interface alone. The package
// also starts the PostgreSQL server that tests of the store and of the whole
// program need.
package storetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// Run tests that a store keeps the contract. open opens the store that belongs
// to t: the first call with a t makes an empty one, and another call with the
// same t opens the same store once more, as a second server would. Run closes what it opened.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()

	for _, group := range [][]contract{
		writing(), sharing(), loading(), finding(), ledgerTests(), documents(), checkpoints(), questions(),
		possessions(), forgetting(),
	} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.test(&harness{T: t, open: open})
			})
		}
	}
}

// contract is one clause.
type contract struct {
	name string
	test func(h *harness)
}

// harness is what a clause is tested with.
type harness struct {
	*testing.T
	open func(t *testing.T) store.Store
}

// deadline bounds a test against a store that hangs.
const deadline = 2 * time.Minute

// context returns the context of one clause.
func (h *harness) context() context.Context {
	ctx, cancel := context.WithTimeout(h.Context(), deadline)
	h.Cleanup(cancel)
	return ctx
}

// store opens the store of this test.
func (h *harness) store() store.Store {
	h.Helper()
	s := h.open(h.T)
	h.Cleanup(func() {
		if err := s.Close(); err != nil {
			h.Errorf("close: %v", err)
		}
	})

	return s
}

// writer opens the store of this test and leads.
func (h *harness) writer() store.Store {
	h.Helper()
	s := h.store()
	h.lead(s, "server-1")

	return s
}

// lead lets a server lead for longer than any test takes.
func (h *harness) lead(s store.Store, name string) {
	h.Helper()
	_, err := s.Lead(h.context(), candidate(name))
	h.must(err)
}

func candidate(name string) store.Candidate {
	return store.Candidate{Server: store.Server{Name: name, Address: "https://" + name}, Lease: 2 * deadline}
}

// with opens a store that holds the batches.
func (h *harness) with(batches ...*yardmaster.Batch) store.Store {
	h.Helper()
	s := h.writer()
	h.must(s.Commit(h.context(), batches...))

	return s
}

func (h *harness) must(err error) {
	h.Helper()

	if err != nil {
		h.Fatalf("unexpected error: %v (%v)", err, errors.Unwrap(err))
	}
}

// fails checks the kind and the code of an error.
func (h *harness) fails(err error, kind fault.Kind, code string) {
	h.Helper()
	var got *fault.Error
	if !errors.As(err, &got) || got.Kind != kind || got.Code != code {
		h.Errorf("error = %v, want one of kind %s with code %s", err, kind, code)
	}
}

func (h *harness) load(s store.Store, recent time.Time) yardmaster.State {
	h.Helper()
	state, err := s.Load(h.context(), recent)
	h.must(err)
	slices.SortFunc(state.Jobs, func(a, b job.Job) int { return cmp.Compare(number(a.ID), number(b.ID)) })
	slices.SortFunc(state.Runs, func(a, b job.Run) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(state.Nodes, func(a, b fleet.Node) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(state.Users, func(a, b tenant.User) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(state.Tokens, func(a, b tenant.Token) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(state.Orders, func(a, b yardmaster.Order) int { return cmp.Compare(a.Key(), b.Key()) })

	return state
}

func number(j id.Job) uint64 {
	n, _ := j.Number()
	return n
}

// same compares what came back with what was stored. A list without elements may come back as none.
func (h *harness) same(what string, got, want any) {
	h.Helper()

	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		h.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// jobIDs returns the ids of jobs in their order.
func jobIDs(jobs []job.Job) []id.Job {
	ids := make([]id.Job, len(jobs))
	for i := range jobs {
		ids[i] = jobs[i].ID
	}

	return ids
}
