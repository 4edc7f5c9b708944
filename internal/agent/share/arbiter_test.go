package share

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// actor is a job in a world without sockets: it works for a while, rests, and gives the GPU back after a drain.
type actor struct {
	work, rest, drain time.Duration // work 0 is without end
	stuck             bool          // does not give the GPU back

	left    time.Duration // of the work
	holding bool
	granted time.Time
	turn    int
	wanted  time.Time
	waits   []time.Duration
}

// world drives an arbiter with a clock of its own.
type world struct {
	t      *testing.T
	a      *arbiter
	now    time.Time
	actors map[string]*actor
	events []event
	lost   []string
	grants int
	modes  int
	pace   uint64        // launches in each report
	closed time.Duration // for which reports said so, with the token
}

type event struct {
	at time.Time
	do func()
}

func newWorld(t *testing.T) *world {
	t.Helper()

	return &world{
		t: t, a: newArbiter(DefaultTuning()), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		actors: map[string]*actor{}, pace: 1000,
	}
}

func (w *world) after(d time.Duration, do func()) {
	w.events = append(w.events, event{w.now.Add(d), do})
}

func (w *world) join(id string, terms Terms, a *actor) {
	a.left = a.work
	w.actors[id] = a
	w.a.join(w.now, id, terms)
	w.want(id)
	w.perform()
}

func (w *world) want(id string) {
	w.actors[id].wanted = w.now
	w.a.want(w.now, id)
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	w.t.Helper()

	end := w.now.Add(d)
	for steps := 0; ; steps++ {
		if steps > 5_000_000 {
			w.t.Fatal("time does not pass")
		}

		next, which := end, -1
		for i, e := range w.events {
			if e.at.Before(next) {
				next, which = e.at, i
			}
		}

		if due := w.a.next(w.now); !due.IsZero() && due.Before(next) {
			next, which = latest(due, w.now.Add(time.Microsecond)), -1
		}

		if !next.Before(end) {
			w.now = end
			w.a.tick(w.now)
			w.perform()

			return
		}

		w.now = latest(next, w.now)
		if which >= 0 {
			do := w.events[which].do
			w.events = append(w.events[:which], w.events[which+1:]...)
			do()
		} else {
			w.a.tick(w.now)
		}

		w.perform()
	}
}

func (w *world) perform() {
	for acts := w.a.take(); len(acts) > 0; acts = w.a.take() {
		for _, a := range acts {
			w.act(a)
		}
	}
}

func (w *world) act(a act) {
	j := w.actors[a.job]

	switch a.what {
	case actGrant:
		for id, other := range w.actors {
			if other.holding && !other.stuck {
				w.t.Fatalf("%s is granted the GPU while %s has it", a.job, id)
			}
		}

		w.grants++
		j.holding = true
		j.granted = w.now
		j.turn++
		j.waits = append(j.waits, w.now.Sub(j.wanted))

		if turn := j.turn; j.work > 0 {
			w.after(j.left, func() {
				if j.holding && j.turn == turn {
					w.release(a.job, true)
				}
			})
		}
	case actRevoke:
		if j.stuck {
			return
		}

		w.after(j.drain, func() {
			if j.holding {
				w.release(a.job, false)
			}
		})
	case actMode:
		w.modes++

		for id, other := range w.actors {
			other.holding = false
			if w.a.mode == Token {
				w.after(0, func() { w.want(id) })
			}
		}
	case actLost, actFound:
		w.lost = append(w.lost, fmt.Sprintf("%s %t", a.job, a.what == actLost))
	case actContend, actMeasure:
	}
}

// release gives the GPU back; the next wish comes when the rest is over.
func (w *world) release(id string, finished bool) {
	j := w.actors[id]
	j.holding = false
	j.left -= w.now.Sub(j.granted)
	rest := 20 * time.Microsecond

	if finished {
		j.left = j.work
		rest = j.rest
	}

	w.after(rest, func() { w.want(id) })
	w.a.release(w.now, id)
}

func (w *world) held(id string) float64 {
	w.a.settle(w.now)
	return w.a.clients[id].use.Held.Seconds()
}

// parts returns which part of the time each job had the GPU since the accounts were like this.
func (w *world) parts(before map[string]float64) map[string]float64 {
	sum, parts := 0.0, map[string]float64{}
	for id := range w.actors {
		parts[id] = w.held(id) - before[id]
		sum += parts[id]
	}

	for id := range parts {
		parts[id] /= sum
	}

	return parts
}

