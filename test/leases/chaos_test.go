// Package leases_test drives the yardmaster and its desk through random histories of
// providers, machines and crashes, in virtual time, and checks that nothing is provisioned
// without a written lease and a job that waits for it, that nothing outlives its lease,
// and that nothing is paid for twice.
//
// chaos_test.go has the tests and the course of a history, world_test.go plays the
// server, provider_test.go the clouds, machine_test.go their machines, record_test.go
// the store, policy_test.go who provisions, and check_test.go says what must hold.
package leases_test

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

var (
	historiesFlag = flag.Int("histories", 0, "how many random histories; 0 means 500, and 100 under the race detector")
	seedFlag      = flag.Uint64("seed", 1, "seed of the first history; the others follow it")
)

func histories() int {
	switch {
	case *historiesFlag > 0:
		return *historiesFlag
	case underRace:
		return 100
	}

	return 500
}

// TestLeaseChaos runs random histories. A failure names its seed, and
//
//	go test ./test/leases -run TestLeaseChaos -histories 1 -seed N
//
// runs it alone.
//
// The bound: while the server runs and the provider answers, a machine ends at the latest
// leases.Bound (Settle and Term, 25 minutes by default) and five minutes after its lease
// is over: two for the provider to end it, three for calls that go wrong a few times in a
// row; and three minutes more for each start of the server in between. A
// lease is over when it is given back or has ended, and else at the end that was last
// stored. Whatever is down, a machine that has booted ends itself at the latest cloud.Slack
// and the time of a shutdown after the end that was last stored, or after the
// time it was given to join, counted from its boot.
func TestLeaseChaos(t *testing.T) {
	t.Parallel()
	var (
		lock       sync.Mutex
		work       = make(chan uint64)
		crew       sync.WaitGroup
		worst, raw time.Duration
		seen       = map[string]int{}
		sum        struct{ machines, leases, crashes, writes, failed int }
	)

	for range runtime.GOMAXPROCS(0) {
		crew.Go(func() {
			for seed := range work {
				w := history(seed, troubleOf(seed), nil)
				lock.Lock()

				if w.broken != nil {
					sum.failed++
					if sum.failed <= 5 {
						t.Errorf("seed %d: %v", seed, w.broken)
					}
				}

				worst, raw = max(worst, w.worst), max(raw, w.raw)

				for k, n := range w.seen {
					seen[k] += n
				}

				for k, n := range w.store.events {
					seen["event "+k] += n
				}

				sum.machines += w.store.machines
				sum.leases += len(w.store.leases)
				sum.crashes += w.crashes
				sum.writes += w.writes
				lock.Unlock()
			}
		})
	}

	for i := range uint64(histories()) {
		work <- *seedFlag + i
	}

	close(work)
	crew.Wait()

	if sum.failed > 0 {
		t.Errorf("%d histories failed", sum.failed)
	}

	t.Logf(
		"%d histories: %d leases, %d machines, %d writes, %d crashes",
		histories(),
		sum.leases,
		sum.machines,
		sum.writes,
		sum.crashes,
	)

	t.Logf(
		"a machine outlived its lease by %s at most while it could be ended, and by %s with the time in which it could not",
		worst.Round(time.Second),
		raw.Round(time.Second),
	)

	for _, k := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%8d %s", seen[k], k)
	}

	for _, k := range mustHappen {
		if seen[k] == 0 && histories() >= 200 {
			t.Errorf("it never happened: %s", k)
		}
	}
}

// mustHappen is what so many histories cannot miss unless the model is wrong.
var mustHappen = []string{
	"crash",
	"dead for a day",
	"provider down",
	"call while down",
	"answer lost",
	"call carried out late",
	"call delivered twice",
	"list that lags",
	"machine without a tag",
	"tag that comes late",
	"machine with a wrong clock",
	"machine that never boots",
	"machine that joins late",
	"agent that never joins",
	"spot machine taken back",
	"machine that ended itself",
	"join after the lease",
	"join with a used token",
	"answer to a join lost",
	"second join with a token",
	"agent that dies",
	"agent that falls silent",
	"second machine for a lease",
	"terminate of an unknown machine",
	"refused " + fleet.RefusedCapacity,
	"refused " + fleet.RefusedQuota,
	"refused " + fleet.RefusedPrice,
	"refused " + fleet.RefusedInvalid,
	"refused " + fleet.RefusedDenied,
	"event lease.stray",
	"event lease.unclear",
	"event lease.refused",
	"event lease.booting",
	"event lease.active",
	"event lease.releasing",
	"event lease.ended",
	"event provider.failed",
	"event provider.back",
	"event job.succeeded",
	"event job.cancelled",
	"event job.recovering",
}

// TestACrashAtEveryWrite runs one history again and again, and ends the server at each
// of its writes in turn: before it is stored, and after that before anyone is notified.
func TestACrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	const seed = 3
	calmly := history(seed, trouble{}, nil)
	if calmly.broken != nil {
		t.Fatalf("without any trouble: %v", calmly.broken)
	}

	t.Logf("%d writes", calmly.writes)

	stride := 1
	if underRace {
		stride = 7 // what races shows with some of them
	}

	for _, faults := range []int{0, 25} {
		writes := history(seed, trouble{faults: faults}, nil).writes
		for n := 1; n <= writes; n += stride {
			for _, after := range []bool{false, true} {
				if w := history(seed, trouble{faults: faults, crashAt: n, after: after}, nil); w.broken != nil {
					t.Fatalf(
						"crash at write %d of %d, after it was stored: %v, with %d faults in a hundred calls: %v",
						n,
						writes,
						after,
						faults,
						w.broken,
					)
				}
			}
		}
	}
}

