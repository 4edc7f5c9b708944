package andreas_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/andreas"
	"trainyard/internal/share"
)

const hour = time.Hour

// TestWhatAJobIsGiven has small yards and what each job in them gets.
func TestWhatAJobIsGiven(t *testing.T) {
	t.Parallel()
	tesla := func(c *cluster) { c.node("t1", "TESLA", 4) }

	both := func(c *cluster) {
		c.node("t1", "TESLA", 4)
		c.node("u1", "TURING", 2)
	}

	for name, tc := range map[string]struct {
		yard func(c *cluster)
		want map[id.Job]string
	}{
		"with time to spare the cheapest": {
			func(c *cluster) {
				both(c)
				c.wait(want{speed: lstm(0, 0), due: 12 * hour, late: 1})
			},
			map[id.Job]string{"j1": "1 TESLA"},
		},
		"with little time the one that is in time": {
			func(c *cluster) {
				both(c)
				c.wait(want{speed: lstm(0, 0), due: 5*hour + 10*time.Minute, late: 1})
			},
			map[id.Job]string{"j1": "2 TESLA"},
		},
		"in an empty yard a long start is no reason to take a slow GPU": {
			func(c *cluster) {
				for i := range 40 {
					c.node(fmt.Sprintf("t%d", i), "TESLA", 4)
					c.node(fmt.Sprintf("u%d", i), "TURING", 2)
				}

				c.wait(want{speed: lstm(time.Minute, time.Minute), due: 12 * hour, late: 1})
			},
			map[id.Job]string{"j1": "1 TESLA"},
		},
		"late, and being late costs less than more GPUs": {
			func(c *cluster) {
				tesla(c)
				c.wait(want{speed: lstm(0, 0), due: -hour, late: 0.01})
			},
			map[id.Job]string{"j1": "1 TESLA"},
		},
		"a kind that is too slow is taken if there is no other": {
			func(c *cluster) {
				c.node("u1", "TURING", 2)
				c.wait(want{speed: lstm(0, 0), due: 6 * hour, late: 1})
			},
			map[id.Job]string{"j1": "1 TURING"},
		},
		"whose deadline is far waits for GPUs that suit it": {
			func(c *cluster) {
				both(c)

				for range 2 {
					c.run(want{speed: lstm(0, 0), due: 5 * hour, late: 10, fixed: true, done: 3 * 3600}, seat("t1", 3<<(c.jobs*2)))
				}

				c.wait(want{speed: lstm(0, 0), due: 200 * hour, late: 1})
			},
			map[id.Job]string{"j1": "stays", "j2": "stays", "j3": ""},
		},
		"late jobs share GPUs that would make one of them hardly faster": {
			func(c *cluster) {
				c.node("k1", "K80", 8)

				for range 8 {
					c.wait(want{speed: alexnet(), due: hour, late: 30})
				}
			},
			map[id.Job]string{"j1": "1 K80", "j2": "1 K80", "j3": "1 K80", "j4": "1 K80", "j5": "1 K80", "j6": "1 K80", "j7": "1 K80", "j8": "1 K80"},
		},
		"a late job takes them when nobody else wants them": {
			func(c *cluster) {
				c.node("k1", "K80", 8)
				c.wait(want{speed: alexnet(), due: hour, late: 30})
			},
			map[id.Job]string{"j1": "8 K80"},
		},
		"of two late jobs the one with less work goes first": {
			func(c *cluster) {
				c.node("k1", "K80", 1)
				c.wait(want{speed: alexnet(), due: -hour, late: 10})
				c.wait(want{speed: alexnet(), due: -hour, late: 10, done: 20 * 3600})
			},
			map[id.Job]string{"j1": "", "j2": "1 K80"},
		},
		"of two late jobs the dearer one goes first": {
			func(c *cluster) {
				c.node("k1", "K80", 1)
				c.wait(want{speed: alexnet(), due: -hour, late: 10})
				c.wait(want{speed: alexnet(), due: -hour, late: 20})
			},
			map[id.Job]string{"j1": "", "j2": "1 K80"},
		},
		"of two that can be in time the more urgent one goes first": {
			func(c *cluster) {
				c.node("k1", "K80", 1)
				c.wait(want{speed: alexnet(), due: 60 * hour, late: 10})
				c.wait(want{speed: alexnet(), due: 23 * hour, late: 10})
			},
			map[id.Job]string{"j1": "", "j2": "1 K80"},
		},
		"a job goes where its memory and its place allow": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.node("t2", "TESLA", 4, func(n *fleet.Node) { n.Class = fleet.Reserved })

				c.node("u1", "TURING", 2, func(n *fleet.Node) {
					for i := range n.Inventory.GPUs {
						n.Inventory.GPUs[i].Memory = 48 << 30
					}
				})

				c.wait(want{speed: lstm(0, 0), due: 12 * hour, late: 1,
					spec: job.Resources{GPUs: job.Range{Min: 1, Max: 2}, GPUMemory: job.ByteRange{Min: 40 << 30}}})
				c.wait(want{speed: lstm(0, 0), due: 12 * hour, late: 1, place: job.PlaceCloud})
			},
			map[id.Job]string{"j1": "1 TURING", "j2": "1 TESLA"},
		},
		"a job on several nodes": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.node("t2", "TESLA", 4)
				wide := job.NewSpeed(8*3600, 0, 0, job.Rate{GPUs: 2, PerSecond: 1}, job.Rate{GPUs: 8, PerSecond: 3.9})
				c.wait(want{speed: wide, due: 150 * time.Minute, late: 50,
					spec: job.Resources{GPUs: job.Range{Min: 1, Max: 4}, Nodes: job.Range{Min: 1, Max: 4}}})
			},
			map[id.Job]string{"j1": "4 TESLA + 4 TESLA"},
		},
		"a job of unknown speed among others": {
			func(c *cluster) {
				tesla(c)
				c.wait(want{speed: lstm(0, 0), due: 12 * hour, late: 1})
				c.wait(want{spec: job.Resources{GPUs: job.Range{Min: 2, Max: 2}}})
				c.wait(want{spec: job.Resources{CPUs: 1000, GPUs: job.Range{Min: 0, Max: 1}}, lasts: hour})
			},
			map[id.Job]string{"j1": "1 TESLA", "j2": "2 TESLA", "j3": "1 TESLA"},
		},
		"a speed that was measured elsewhere": {
			func(c *cluster) {
				c.node("k1", "K80", 2)
				c.wait(want{speed: lstm(0, 0), due: 12 * hour, late: 1, lasts: hour})
			},
			map[id.Job]string{"j1": "1 K80"},
		},
		"a job that needs what is not there waits": {
			func(c *cluster) {
				tesla(c)
				c.wait(want{speed: lstm(0, 0), due: hour, late: 1,
					spec: job.Resources{GPUs: job.Range{Min: 1, Max: 2}, GPUMemory: job.ByteRange{Min: 40 << 30}}})
			},
			map[id.Job]string{"j1": ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			tc.yard(c)

			if diff := cmp.Diff(tc.want, c.given(c.plan(t, policy()))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWhatRuns has jobs that run, and whether they are stopped.
func TestWhatRuns(t *testing.T) {
	t.Parallel()
	full := func(c *cluster, w want) {
		c.node("k1", "K80", 1)
		c.run(w, seat("k1", 1))
	}

	urgent := want{speed: alexnet(), due: 23*hour + time.Minute, late: 30}
	for name, tc := range map[string]struct {
		yard func(c *cluster)
		want map[id.Job]string
	}{
		"it makes way for one that would be late": {
			func(c *cluster) {
				full(c, want{speed: alexnet(), due: 300 * hour, late: 30})
				c.wait(urgent)
			},
			map[id.Job]string{"j1": "", "j2": "1 K80"},
		},
		"it stays if it cannot go on later": {
			func(c *cluster) {
				full(c, want{speed: alexnet(), due: 300 * hour, late: 30, fixed: true})
				c.wait(urgent)
			},
			map[id.Job]string{"j1": "stays", "j2": ""},
		},
		"it stays if it is about to be stopped": {
			func(c *cluster) {
				full(c, want{speed: alexnet(), due: 300 * hour, late: 30})
				c.running[0].Stopping = true
				c.wait(urgent)
			},
			map[id.Job]string{"j1": "stays", "j2": ""},
		},
		"it stays if starting again costs more than is won": {
			func(c *cluster) {
				slow := func(done float64) want {
					return want{speed: job.NewSpeed(23*3600, 2*hour, hour, job.Rate{GPU: "K80", GPUs: 1, PerSecond: 1}), due: -hour, late: 10, done: done}
				}
				full(c, slow(3600))
				c.wait(slow(3 * 3600))
			},
			map[id.Job]string{"j1": "stays", "j2": ""},
		},
		"and makes way when it costs nothing": {
			func(c *cluster) {
				quick := func(done float64) want {
					return want{speed: job.NewSpeed(23*3600, 0, 0, job.Rate{GPU: "K80", GPUs: 1, PerSecond: 1}), due: -hour, late: 10, done: done}
				}
				full(c, quick(3600))
				c.wait(quick(3 * 3600))
			},
			map[id.Job]string{"j1": "", "j2": "1 K80"},
		},
		"it shrinks when it is ahead of its deadline": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.run(want{speed: lstm(time.Minute, time.Minute), due: 12 * hour, late: 1}, seat("t1", 3))
			},
			map[id.Job]string{"j1": "1 TESLA"},
		},
		"it grows when it would be late": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.run(want{speed: lstm(time.Minute, time.Minute), due: 6 * hour, late: 1}, seat("t1", 1))
			},
			map[id.Job]string{"j1": "2 TESLA"},
		},
		"it does not grow for what a start would eat up": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.run(want{speed: lstm(2*hour, hour), due: 6 * hour, late: 1}, seat("t1", 1))
			},
			map[id.Job]string{"j1": "stays"},
		},
		"it leaves a node that can be switched off": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.node("t2", "TESLA", 4)

				for i := range 3 {
					c.run(want{speed: lstm(time.Minute, 0), due: 20 * hour, late: 1}, seat("t1", 1<<i))
				}

				c.run(want{speed: lstm(time.Minute, 0), due: 20 * hour, late: 1}, seat("t2", 1))
			},
			map[id.Job]string{"j1": "stays", "j2": "stays", "j3": "stays", "j4": "1 TESLA"},
		},
		"but not if the node stays on anyway": {
			func(c *cluster) {
				for i := range c.tariff.Nodes {
					c.tariff.Nodes[i].Off = false
				}

				c.node("t1", "TESLA", 4)
				c.node("t2", "TESLA", 4)
				c.run(want{speed: lstm(time.Minute, 0), due: 20 * hour, late: 1}, seat("t1", 1))
				c.run(want{speed: lstm(time.Minute, 0), due: 20 * hour, late: 1}, seat("t2", 1))
			},
			map[id.Job]string{"j1": "stays", "j2": "stays"},
		},
		"nor if it has almost ended": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.node("t2", "TESLA", 4)
				c.run(want{speed: lstm(10*time.Minute, 0), due: 20 * hour, late: 1}, seat("t1", 1))
				c.run(want{speed: lstm(10*time.Minute, 0), due: 20 * hour, late: 1, done: 7*3600 - 60}, seat("t2", 1))
			},
			map[id.Job]string{"j1": "stays", "j2": "stays"},
		},
		"others move together to make room for two GPUs": {
			func(c *cluster) {
				c.node("t1", "TESLA", 2)
				c.node("t2", "TESLA", 2)
				c.run(want{speed: lstm(time.Minute, 0), due: 20 * hour, late: 1}, seat("t1", 1))
				c.run(want{speed: lstm(time.Minute, 0), due: 20 * hour, late: 1}, seat("t2", 1))
				c.wait(want{speed: lstm(0, 0), due: 5*hour + 10*time.Minute, late: 20})
			},
			map[id.Job]string{"j1": "1 TESLA", "j2": "stays", "j3": "2 TESLA"},
		},
		"on a drained node it is left alone": {
			func(c *cluster) {
				c.node("k1", "K80", 1)
				c.run(want{speed: alexnet(), due: 300 * hour, late: 30}, seat("k1", 1))
				c.node("k1", "K80", 1, func(n *fleet.Node) { n.Cordoned = true })
				c.wait(urgent)
			},
			map[id.Job]string{"j1": "stays", "j2": ""},
		},
		"on a GPU with an error it is left alone": {
			func(c *cluster) {
				c.node("k1", "K80", 2)
				c.run(want{speed: alexnet(), due: 300 * hour, late: 30}, seat("k1", 1))
				c.node("k1", "K80", 2, func(n *fleet.Node) { n.Inventory.GPUs[0].Error = "fell off the bus" })
				c.wait(urgent)
				c.wait(urgent)
			},
			map[id.Job]string{"j1": "stays", "j2": "1 K80", "j3": ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			tc.yard(c)

			if diff := cmp.Diff(tc.want, c.given(c.plan(t, policy()))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWithoutDeadlines has jobs that only wait.
func TestWithoutDeadlines(t *testing.T) {
	t.Parallel()
	t.Run("with nothing to reckon with it does what fifo does", func(t *testing.T) {
		t.Parallel()
		c := newCluster()
		c.node("t1", "TESLA", 2)
		c.wait(want{spec: job.Resources{GPUs: job.Range{Min: 2, Max: 2}}})
		c.wait(want{spec: job.Resources{GPUs: job.Range{Min: 1, Max: 1}}})

		p := c.plan(t, policy())
		if len(p.Starts) != 1 || p.Starts[0].Item.Job != "j1" || !strings.Contains(p.Starts[0].Reason, "first in the queue") {
			t.Errorf("starts %+v, want j1 as fifo would", p.Starts)
		}
	})

	t.Run("users take turns", func(t *testing.T) {
		t.Parallel()
		c := newCluster()
		c.node("t1", "TESLA", 1)
		c.wait(want{speed: lstm(0, 0), user: "ada"})
		c.wait(want{speed: lstm(0, 0), user: "bob"})

		c.usage["ada"] = 1e6
		if diff := cmp.Diff(map[id.Job]string{"j1": "", "j2": "1 TESLA"}, c.given(c.plan(t, policy()))); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("they do not push each other aside", func(t *testing.T) {
		t.Parallel()
		c := newCluster()
		c.node("t1", "TESLA", 1)
		c.run(want{speed: lstm(0, 0), user: "ada"}, seat("t1", 1))
		c.wait(want{speed: lstm(0, 0), user: "bob", done: 6 * 3600})
		first := andreas.Defaults()
		first.Search = andreas.Greedy
		for _, p := range []place.Policy{policy(), andreas.New(first)} {
			if diff := cmp.Diff(map[id.Job]string{"j1": "stays", "j2": ""}, c.given(c.plan(t, p))); diff != "" {
				t.Error(diff)
			}
		}
	})

	t.Run("one that would be late goes before them", func(t *testing.T) {
		t.Parallel()
		c := newCluster()
		c.node("t1", "TESLA", 1)
		c.run(want{speed: lstm(0, 0)}, seat("t1", 1))
		c.wait(want{speed: lstm(0, 0), due: 7 * hour, late: 1})

		if diff := cmp.Diff(map[id.Job]string{"j1": "", "j2": "1 TESLA"}, c.given(c.plan(t, policy()))); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("the old one goes before one that has much time", func(t *testing.T) {
		t.Parallel()
		c := newCluster()
		c.node("t1", "TESLA", 1)
		c.wait(want{speed: lstm(0, 0), due: 700 * hour, late: 1})
		c.wait(want{speed: lstm(0, 0), waited: 48 * hour})

		if diff := cmp.Diff(map[id.Job]string{"j1": "", "j2": "1 TESLA"}, c.given(c.plan(t, policy()))); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("alone they have what makes them fast, together less", func(t *testing.T) {
		t.Parallel()
		linear := job.NewSpeed(3600, 0, 0, job.Rate{GPUs: 1, PerSecond: 1}, job.Rate{GPUs: 4, PerSecond: 3.9})
		c := newCluster()
		c.tariff = nil
		c.node("t1", "TESLA", 4)
		c.wait(want{speed: linear})

		if diff := cmp.Diff(map[id.Job]string{"j1": "4 TESLA"}, c.given(c.plan(t, policy()))); diff != "" {
			t.Error(diff)
		}

		for range 3 {
			c.wait(want{speed: linear})
		}

		if diff := cmp.Diff(
			map[id.Job]string{"j1": "1 TESLA", "j2": "1 TESLA", "j3": "1 TESLA", "j4": "1 TESLA"},
			c.given(c.plan(t, policy())),
		); diff != "" {
			t.Error(diff)
		}
	})
}

// TestWaitingByChoiceEnds has only free GPUs of a more expensive kind: the job waits, and takes
// them when it must.
func TestWaitingByChoiceEnds(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.node("t1", "TESLA", 1)
	c.node("u1", "TURING", 2)
	c.run(want{speed: lstm(0, 0), due: hour, late: 10, fixed: true}, seat("t1", 1))
	c.wait(want{speed: lstm(0, 0), due: 40 * hour, late: 1})
	waits := 0

	for {
		p := c.plan(t, policy())
		if len(p.Starts) > 0 {
			break
		}

		if !p.WakeAt.After(c.now) {
			t.Fatalf("it waits since %v and does not ask to be asked again: %v", start, p.WakeAt)
		}

		c.now = p.WakeAt

		waits++
		if waits > 100 {
			t.Fatal("it waits for ever")
		}
	}

	if waited := c.now.Sub(start); waits == 0 || waited < hour || waited > 40*hour {
		t.Errorf("it waited %v, in %d steps", waited, waits)
	}
}

// TestNodesThatMustBootFirst offers the choice between a node in use and one that is off.
func TestNodesThatMustBootFirst(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		boot time.Duration
		want string
	}{"at once": {0, "1 TESLA"}, "after hours": {8 * hour, "1 TURING"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			c.tariff.Nodes[0].Boot = job.Duration(tc.boot)
			c.node("t1", "TESLA", 4)
			c.node("u1", "TURING", 2)
			c.run(want{speed: lstm(0, 0), due: 20 * hour, late: 10, fixed: true}, seat("u1", 1))

			even := job.NewSpeed(
				3600,
				0,
				0,
				job.Rate{GPU: "TESLA", GPUs: 1, PerSecond: 1},
				job.Rate{GPU: "TURING", GPUs: 1, PerSecond: 0.9},
			)

			c.wait(want{speed: even, due: 2 * hour, late: 10})

			if got := c.given(c.plan(t, policy()))["j2"]; got != tc.want {
				t.Errorf("it gets %s, want %s", got, tc.want)
			}
		})
	}
}

// TestJobsThatMayEndEarlyStartSmall has a job that would need two GPUs to be in
// time if it ran to its end.
func TestJobsThatMayEndEarlyStartSmall(t *testing.T) {
	t.Parallel()
	o := andreas.Defaults()
	o.Survival = []float64{0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1}
	for name, tc := range map[string]struct {
		policy place.Policy
		done   float64
		due    time.Duration
		want   string
	}{
		"to its end":                        {policy(), 0, 6 * hour, "2 TESLA"},
		"most end soon":                     {andreas.New(o), 0, 6 * hour, "1 TESLA"},
		"it has lived on, so it will again": {andreas.New(o), 2 * 3600, 4 * hour, "2 TESLA"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			c.node("t1", "TESLA", 4)
			c.wait(want{speed: lstm(0, 0), due: tc.due, late: 0.3, done: tc.done})

			if got := c.given(c.plan(t, tc.policy))["j1"]; got != tc.want {
				t.Errorf("it gets %s, want %s", got, tc.want)
			}
		})
	}
}

// TestSharedGPUs has jobs that can do with half a GPU.
func TestSharedGPUs(t *testing.T) {
	t.Parallel()
	half := func(rate float64) *job.Speed {
		return job.NewSpeed(
			3600,
			0,
			0,
			job.Rate{GPU: "TESLA", GPUs: 1, PerSecond: 1},
			job.Rate{GPU: "TESLA", GPUs: 1, Share: 0.5, PerSecond: rate},
		)
	}

	part := func(node string, gpu uint64) place.Allocation {
		return place.Allocation{Node: id.Node(node), GPUs: gpu, Share: 0.5}
	}
	asksForHalf := job.Resources{GPUs: job.Range{Min: 1, Max: 1}, Nodes: job.Range{Min: 1, Max: 1}, GPUShare: 0.5}
	for name, tc := range map[string]struct {
		yard func(c *cluster)
		want map[id.Job]string
		on   uint64 // GPUs in use then
	}{
		"two that are hardly slower share one": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.wait(want{speed: half(0.95), due: 10 * hour, late: 1})
				c.wait(want{speed: half(0.95), due: 10 * hour, late: 1})
			},
			map[id.Job]string{"j1": "0.5 TESLA", "j2": "0.5 TESLA"}, 0b1,
		},
		"those that are half as fast do not": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.wait(want{speed: half(0.4), due: 10 * hour, late: 1})
				c.wait(want{speed: half(0.4), due: 10 * hour, late: 1})
			},
			map[id.Job]string{"j1": "1 TESLA", "j2": "1 TESLA"}, 0b11,
		},
		"one in a hurry has a GPU to itself": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.wait(want{speed: half(0.8), due: hour + time.Minute, late: 10})
			},
			map[id.Job]string{"j1": "1 TESLA"}, 0b1,
		},
		"one joins a GPU that is shared": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.run(want{speed: half(0.95), due: 10 * hour, late: 1}, part("t1", 0b100))
				c.wait(want{speed: half(0.95), due: 10 * hour, late: 1})
			},
			map[id.Job]string{"j1": "stays", "j2": "0.5 TESLA"}, 0b100,
		},
		"one that shares stays beside one that cannot be stopped": {
			func(c *cluster) {
				c.node("t1", "TESLA", 1)
				c.run(want{speed: half(0.95), due: 10 * hour, late: 1, fixed: true}, part("t1", 1))
				c.run(want{speed: half(0.95), due: 10 * hour, late: 1}, part("t1", 1))
				c.wait(want{speed: half(0.95), due: 10 * hour, late: 1})
			},
			map[id.Job]string{"j1": "stays", "j2": "stays", "j3": ""}, 0b1,
		},
		"two that ask for half a GPU share one": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.wait(want{lasts: hour, spec: asksForHalf, due: 10 * hour, late: 1})
				c.wait(want{lasts: hour, spec: asksForHalf, due: 10 * hour, late: 1})
			},
			map[id.Job]string{"j1": "0.5 TESLA", "j2": "0.5 TESLA"}, 0b1,
		},
		"unless they do badly beside each other": {
			func(c *cluster) {
				c.beside = share.NewInterference()
				for range 10 {
					c.beside.Observe(c.now, "resnet", "llm", 0.3)
				}

				c.node("t1", "TESLA", 4)
				c.wait(want{lasts: hour, spec: asksForHalf, due: 10 * hour, late: 1, program: "llm"})
				c.wait(want{lasts: hour, spec: asksForHalf, due: 10 * hour, late: 1, program: "resnet"})
			},
			map[id.Job]string{"j1": "0.5 TESLA", "j2": "0.5 TESLA"}, 0b11,
		},
		"also if only their speed on a whole GPU is known": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				speed := job.NewSpeed(3600, 0, 0, job.Rate{GPU: "TESLA", GPUs: 1, PerSecond: 1})
				c.wait(want{speed: speed, spec: asksForHalf, due: 10 * hour, late: 1})
				c.wait(want{speed: speed, spec: asksForHalf, due: 10 * hour, late: 1})
			},
			map[id.Job]string{"j1": "0.5 TESLA", "j2": "0.5 TESLA"}, 0b1,
		},
		"one grows to a whole GPU when it would be late": {
			func(c *cluster) {
				c.node("t1", "TESLA", 2)
				c.run(want{speed: half(0.5), due: 65 * time.Minute, late: 50}, part("t1", 1))
			},
			map[id.Job]string{"j1": "1 TESLA"}, 0b1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			tc.yard(c)

			p := c.plan(t, policy())
			if diff := cmp.Diff(tc.want, c.given(p)); diff != "" {
				t.Error(diff)
			}

			c.carryOut(p)

			if room, _ := c.table.Get("t1"); room.Sound&^room.Free != tc.on {
				t.Errorf("GPUs %b are in use, want %b", room.Sound&^room.Free, tc.on)
			}
		})
	}
}

