package rules_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place/rules"
	"trainyard/internal/queue"
)

// The bound on starvation. A job that has waited for Ageing goes before all others of
// its priority that came after it; from then on its nodes are kept for it, and it
// waits for what runs at most. So among jobs of one priority a job that its yard can
// run, with nobody older in front of it, starts within
//
//	Ageing + starveFactor · (the longest run time in the yard)
//
// whatever comes after it, and however much. One run time is what its nodes may be
// busy for when it comes to the front; the other is for run times that were passed on:
// a job that was just started for another's sake.
const starveFactor = 2

// stream submits jobs all the time.
type stream struct {
	every time.Duration
	want  func(n int) want
}

// starve submits a job, lets a stream of others come, and returns how long it waited.
func starve(t failer, y *yard, it want, s stream, bound time.Duration) time.Duration {
	n := 0
	for ; n < 8; n++ { // the yard is in use when it comes, and nobody waits
		first := y.submit(s.want(n))
		y.round(t)

		if _, began := y.began[first.Job]; !began {
			y.line.Remove(first)
			break
		}
	}

	j := y.submit(it)
	arrival := y.now

	last := queueUse(y)
	for y.now.Before(start.Add(bound + time.Minute)) {
		last()
		y.round(t)

		if at, began := y.began[j.Job]; began {
			return at.Sub(start)
		}

		y.pass(min(y.next(time.Hour), max(arrival.Add(s.every).Sub(y.now), time.Second)))

		for !y.now.Before(arrival.Add(s.every)) {
			arrival = arrival.Add(s.every)
			y.submit(s.want(n))
			n++
		}
	}

	return math.MaxInt64
}

// queueUse returns what charges users and projects for what ran since it was called last.
func queueUse(y *yard) func() {
	at := y.now
	return func() {
		passed := y.now.Sub(at)
		at = y.now

		rates, shares := map[id.User]float64{}, map[id.Project]float64{}
		for _, r := range y.runs {
			rates[r.User] += float64(r.GPUs)
			shares[r.Project] += float64(r.GPUs)
		}

		for _, it := range y.items {
			if _, known := y.usage[it.User]; !known {
				y.usage[it.User] = 0
			}

			if _, known := y.projects[it.Project]; !known {
				y.projects[it.Project] = 0
			}
		}

		for u, use := range y.usage {
			y.usage[u] = queue.Decayed(use, rates[u], passed)
		}

		for p, use := range y.projects {
			y.projects[p] = queue.Decayed(use, shares[p], passed)
		}
	}
}

// TestNobodyStarves sets streams against one job that they would keep out for ever.
func TestNobodyStarves(t *testing.T) {
	t.Parallel()
	const ageing, longest = 3 * time.Hour, time.Hour
	bound := ageing + starveFactor*longest
	for _, mine := range objectives() {
		for _, theirs := range objectives() {
			for _, tc := range []struct {
				name string
				it   want
				s    stream
			}{
				{"small jobs against a wide one", want{gpus: 4, nodes: 2, lasts: longest}, stream{3 * time.Minute, func(n int) want {
					return want{gpus: 1, lasts: time.Duration(20+n%40) * time.Minute, user: id.User(fmt.Sprint("u", n%5))}
				}}},
				{"many users against one", want{gpus: 1, lasts: longest, user: "heavy"}, stream{2 * time.Minute, func(n int) want {
					return want{gpus: 1 + n%4, lasts: 15 * time.Minute, user: id.User(fmt.Sprint("light", n))}
				}}},
				{"short jobs against a long one", want{gpus: 8, lasts: longest}, stream{time.Minute, func(n int) want {
					return want{gpus: 2 + n%2, lasts: 10 * time.Minute}
				}}},
				{"jobs that save themselves", want{gpus: 8, lasts: longest, resumes: true}, stream{4 * time.Minute, func(n int) want {
					return want{gpus: 4, lasts: time.Duration(30+n%30) * time.Minute, resumes: true, every: time.Minute}
				}}},
			} {
				t.Run(fmt.Sprintf("%s/%s against %s", tc.name, mine, theirs), func(t *testing.T) {
					t.Parallel()
					y := newYard(func(c *rules.Config) { c.Ageing = ageing })
					y.node("a", fleet.Local, 8, a100())
					y.node("b", fleet.Local, 8, a100())
					y.usage["heavy"] = 1e9
					it, s := tc.it, tc.s
					it.objective = mine
					s.want = func(n int) want {
						w := tc.s.want(n)
						w.objective = theirs
						return w
					}

					if waited := starve(t, y, it, s, bound); waited > bound {
						t.Errorf("it waited for more than %s", bound)
					}
				})
			}
		}
	}
}

