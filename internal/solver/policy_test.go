package solver_test

import (
	"fmt"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/harvest"
	"trainyard/internal/place/lp"
	"trainyard/internal/queue"
	"trainyard/internal/solver"
)

// The policy with a real solver: eight nodes, three equal jobs of two users.
func TestThePolicyKeepsConditionsAcrossJobs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p solver.Program) {
		t.Helper()

		for name, tc := range map[string]struct {
			conditions []harvest.Constraint
			right      func(n [3]int) bool
		}{
			"a quota":           {[]harvest.Constraint{{Name: "bob", Users: []id.User{"bob"}, PerGPU: "1", AtMost: 2}}, func(n [3]int) bool { return n[2] >= 1 && n[2] <= 2 && n[0]+n[1]+n[2] == 8 }},
			"one at a time":     {[]harvest.Constraint{{Name: "one", PerJob: "1", AtMost: 1}}, func(n [3]int) bool { return n == [3]int{8, 0, 0} || n == [3]int{0, 8, 0} || n == [3]int{0, 0, 8} }},
			"only together":     {[]harvest.Constraint{{Name: "with", PerJob: "(job == 1) - (job == 3)", AtMost: 0}, {Name: "not", PerJob: "job == 3", AtMost: 0}}, func(n [3]int) bool { return n == [3]int{0, 8, 0} }},
			"neither of a pair": {[]harvest.Constraint{{Name: "apart", PerJob: "job <= 2", AtMost: 1}}, func(n [3]int) bool { return n[0]*n[1] == 0 && n[0]+n[1]+n[2] == 8 }},
		} {
			h, err := harvest.New(harvest.Params{Constraints: tc.conditions, Solve: func(m *lp.Model) (*lp.Solution, error) {
				return p.Solve(t.Context(), m, 20*time.Second)
			}})
			if err != nil {
				t.Fatal(err)
			}

			v := eight()
			plan := h.Plan(v)
			if _, bad := place.Check(v, plan); len(bad) > 0 {
				t.Fatalf("%s: %v", name, bad)
			}

			var n [3]int
			for _, s := range plan.Starts {
				n[s.Item.Number-1] = len(s.Allocations)
			}

			if !tc.right(n) {
				t.Errorf("%s: the jobs get %v nodes", name, n)
			}
		}
	})
}

func eight() *place.View {
	now := time.Date(2026, 11, 15, 9, 0, 0, 0, time.UTC)
	table, line := fleet.NewTable(), queue.New()
	for i := range 8 {
		table.Put(
			&fleet.Node{
				ID:    id.Node(fmt.Sprint("n", i)),
				Class: fleet.Local,
				State: fleet.Ready,
				Since: now,
				Inventory: fleet.Inventory{
					CPUs: 64_000, Memory: 1 << 40, GPUs: []fleet.GPU{{Model: "V100", Memory: 16 << 30}},
				},
			},
			0,
		)
	}

	for i, user := range []id.User{"ada", "ada", "bob"} {
		it := &queue.Item{Job: id.NewJob(uint64(i + 1)), Number: uint64(i + 1), User: user, Outlook: &job.Outlook{
			Submitted: now,
			Resumes:   true,
			Speed:     job.NewSpeed(1e9, time.Second, 0, job.Rate{GPUs: 1, PerSecond: 10}, job.Rate{GPUs: 8, PerSecond: 60}),
		}}

		line.Add(it, fleet.Need{Nodes: 1, MaxNodes: 8, GPUs: 1, MaxGPUs: 1, Place: job.PlaceAny})
	}

	return &place.View{Now: now, Rooms: table.Rooms(), Queue: line}
}