// TestReasons has the words that a researcher reads.
func TestReasons(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		yard func(c *cluster)
		want []string
	}{
		"the cheapest in time": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.wait(want{speed: lstm(0, 0), due: 12 * hour, late: 1})
			},
			[]string{"t1: 1× TESLA 16GB, est. cost $0.74, est. finish 5h before the deadline"},
		},
		"more to be in time": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.wait(want{speed: lstm(0, 0), due: 5*hour + 20*time.Minute, late: 1})
			},
			[]string{"t1: 2× TESLA 16GB, est. cost $0.70, est. finish 20m before the deadline; " +
				"alternative: 1× TESLA 16GB, est. cost $0.74, est. finish 1h40m after the deadline (late cost $1.67)"},
		},
		"without a deadline and a tariff": {
			func(c *cluster) {
				c.tariff = nil
				c.node("t1", "TESLA", 1)
				c.wait(want{speed: lstm(0, 0)})
			},
			[]string{"t1: 1× TESLA 16GB, est. cost 7.00 GPU-hours, est. finish in 7h"},
		},
		"it gives way": {
			func(c *cluster) {
				c.node("k1", "K80", 1)
				c.run(want{speed: alexnet(), due: 300 * hour, late: 30}, seat("k1", 1))
				c.wait(want{speed: alexnet(), due: 22 * hour, late: 30})
			},
			[]string{"preempted: released GPUs go to j2; it can wait 11d13h and still meet its deadline",
				"k1: 1× K80 16GB, est. cost $12.88, est. finish 1h after the deadline (late cost $30.00)"},
		},
		"others have what suits it best": {
			func(c *cluster) {
				c.node("t1", "TESLA", 1)
				c.node("u1", "TURING", 1)
				c.wait(want{speed: lstm(0, 0), due: 8 * hour, late: 30})
				c.wait(want{speed: lstm(0, 0), due: 8 * hour, late: 30})
			},
			[]string{"u1: 1× TURING 16GB, est. cost $1.44, est. finish 9h57m after the deadline (late cost $298.46); " +
				"its best configuration, 1× TESLA 16GB (est. cost $0.74, est. finish 1h before the deadline), " +
				"is not free: j2 has GPUs of that kind",
				"t1: 1× TESLA 16GB, est. cost $0.74, est. finish 1h before the deadline"},
		},
		"it shrinks": {
			func(c *cluster) {
				c.node("t1", "TESLA", 4)
				c.run(want{speed: lstm(time.Minute, 0), due: 12 * hour, late: 1}, seat("t1", 3))
			},
			[]string{"resized from 2 to 1 GPUs; t1: 1× TESLA 16GB, est. cost $0.74, est. finish 4h59m before the deadline", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			tc.yard(c)
			p := c.plan(t, policy())

			var got []string
			for _, s := range p.Stops {
				got = append(got, s.Reason)
			}

			for _, s := range p.Starts {
				if len(got) > 0 && got[len(got)-1] == s.Reason {
					s.Reason = ""
				}

				got = append(got, s.Reason)
			}

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWhyAJobWaitsAlthoughGPUsAreFree: a job that waits for better suited GPUs says what the free
// ones would cost it.
func TestWhyAJobWaitsAlthoughGPUsAreFree(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.node("t1", "TESLA", 1)
	c.node("u1", "TURING", 1)
	c.run(want{speed: lstm(0, 0), due: 8 * hour, late: 30}, seat("t1", 1))
	j := c.wait(want{speed: lstm(0, 0), due: 100 * hour, late: 1})

	p := c.plan(t, policy())
	want := "1× TURING 16GB is free, est. cost $1.44, est. finish 3d10h before the deadline; " +
		"waits for 1× TESLA 16GB, est. cost $0.74, est. finish 3d21h before the deadline"

	if len(p.Starts) > 0 || len(p.Waits) != 1 || p.Waits[0] != (place.Wait{Job: j.Job, Reason: want}) {
		t.Errorf("starts %+v, waits %+v, want %q", p.Starts, p.Waits, want)
	}
}