// TestNobodyStarvesAtRandom draws the streams.
func TestNobodyStarvesAtRandom(t *testing.T) {
	t.Parallel()
	const ageing, longest = 2 * time.Hour, time.Hour
	bound := ageing + starveFactor*longest
	rapid.Check(t, func(t *rapid.T) {
		y := newYard(func(c *rules.Config) { c.Ageing = ageing })
		for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
			y.node(fmt.Sprint("n", i), fleet.Local, 4, a100())
		}

		it := want{
			gpus: rapid.IntRange(1, 4).
				Draw(t, "gpus"),
			nodes:     rapid.IntRange(1, y.table.Len()).Draw(t, "job nodes"),
			lasts:     longest,
			objective: rapid.SampledFrom(objectives()).Draw(t, "objective"),
			user:      "one",
		}

		var kinds []want
		for range rapid.IntRange(1, 4).Draw(t, "kinds") {
			kinds = append(kinds, want{
				gpus: rapid.IntRange(1, 4).
					Draw(t, "their gpus"),
				lasts: time.Duration(rapid.IntRange(5, 60).Draw(t, "minutes")) * time.Minute,
				objective: rapid.SampledFrom(objectives()).
					Draw(t, "their objective"),
				resumes: rapid.Bool().Draw(t, "resumes"),
				user:    rapid.SampledFrom([]id.User{"one", "two", "three"}).Draw(t, "user"),
			})
		}

		y.usage["one"] = float64(rapid.IntRange(0, 1_000_000).Draw(t, "use"))

		s := stream{
			time.Duration(rapid.IntRange(2, 20).Draw(t, "every")) * time.Minute,
			func(n int) want { return kinds[n%len(kinds)] },
		}

		if waited := starve(t, y, it, s, bound); waited > bound {
			t.Fatalf("it waited for more than %s", bound)
		}
	})
}

// TestWhoUsedMoreStandsBack: of two jobs that are alike that of the user, and that of
// the project, goes first that has used less, although it came later.
func TestWhoUsedMoreStandsBack(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		name           string
		heavy, light   want
		users, project float64
	}{
		{"users", want{user: "heavy"}, want{user: "light"}, 1e6, 0},
		{"projects", want{user: "a", project: "heavy"}, want{user: "b", project: "light"}, 0, 1e6},
	} {
		y := newYard()
		y.node("a", fleet.Local, 4, a100())
		y.usage["heavy"], y.projects["heavy"] = tc.users, tc.project

		for _, w := range []*want{&tc.heavy, &tc.light} {
			w.gpus, w.lasts = 4, time.Hour
		}

		y.submit(tc.heavy)

		light := y.submit(tc.light)
		if p := y.plan(t); where(p, light) == nil {
			t.Errorf("%s: the plan is %+v, want the lighter to go first", tc.name, p.Starts)
		}
	}
}

