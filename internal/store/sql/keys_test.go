package sql

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// keyedJob returns a job that was submitted with a key.
func keyedJob(n uint64, owner id.User, key string) job.Job {
	return job.Job{
		ID: id.NewJob(n), Seq: 1, Owner: owner, Key: key, KeyHash: "hash", State: job.Pending, Submitted: planStart,
		Since: planStart, Spec: &job.Spec{Name: "train", Run: "true"},
	}
}

// openSpied opens a store whose queries are watched.
func openSpied(t engineTest) (*Store, *spy) {
	t.Helper()
	eng, err := engineOf(t.url)
	if err != nil {
		t.Fatal(err)
	}

	watch := &spy{}
	s, err := openEngine(t.Context(), spiedEngine{eng, watch}, Options{Timeouts: patient})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = s.Close() })

	return s, watch
}

// TestANewKeyIsNotLookedUp: a submission with a new key does not wait for the database, and one with a key that was
// used before is found: with one of this term, and with one of those before it, however many there are.
func TestANewKeyIsNotLookedUp(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		const before = 2*keyPage + 1
		first := writer(t, t.url, "first")
		b := &yardmaster.Batch{}
		for n := range uint64(before) {
			b.Jobs = append(b.Jobs, keyedJob(n+1, "ada", fmt.Sprintf("key-%04d", n)))
		}

		if err := errors.Join(first.Commit(t.Context(), b), first.Resign(t.Context())); err != nil {
			t.Fatal(err)
		}

		s, watch := openSpied(t)
		if _, err := s.Lead(t.Context(), candidate("second", time.Minute)); err != nil {
			t.Fatal(err)
		}

		mustFind := func(owner id.User, key string, want id.Job) {
			t.Helper()

			if j, err := s.JobByKey(t.Context(), owner, key); err != nil || j.ID != want {
				t.Errorf("key %s of %s: got job %q and %v, want %s", key, owner, j.ID, err, want)
			}
		}

		mustMiss := func(owner id.User, key string) int {
			t.Helper()
			watch.take()

			if _, err := s.JobByKey(t.Context(), owner, key); fault.KindOf(err) != fault.NotFound {
				t.Errorf("key %s of %s: got %v, want that it is not found", key, owner, err)
			}

			return len(watch.take())
		}

		// The keys from before are read in three pages. One that is in none of those read yet is found all the same.
		mustFind("ada", "key-2000", "j2001")
		mustFind("ada", "key-0000", "j1")

		queries := mustMiss("bob", "key-0000")
		if queries != 1 { // the last page
			t.Errorf("the third lookup made %d queries, want 1", queries)
		}

		for n := range 20 {
			queries += mustMiss("ada", fmt.Sprintf("new-%d", n))
		}

		if queries > 3 { // one, if no new key looks like an old one
			t.Errorf("21 lookups of new keys made %d queries", queries)
		}

		mustFind("ada", "key-1234", "j1235")

		batch := &yardmaster.Batch{Jobs: []job.Job{keyedJob(9000, "bob", "new-7")}}
		if err := s.Commit(t.Context(), batch); err != nil {
			t.Fatal(err)
		}

		mustFind("bob", "new-7", "j9000")
	})
}

// TestKeysAreFoundAsTheyAreStored compares lookups with what was submitted while jobs are submitted and forgotten and
// the lead passes from one server to another.
func TestKeysAreFoundAsTheyAreStored(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t engineTest) {
		rng := rand.New(rand.NewPCG(17, 5))
		stores := []*Store{open(t, t.url), writer(t, t.url, "s0")}
		leader, last := 1, uint64(0)
		stored := map[submitKey]id.Job{}

		steps := []func(k submitKey) error{
			func(submitKey) error {
				err := stores[leader].Resign(t.Context())
				leader = rng.IntN(len(stores))
				_, leadErr := stores[leader].Lead(t.Context(), candidate(fmt.Sprint("s", last), time.Minute))

				return errors.Join(err, leadErr)
			},
			func(k submitKey) error {
				if stored[k] != "" {
					return nil
				}

				last++
				j := keyedJob(last, id.User(k.owner), k.key)
				stored[k] = j.ID

				return stores[leader].Commit(t.Context(), &yardmaster.Batch{Jobs: []job.Job{j}})
			},
			func(k submitKey) error {
				if stored[k] == "" {
					return nil
				}

				j := stored[k]
				delete(stored, k)

				return stores[leader].ForgetJobs(t.Context(), j)
			},
		}

		for step := range 300 {
			// Few keys, and also such as the store writes otherwise.
			k := submitKey{[]string{"ada", "bob"}[rng.IntN(2)], []string{"a", "b", "c\x00", "d\xff", "é", "A"}[rng.IntN(6)]}
			if err := steps[rng.IntN(len(steps))](k); err != nil {
				t.Fatal(err)
			}

			for i, s := range stores {
				j, err := s.JobByKey(t.Context(), id.User(k.owner), k.key)
				if err != nil && fault.KindOf(err) != fault.NotFound {
					t.Fatal(err)
				}

				if j.ID != stored[k] {
					t.Fatalf("step %d, store %d: key %q is that of %q, want %q", step, i, k, j.ID, stored[k])
				}
			}
		}
	})
}