func (w *world) snapshot() map[string]float64 {
	all := map[string]float64{}
	for id := range w.actors {
		all[id] = w.held(id)
	}

	return all
}

func near(t *testing.T, what string, got, want, room float64) {
	t.Helper()

	if math.Abs(got-want) > room {
		t.Errorf("%s: got %.4f, want %.4f", what, got, want)
	}
}

func TestArbiterDividesTimeByWeight(t *testing.T) {
	t.Parallel()

	for _, weights := range [][]float64{{0.7, 0.3}, {0.9, 0.1}, {0.5, 0.3, 0.2}, {0.2, 0.1}, {0.05, 0.9, 0.05}} {
		w := newWorld(t)
		sum := 0.0

		for i, weight := range weights {
			// Long drains cost those who have them, and nobody else.
			drain := time.Duration(1+20*i) * time.Millisecond
			w.join(fmt.Sprint(i), Terms{Weight: weight, Class: Normal}, &actor{drain: drain})
			sum += weight
		}

		w.run(2 * time.Minute)

		for id, part := range w.parts(nil) {
			var i int
			_, _ = fmt.Sscan(id, &i)
			near(t, fmt.Sprint(weights, " job ", id), part, weights[i]/sum, 0.005)
		}
	}
}

func TestArbiterSwitchesAThousandTimesAndStaysExact(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	for i := range 32 {
		weight := 0.01 + 0.002*float64(i)
		w.join(fmt.Sprint(i), Terms{Weight: weight, Class: Normal}, &actor{drain: 3 * time.Millisecond})
	}

	w.run(10 * time.Minute)

	if w.grants < 1000 {
		t.Errorf("%d switches, want at least 1000", w.grants)
	}

	sum := 32*0.01 + 0.002*31*32/2
	for id, part := range w.parts(nil) {
		var i int
		_, _ = fmt.Sscan(id, &i)
		near(t, "job "+id, part, (0.01+0.002*float64(i))/sum, 0.003)
	}
}

func TestArbiterKeepsLimits(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	w.join("a", Terms{Weight: 0.3, Limit: 0.3, Class: Normal}, &actor{drain: 5 * time.Millisecond})
	w.run(time.Minute)
	near(t, "alone, of the time", w.held("a")/60, 0.3, 0.02)

	before := w.snapshot()
	before["b"] = 0
	w.join("b", Terms{Weight: 0.3, Class: Normal}, &actor{drain: 5 * time.Millisecond})
	w.run(time.Minute)
	near(t, "beside a job without limit", (w.held("a")-before["a"])/60, 0.3, 0.02)
	near(t, "the rest is the other's", w.held("b")/60, 0.7, 0.02)
}

func TestArbiterServesClassesInOrder(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	w.join("low", Terms{Weight: 0.5, Class: Opportunistic}, &actor{drain: 2 * time.Millisecond})
	w.join("burst", Terms{Weight: 0.5, Class: Guaranteed},
		&actor{work: 50 * time.Millisecond, rest: 150 * time.Millisecond, drain: 2 * time.Millisecond})
	w.run(time.Minute)

	for _, wait := range w.actors["burst"].waits {
		if wait > 3*time.Millisecond {
			t.Fatalf("a guaranteed job waited %s for an opportunistic one", wait)
		}
	}

	near(t, "the opportunistic job has the rest", w.held("low")/60, 0.74, 0.03)

	w = newWorld(t)
	w.join("low", Terms{Weight: 0.5, Class: Opportunistic}, &actor{drain: 2 * time.Millisecond})
	w.join("high", Terms{Weight: 0.1, Class: Normal}, &actor{drain: 2 * time.Millisecond})
	w.run(time.Minute)
	near(t, "a normal job that is never idle leaves nothing", w.held("low")/60, 0, 0.01)

	w = newWorld(t)
	w.join("normal", Terms{Weight: 0.5, Class: Normal}, &actor{drain: 2 * time.Millisecond})
	w.join("first", Terms{Weight: 0.5, Class: Guaranteed}, &actor{drain: 2 * time.Millisecond})
	w.run(time.Minute)
	near(t, "a guarantee ends with the share", w.parts(nil)["first"], 0.5, 0.03)
}

