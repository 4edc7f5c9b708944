package harvest_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/place"
	"trainyard/internal/place/harvest"
	"trainyard/internal/place/knapsack"
)

// bobs is the condition that bob's jobs have so many GPUs at most.
func bobs(most float64) harvest.Params {
	return harvest.Params{
		Solve:       never, // the search meets the conditions too
		Effort:      knapsack.Effort{Rounds: 20, Prices: 20},
		Constraints: []harvest.Constraint{{Name: "bob: 1", Users: []id.User{"bob"}, PerGPU: "1", AtMost: most}},
	}
}

// TestTheConditionThatBarsAJobIsNamed: a job that a condition keeps from starting or running on is
// not told that others could use its nodes better, or nothing at all.
func TestTheConditionThatBarsAJobIsNamed(t *testing.T) {
	t.Parallel()

	four := fleet.Need{Nodes: 4, MaxNodes: 6, GPUs: 1, MaxGPUs: 1}

	y := newYard()
	y.nodes(0, 8)
	bob := y.add(want{need: four, speed: speed(work, 18*time.Second, shuffle), user: "bob"})

	p := y.ask(t, policy(t, bobs(3)))
	at := slices.IndexFunc(p.Waits, func(w place.Wait) bool { return w.Job == bob.Job })
	says := `the condition "bob: 1" allows 3: other jobs use 0, and it needs 4`

	if at < 0 || !strings.HasPrefix(p.Waits[at].Reason, says) || len(p.Starts) > 0 {
		t.Errorf("waits are %+v, want %q", p.Waits, says)
	}

	y.obey(y.ask(t, policy(t, bobs(6))))
	p = y.ask(t, policy(t, bobs(3))) // the condition is tightened

	says = `preempted: the condition "bob: 1" allows 3: other jobs use 0, and it needs 6`
	if len(p.Stops) != 1 || !strings.HasPrefix(p.Stops[0].Reason, says) {
		t.Errorf("stops are %+v, want %q", p.Stops, says)
	}
}

func TestWhyAJobWaitsAlthoughThereIsRoom(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.nodes(0, 4)
	y.tariff = &fleet.Tariff{Nodes: []fleet.NodePrice{{Hourly: []money.PerHour{0, 4}}}}
	y.add(want{speed: speed(work, 18*time.Second, shuffle)})

	p := y.ask(t, policy(t, harvest.Params{Objective: "speedup - 0.5 * n * price"}))
	if len(p.Waits) != 1 || !strings.HasPrefix(p.Waits[0].Reason, "not worth a start now: on 1 GPU it would gain nothing") {
		t.Errorf("waits are %+v", p.Waits)
	}

	y = newYard()
	y.nodes(0, 4)
	y.add(want{need: one(), speed: speed(work, 18*time.Second, shuffle)})
	second := y.add(want{need: one(), speed: speed(work, 18*time.Second, shuffle)})

	p = y.ask(t, policy(t, harvest.Params{MaxParallel: 1}))
	if want := "at most 1 job share the idle nodes, and others go first"; len(p.Waits) != 1 ||
		p.Waits[0] != (place.Wait{Job: second.Job, Reason: want}) {
		t.Errorf("waits are %+v, want %q for %s", p.Waits, want, second.Job)
	}
}

func one() fleet.Need { return fleet.Need{Nodes: 1, MaxNodes: 2, GPUs: 1, MaxGPUs: 1} }

func TestAJobWithoutGPUsStartsAlone(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.nodes(0, 2)
	y.add(want{need: fleet.Need{Nodes: 2, MaxNodes: 2, CPUs: 1000}})

	if p := y.ask(t, harvest.Default()); len(p.Starts) != 1 {
		t.Errorf("it does not start: %+v", p)
	}
}

// TestClaimsAboutConditionsAreTrue: what a reason says of a condition agrees with what bob's jobs have
// after the plan.
func TestClaimsAboutConditionsAreTrue(t *testing.T) {
	t.Parallel()

	claim := regexp.MustCompile(`condition "bob: 1" allows (\d+): other jobs use (\d+), and it needs (\d+)`)

	rapid.Check(t, func(t *rapid.T) {
		y := drawYard(t)

		for range rapid.IntRange(1, 4).Draw(t, "steps") {
			most := rapid.IntRange(0, 6).Draw(t, "most")
			h, err := harvest.New(bobs(float64(most)))
			if err != nil {
				t.Fatal(err)
			}

			for range rapid.IntRange(0, 3).Draw(t, "new jobs") {
				drawJob(t, y)
			}

			p := y.ask(t, h)
			reasons := map[id.Job]string{}
			for _, s := range p.Stops {
				reasons[s.Running.Job] = s.Reason
			}

			for _, w := range p.Waits {
				reasons[w.Job] = w.Reason
			}

			y.obey(p)

			for j, reason := range reasons {
				found := claim.FindStringSubmatch(reason)
				if found == nil {
					continue
				}

				used := 0
				for _, r := range y.running {
					if r.User == "bob" && r.Job != j {
						used += r.GPUs
					}
				}

				says, needs := number(found[2]), number(found[3])
				if number(found[1]) != most || says != used || says+needs <= most {
					t.Fatalf("%s: %q, and others of bob have %d GPUs of %d", j, reason, used, most)
				}
			}

			y.now = y.now.Add(10 * time.Minute)
		}
	})
}

func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// TestAJobIsNotMovedOntoOneThatStays: j1 is better on the kind of GPU that j2 has, and j2 would be on that of j1,
// but it gets no seats there, because the two kinds are seated apart.
func TestAJobIsNotMovedOntoOneThatStays(t *testing.T) {
	t.Parallel()

	y := newYard()
	y.node("n02", "V100", 2, y.now)
	y.node("n03", "A100", 3, y.now)

	need := fleet.Need{Nodes: 1, MaxNodes: 1, GPUs: 2, MaxGPUs: 3, CPUs: 1000}
	rates := map[int]float64{1: 1, 2: 2, 4: 3, 8: 4, 16: 5}
	y.add(want{need: need, speed: speed(100, 0, rates), submitted: 50 * time.Minute})
	y.add(want{need: need})

	for range 3 {
		y.obey(y.ask(t, policy(t, bobs(0)))) // ask fails if the plan cannot be carried out
		y.now = y.now.Add(10 * time.Minute)
	}

	if len(y.running) != 2 {
		t.Errorf("%d jobs run, want both", len(y.running))
	}
}