// TestTheSameSeedIsTheSameHistory lets a failure be looked at again.
func TestTheSameSeedIsTheSameHistory(t *testing.T) {
	t.Parallel()
	digest := func() string {
		sum := sha256.New()
		history(*seedFlag, trouble{crash: 20, faults: 30, days: true}, func(w *world) { w.hash = sum })
		return hex.EncodeToString(sum.Sum(nil))
	}

	if first, second := digest(), digest(); first != second {
		t.Errorf("seed %d gave %s and then %s", *seedFlag, first, second)
	}
}

// troubleOf draws how much goes wrong.
func troubleOf(seed uint64) trouble {
	rng := rand.New(rand.NewPCG(seed, 11))
	return trouble{
		crash:  []int{0, 200, 50, 10}[rng.IntN(4)],
		faults: []int{0, 10, 25, 50}[rng.IntN(4)],
		days:   rng.IntN(3) == 0,
	}
}

// history plays one history from its first job until nothing is left.
func history(seed uint64, t trouble, set func(*world)) *world {
	w := newWorld(seed, t)
	if set != nil {
		set(w)
	}

	w.calm = true
	w.boot()

	for _, m := range []yardmaster.Message{yardmaster.PutUser{User: "root", Role: tenant.Admin, By: "test"}, yardmaster.PutUser{User: "ada", Role: tenant.Researcher, By: "root"}} {
		if _, stored, err := w.send(m); err != nil || !stored {
			w.fail("%T: %w", m, err)
		}
	}

	w.calm = false
	w.todo = 1 + w.rng.IntN(5)
	for range w.todo {
		w.after(w.upTo(2*time.Hour), w.submit)
	}

	for _, p := range w.providers {
		for range w.rng.IntN(3) {
			w.after(w.upTo(4*time.Hour), func() {
				if t.faults > 0 {
					p.goDown()
				}
			})
		}
	}

	for range w.rng.IntN(3) {
		w.after(w.upTo(4*time.Hour), w.meddle)
	}

	w.until(2*time.Hour+w.upTo(3*time.Hour), func() bool { return false })
	w.comeToRest()

	return w
}

// submit hands in a job that needs one node or several at once.
func (w *world) submit() {
	nodes := []int{1, 1, 1, 2, 3}[w.rng.IntN(5)]
	spec := &job.Spec{
		Name: "train", Run: "train", Place: job.PlaceCloud, Retry: 20,
		Resources: job.Resources{GPUs: job.Range{Min: 1, Max: 1}, Nodes: job.Range{Min: nodes, Max: nodes}, CPUs: 1000},
	}

	lasts := time.Minute + w.upTo(40*time.Minute)
	if w.chance(6) {
		lasts += 2 * time.Hour
	}

	reply, stored, err := w.send(yardmaster.Submit{Owner: "ada", Jobs: []yardmaster.NewJob{{Spec: spec}}})
	if !stored {
		// Nobody has heard of a job by this name, or the one that was stored runs like any other.
		for j := range w.store.jobs {
			if _, known := w.store.lasts[j]; !known {
				w.store.lasts[j] = lasts
			}
		}

		w.after(time.Minute, w.submit)

		return
	}

	sub, ok := reply.(yardmaster.Submitted)
	if err != nil || !ok {
		w.fail("submit answered %+v, %w", reply, err)
		return
	}

	w.todo--
	w.store.lasts[sub.Jobs[0]] = lasts
	if w.chance(4) {
		w.after(w.upTo(time.Hour), func() { w.cancel(sub.Jobs[0]) })
	}
}

// cancel cancels a job that may have ended.
func (w *world) cancel(j id.Job) {
	if _, stored, _ := w.send(yardmaster.Cancel{Job: j, By: "ada"}); !stored {
		w.after(time.Minute, func() { w.cancel(j) })
	}
}

// meddle lets an operator give some lease back.
func (w *world) meddle() {
	held := w.store.held()
	if len(held) == 0 || w.calm {
		return
	}

	l := held[w.rng.IntN(len(held))].ID
	if _, _, err := w.send(yardmaster.ReleaseLease{Lease: l, By: "root"}); err != nil {
		w.fail("give %s back: %w", l, err)
	}
}

// comeToRest lets nothing go wrong any more, and looks whether all jobs get done and
// everything that was provisioned is given back.
func (w *world) comeToRest() {
	w.calm = true
	for _, p := range w.providers {
		if p.down() {
			p.outages[len(p.outages)-1].to = w.now
		}
	}

	w.until(25*time.Hour, func() bool { return w.yard != nil })

	if !w.until(20*time.Hour, func() bool { return w.todo == 0 && len(w.store.unfinished()) == 0 }) {
		w.fail("jobs %v never get done; leases: %+v", w.store.unfinished(), w.store.held())
		return
	}

	if !w.until(3*time.Hour, func() bool { return len(w.store.held()) == 0 && len(w.alive()) == 0 && w.rested() }) {
		w.fail("left are machines %v and leases %+v", w.alive(), w.store.held())
		return
	}

	w.checkBooks()
}

// rested reports that no call that was made in bad times can still have an effect.
func (w *world) rested() bool {
	return !slices.ContainsFunc(w.providers, func(p *provider) bool { return p.pending > 0 })
}

// alive names the machines that have not ended.
func (w *world) alive() []string {
	var list []string
	for _, p := range w.providers {
		for _, m := range p.machines {
			if m.ended.IsZero() {
				list = append(list, fmt.Sprint(m.id, " of ", m.lease.ID))
			}
		}
	}

	return list
}