func TestArbiterServesBurstsSoon(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	w.join("steady", Terms{Weight: 0.3, Class: Normal}, &actor{drain: 5 * time.Millisecond})
	w.join("burst", Terms{Weight: 0.7, Class: Normal},
		&actor{work: 105 * time.Millisecond, rest: 200 * time.Millisecond, drain: 5 * time.Millisecond})
	w.run(time.Minute)

	total := time.Duration(0)
	for _, wait := range w.actors["burst"].waits {
		total += wait
	}

	if mean := total / time.Duration(len(w.actors["burst"].waits)); mean > 30*time.Millisecond {
		t.Errorf("a burst waits %s on average", mean)
	}

	near(t, "the steady job has the rest", w.held("steady")/60, 0.66, 0.04)
}

func TestArbiterDoesNotLetJobsSaveUpTime(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	w.join("a", Terms{Weight: 0.6, Class: Normal}, &actor{drain: time.Millisecond})
	w.join("b", Terms{Weight: 0.4, Class: Normal},
		&actor{work: time.Second, rest: 20 * time.Second, drain: time.Millisecond})
	w.run(90 * time.Second)

	// However long the other was away, nobody waits for more than two turns.
	for _, wait := range w.actors["a"].waits {
		if wait > time.Second {
			t.Errorf("a waited %s for a job that came back", wait)
		}
	}
}

func TestArbiterPassesOverJobsThatDoNotAnswer(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	stuck := &actor{stuck: true}
	w.join("stuck", Terms{Weight: 0.5, Class: Normal}, stuck)
	w.join("other", Terms{Weight: 0.3, Class: Normal}, &actor{drain: time.Millisecond})
	w.run(4 * time.Second)

	if w.held("other") > 4 {
		t.Error("the other job was granted the GPU too early")
	}

	w.run(6 * time.Second)

	if w.held("other") < 3 {
		t.Errorf("the other job had the GPU for %.1f s while the first did not answer", w.held("other"))
	}

	if fmt.Sprint(w.lost) != "[stuck true]" {
		t.Errorf("reported %v", w.lost)
	}

	// It comes back, and is served again before long.
	stuck.stuck = false
	w.release("stuck", false)
	w.perform()

	before := w.snapshot()
	w.run(2 * time.Minute)

	if fmt.Sprint(w.lost) != "[stuck true stuck false]" {
		t.Errorf("reported %v", w.lost)
	}

	near(t, "after a while it has its share again", w.parts(before)["stuck"], 0.625, 0.1)
}

func TestArbiterKeepsTheQueuesOfLimitedJobsShort(t *testing.T) {
	t.Parallel()

	for _, limit := range []float64{0.3, 0} {
		now := time.Unix(100, 0)
		a := newArbiter(DefaultTuning())
		a.join(now, "a", Terms{Weight: 0.3, Limit: limit, Class: Normal})
		a.join(now, "b", Terms{Weight: 0.3, Limit: 0.9, Class: Normal}) // so that there is a token in any case
		a.take()
		a.want(now, "a")

		if got, want := a.take(), (act{what: actGrant, job: "a", on: limit > 0}); len(got) != 1 || got[0] != want {
			t.Errorf("with a limit of %g and no one else who wants the GPU: %+v, want %+v", limit, got, want)
		}
	}
}