// TestEqualDemandGetsEqualShares lets two users, or two projects, always have work
// waiting, of the same kinds. Over ten days they get the same GPU-hours within a
// twentieth, although one has used more before.
func TestEqualDemandGetsEqualShares(t *testing.T) {
	t.Parallel()
	const tolerance = 0.05
	for _, by := range []string{"user", "project"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			y := newYard(func(c *rules.Config) { c.Ageing = 1000 * time.Hour })
			y.node("a", fleet.Local, 4, a100())
			y.node("b", fleet.Local, 4, a100())

			who := func(name string, i int) want {
				w := want{gpus: 1 + i%2, lasts: time.Duration(1+i%3) * time.Hour}
				w.user = id.User(name)
				if by == "project" {
					w.user, w.project = id.User(fmt.Sprint(name, i%2)), id.Project(name)
				}

				return w
			}

			of := func(it *queue.Item) string {
				if by == "project" {
					return string(it.Project)
				}

				return string(it.User)
			}

			use := queueUse(y)
			had := map[string]float64{}
			waiting := map[string]int{}
			count := map[string]int{}

			y.usage["ada"], y.projects["ada"] = 1e5, 1e5
			for end := y.now.Add(10 * 24 * time.Hour); y.now.Before(end); {
				clear(waiting)
				for _, it := range y.line.Items() {
					waiting[of(it)]++
				}

				for _, name := range []string{"ada", "ben"} {
					for ; waiting[name] < 12; waiting[name]++ { // both always have something to do
						y.submit(who(name, count[name]))
						count[name]++
					}
				}

				use()
				y.round(t)
				before := y.now

				now := map[string]float64{}
				for _, r := range y.runs {
					now[of(r.Item)] += float64(r.GPUs)
				}

				y.pass(y.next(time.Hour))

				for k, gpus := range now {
					had[k] += gpus * y.now.Sub(before).Hours()
				}
			}

			if total := had["ada"] + had["ben"]; math.Abs(had["ada"]-had["ben"]) > tolerance*total || total < 1500 {
				t.Errorf("ada had %.0f and ben %.0f GPU-hours", had["ada"], had["ben"])
			}
		})
	}
}

// TestTheWholeLineIsLookedAt: however many wait in vain in front, and however little
// the round may look at, a job for which a node is idle starts.
func TestTheWholeLineIsLookedAt(t *testing.T) {
	t.Parallel()
	y := newYard(func(c *rules.Config) { c.Visits = 10 })
	for i := range 20 {
		y.node(fmt.Sprintf("busy%02d", i), fleet.Local, 4, a100())
		y.occupy(id.Node(fmt.Sprintf("busy%02d", i)), 0, want{gpus: 4, lasts: 10 * time.Hour})
	}

	y.node("idle", fleet.Local, 4, t4())
	y.offer("aws/h100", 4, h100(), 40, time.Minute)

	for range 100 {
		y.submit(want{gpus: 4, kind: "A100", lasts: time.Hour, prio: 50, objective: job.ObjectiveCost})
	}

	last := y.submit(want{gpus: 4, kind: "T4", lasts: 5 * time.Hour})
	if p := y.plan(t); where(p, last) == nil {
		t.Errorf("the plan is %+v, want the last to start on the idle node", p)
	}
}

// meanWaits lets a yard of 12 nodes work off 300 jobs, a third of them gangs, and returns how long all of them and how
// long the gangs waited on average, in hours.
func meanWaits(t *testing.T, visits int) (all, gangs float64) {
	t.Helper()
	y := newYard(func(c *rules.Config) { c.Visits = visits })
	for i := range 12 {
		y.node(fmt.Sprintf("n%02d", i), fleet.Local, 4, a100())
	}

	for i := range 300 {
		w := want{gpus: 1 + i%4, lasts: time.Duration(10+i*37%290) * time.Minute, user: id.User(fmt.Sprint("u", i%5))}
		if i%3 == 0 {
			w.gpus, w.nodes = 4, 2+i%2
		}

		y.submit(w)
	}

	count := 0
	for y.line.Len() > 0 || len(y.runs) > 0 {
		for _, s := range y.round(t).Starts {
			waited := y.now.Sub(start).Hours()
			all += waited
			if s.Item.Shape.Need.Nodes > 1 {
				gangs += waited
				count++
			}
		}

		y.pass(y.next(time.Hour))
	}

	return all / 300, gangs / float64(count)
}

// TestFewerReservationsCostLittle: for how many jobs nodes are reserved is bounded in a long queue. With an eighth of
// the visits jobs, and gangs among them, wait about as long.
func TestFewerReservationsCostLittle(t *testing.T) {
	t.Parallel()
	const tolerance = 0.05

	all, gangs := meanWaits(t, 1<<12)
	fewAll, fewGangs := meanWaits(t, 1<<9)
	if math.Abs(fewAll-all) > tolerance*all || math.Abs(fewGangs-gangs) > tolerance*gangs {
		t.Errorf("with few reservations jobs wait for %.2f h and gangs for %.2f h, with many for %.2f h and %.2f h",
			fewAll, fewGangs, all, gangs)
	}
}
