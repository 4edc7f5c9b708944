package yardmaster_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/yardmaster"
)

// ruledYard is a yard whose data changes its rules while jobs wait, run and move.
type ruledYard struct {
	*yard
	audit map[string]bool // uses that were written down: dataset, run and node
}

var (
	ruledSets  = []id.Dataset{"d0", "d1", "d2"}
	ruledNodes = []id.Node{"a", "b", "c", "d"}
)

// TestDataIsNeverWhereItMayNotBe lets a policy that stops and moves what runs at will meet rules that
// change at any time: no run goes on where its data may not be, unless that was
// let, and every use is written down.
func TestDataIsNeverWhereItMayNotBe(t *testing.T) {
	t.Parallel()

	for name, policy := range map[string]place.Policy{"fifo": ordered.FIFO{}, "restless": restless{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				y := ruledYard{yard: newYard(t), audit: map[string]bool{}}
				y.Yard = yardmaster.New(yardmaster.Defaults(policy))
				seedYard(y.yard)

				for i, n := range ruledNodes {
					if i%2 == 0 {
						y.node(string(n), 2)
					} else {
						y.reserved(string(n), 2)
					}
				}

				for _, d := range ruledSets {
					y.rule(d, job.PlaceAny)
				}

				for range rapid.IntRange(1, 60).Draw(rt, "steps") {
					y.act(rt)
					y.now = y.now.Add(time.Second)
					if y.PlanDue() {
						y.Round(y.now)
					}

					if err := y.sound(); err != nil {
						rt.Fatal(err)
					}
				}
			})
		})
	}
}

// act does one thing by chance. What is refused is refused.
func (y *ruledYard) act(t *rapid.T) {
	job1 := id.NewJob(rapid.Uint64Range(1, 8).Draw(t, "job"))
	aim := placeAt(rapid.IntRange(0, 2).Draw(t, "place"))
	node := rapid.SampledFrom(ruledNodes).Draw(t, "node")
	var m yardmaster.Message

	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0, 1:
		d := rapid.SampledFrom(ruledSets).Draw(t, "data")
		m = yardmaster.PutDataset{
			By:      "alice",
			Dataset: dataset.Dataset{ID: d, Rule: aim, Removed: rapid.IntRange(0, 4).Draw(t, "removed") == 0},
		}
	case 2, 3:
		s := using()
		for _, d := range ruledSets {
			if rapid.Bool().Draw(t, string(d)) {
				s.Data = append(s.Data, string(d))
			}
		}

		s.Place = placeAt(rapid.IntRange(0, 5).Draw(t, "asked"))
		m = yardmaster.Submit{Owner: "alice", Jobs: []yardmaster.NewJob{{Spec: s}}}
	case 4:
		m = yardmaster.Override{Job: job1, Place: job.PlaceAny, By: "alice", Why: "let"}
	case 5:
		m = yardmaster.NodeGone{Node: node, By: "test", Reason: "the power went"}
	case 6:
		m = yardmaster.NodeReport{Node: node, Data: []job.DataCopy{{Name: "d0", Path: "/x"}}}
	default:
		m = y.news(rapid.Bool().Draw(t, "ends"))
	}

	if m != nil {
		_, _ = y.Step(y.now, m)
	}
}

// placeAt is one of the places, mostly any.
func placeAt(i int) job.Place {
	switch i {
	case 0:
		return job.PlaceLocal
	case 1:
		return job.PlaceCloud
	}

	return job.PlaceAny
}

// news lets the first run that can begin or end.
func (y *ruledYard) news(ends bool) yardmaster.Message {
	orders := y.Orders()
	if len(orders) == 0 {
		return nil
	}

	o := orders[0]
	rep := yardmaster.RankReport{Run: o.Run, Rank: o.Rank, State: job.RunRunning, Started: y.now}

	if ends || o.Stop != job.StopNone {
		rep.State, rep.Ended = job.RunEnded, y.now
		rep.Signalled = o.Stop != job.StopNone
		if !rep.Signalled {
			rep.Cause, rep.Reason = job.CauseDataFailed, "it cannot be had"
		}
	}

	return yardmaster.NodeReport{Node: o.Node, Ranks: []yardmaster.RankReport{rep}}
}

// sound checks the whole yard.
func (y *ruledYard) sound() error {
	if err := yardmaster.CheckInvariants(y.Yard, nil); err != nil {
		return err
	}

	b := y.Take()
	for _, u := range b.Uses {
		y.audit[fmt.Sprint(u.Dataset, u.Run, u.Node)] = true
		d := y.ruleOf(u.Dataset)

		class := fleet.Local
		if u.Cloud {
			class = fleet.Reserved
		}

		if !class.Allows(d) && u.Override == "" { // also if nobody knows its rule
			return fmt.Errorf(
				"%s, which may be used on %s nodes, was given to %s on %s and nobody let that",
				u.Dataset,
				d,
				u.Run,
				u.Node,
			)
		}
	}

	for _, e := range b.Events {
		if e.Kind == "yard.bug" {
			return fmt.Errorf("event %+v", e)
		}
	}

	for _, o := range y.Orders() {
		j, _ := yardmaster.JobOf(y.Yard, o.Job)
		n, err := y.NodeByName(o.Node)
		if err != nil {
			return err
		}

		for _, d := range j.Spec.Data {
			rule := y.ruleOf(id.Dataset(d))
			if o.Stop == job.StopNone && j.Override.Place == "" && rule != "" && !n.Class.Allows(rule) {
				return fmt.Errorf("%s goes on on %s, a %s node, and %s may be used on %s nodes", o.Run, o.Node, n.Class, d, rule)
			}
			if !y.audit[fmt.Sprint(d, o.Run, o.Node)] {
				return fmt.Errorf("that %s uses %s on %s is not written down", o.Run, d, o.Node)
			}
		}
	}

	return nil
}

func (y *ruledYard) ruleOf(name id.Dataset) job.Place {
	for _, d := range y.Datasets() {
		if d.ID == name {
			return d.Rule
		}
	}

	return ""
}