func TestArbiterChoosesModes(t *testing.T) {
	t.Parallel()

	t.Run("terms", func(t *testing.T) {
		t.Parallel()

		w := newWorld(t)
		w.join("a", Terms{Weight: 0.5, Class: Normal}, &actor{})
		mode(t, w, Whole)
		w.join("b", Terms{Weight: 0.5, Class: Normal}, &actor{})
		mode(t, w, Token)
		report(w, 3*time.Second, map[string]uint64{"a": 30, "b": 30})
		mode(t, w, Open)
		w.a.change(w.now, "b", Terms{Weight: 0.5, Class: Normal, Limit: 0.5})
		mode(t, w, Token)
		w.join("c", Terms{Weight: 0.5, Class: Normal}, &actor{})
		measures(t, w, false)
		w.a.leave(w.now, "b")
		mode(t, w, Token)
		measures(t, w, true)
		w.a.leave(w.now, "c")
		mode(t, w, Whole)
		measures(t, w, false)
		w.a.change(w.now, "a", Terms{Weight: 0.5, Class: Normal, Limit: 0.5})
		mode(t, w, Token)
		w.a.fix(w.now, MPS)
		mode(t, w, MPS)
		w.a.fix(w.now, Whole)
		mode(t, w, Token)
	})

	t.Run("a full queue beside neighbours does not close an open GPU, and other work does", func(t *testing.T) {
		t.Parallel()

		w := newWorld(t)
		w.join("a", Terms{Weight: 0.5, Class: Normal}, &actor{})
		w.join("b", Terms{Weight: 0.5, Class: Normal}, &actor{})
		report(w, time.Second, map[string]uint64{"a": 0, "b": 30})
		mode(t, w, Open)

		// What b has in its queue may wait for the time slices of a.
		report(w, 8*time.Second, map[string]uint64{"a": 0, "b": 0})
		mode(t, w, Open)

		// It takes twice as long for each launch, and leaves nothing idle when it has the GPU.
		w.pace = 500
		report(w, 4*time.Second, map[string]uint64{"a": 0, "b": 0})
		mode(t, w, Token)
		report(w, 5*time.Minute, map[string]uint64{"a": 0, "b": 0})
		mode(t, w, Token)
	})

	t.Run("an open GPU is looked at again from time to time, and less often if nothing has changed", func(t *testing.T) {
		t.Parallel()

		w := newWorld(t)
		w.join("a", Terms{Weight: 0.5, Class: Normal}, &actor{})
		w.join("b", Terms{Weight: 0.5, Class: Normal}, &actor{})

		report(w, 10*time.Minute, map[string]uint64{"a": 30, "b": 30})
		mode(t, w, Open)

		// Closed and opened at the beginning, and after about 10, 30, 70, 130, 190, …, 550 seconds.
		if w.modes < 22 || w.modes > 24 {
			t.Errorf("the mode changed %d times, want about 24", w.modes)
		}

		if took := w.closed; took > 12*time.Second {
			t.Errorf("it was closed for %s of 10 minutes", took)
		}
	})

	t.Run("a GPU is opened only if all get their shares then", func(t *testing.T) {
		t.Parallel()

		w := newWorld(t)
		w.join("a", Terms{Weight: 0.8, Class: Normal}, &actor{})
		w.join("b", Terms{Weight: 0.2, Class: Normal}, &actor{})
		mode(t, w, Token)
		report(w, 5*time.Second, map[string]uint64{"a": 0, "b": 25}) // b uses three eighths, which leaves a less than 0.8
		mode(t, w, Token)
		report(w, 5*time.Second, map[string]uint64{"a": 0, "b": 36})
		mode(t, w, Open)
	})

	t.Run("who has nothing to do on an open GPU is not owed anything", func(t *testing.T) {
		t.Parallel()

		w := newWorld(t)
		w.join("a", Terms{Weight: 0.5, Class: Normal}, &actor{})
		w.join("b", Terms{Weight: 0.5, Class: Normal}, &actor{})
		report(w, time.Second, map[string]uint64{"a": 0, "b": 30})
		mode(t, w, Open)
		w.pace = 0
		report(w, 2*time.Second, map[string]uint64{"b": 0})

		before := w.a.clients["b"].use
		w.run(300 * time.Millisecond)
		w.a.settle(w.now)

		if after := w.a.clients["b"].use; after.Demanded != before.Demanded || after.Held != before.Held {
			t.Errorf("it is said to have wanted the GPU for %s", after.Demanded-before.Demanded)
		}
	})
}

// report lets jobs say for some time how often of 40 looks their queue was empty, and that they launch at their pace.
func report(w *world, d time.Duration, empty map[string]uint64) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.run(200 * time.Millisecond)

		if w.a.mode == Token {
			w.closed += 200 * time.Millisecond
		}

		for id, n := range empty {
			w.a.measure(w.now, id, 40, n, w.pace)
			w.perform()
		}
	}
}

func mode(t *testing.T, w *world, want Mode) {
	t.Helper()
	w.perform()

	if w.a.mode != want {
		t.Fatalf("mode is %s, want %s", w.a.mode, want)
	}
}

func measures(t *testing.T, w *world, want bool) {
	t.Helper()
	w.perform()

	if w.a.measuring != want {
		t.Fatalf("demand is measured: %t, want %t", w.a.measuring, want)
	}
}

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()

	r := record{kind: kindDenied, value: [7]uint64{1, 1 << 63, 3, 4, 5, 6, math.MaxUint64}}

	got, err := decode(r.encode())
	if err != nil || got != r {
		t.Errorf("read %v (%v), want %v", got, err, r)
	}

	for _, bad := range [][]byte{nil, r.encode()[:63], append(r.encode(), 0), make([]byte, recordSize)} {
		if _, err := decode(bad); err == nil {
			t.Errorf("%d bytes are a record", len(bad))
		}
	}
}
