package place_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
)

// texts are remedies of which only the words count.
func texts(list ...string) []place.Remedy {
	var remedies []place.Remedy
	for _, text := range list {
		remedies = append(remedies, place.Remedy{Text: text})
	}

	return remedies
}

// TestExplain has for each blocker the whole answer, as a researcher reads it.
func TestExplain(t *testing.T) {
	t.Parallel()
	drained := func(n *fleet.Node) { n.Cordoned = true }
	noSpace := func(n *fleet.Node) {
		n.Inventory.Problem = &fleet.Problem{Cause: "no_space", Reason: "less than 256 MB free on the disk that holds /data"}
	}
	state := func(s fleet.State) func(*fleet.Node) { return func(n *fleet.Node) { n.State = s } }

	alone := func(n *fleet.Node) { n.Inventory.SingleUser = true }
	of := func(owner id.User, n fleet.Need) fleet.Need {
		n.Owner = owner
		return n
	}

	long := func(owner id.User, d time.Duration) fleet.Need {
		n := of(owner, need(1, nil))
		n.Length = job.Duration(d)

		return n
	}

	gang := func(n int) func(*job.Spec) {
		return func(s *job.Spec) { s.Resources.Nodes = job.Range{Min: n, Max: n} }
	}
	other := func(n *fleet.Node) {
		for i := range n.Inventory.GPUs {
			n.Inventory.GPUs[i] = fleet.GPU{Index: i, Model: "Tesla T4", Memory: 16 << 30}
		}
	}
	same := func(s *job.Spec) {
		gang(2)(s)
		s.Resources.SameGPU = true
	}
	named := func(pools, only, except string) fleet.Need {
		n := need(1, nil)
		n.Pools, n.Only, n.Except = pools, only, except

		return n
	}

	labelled := need(1, nil)
	labelled.Labels = "|ssd|zone=a|"

	for name, tc := range map[string]struct {
		yard  func(y yard)
		need  fleet.Need
		lasts time.Duration
		held  *place.Reservation
		// said is whether the policy says why, due whether it has yet to decide.
		said bool
		due  bool
		want place.Why // Holders are checked by their jobs
		by   []id.Job
	}{
		"no node": {
			yard: func(yard) {}, need: need(1, nil),
			want: place.Why{Blocker: place.BlockNoNode, Sentence: "no node has joined the yard",
				Remedies: texts("join a node: trainyard tokens create --join, then trainyard agent join on the machine")},
		},
		"dedicated to another user": {
			yard: func(y yard) {
				y.node("a", 4, alone)
				y.hold("a", "j1", 1, 1000, time.Hour)
			}, need: of("ada", need(1, nil)),
			want: place.Why{Blocker: place.BlockResources, Nodes: []id.Node{"a"},
				Sentence: "jobs of different users are not isolated from each other on a (in use by bob), so it waits until " +
					"their jobs there have ended",
				Remedies: texts("ask an operator to run the agent there as root, so that each user's jobs run under a user id of " +
					"their own, or to allow jobs of several users with --mix-users yes")},
			by: []id.Job{"j1"},
		},
		"dedicated to its owner": {
			yard: func(y yard) {
				y.node("a", 4, alone)
				y.hold("a", "j1", 1, 1000, time.Hour)
			}, need: of("bob", need(1, nil)), due: true,
			want: place.Why{Blocker: place.BlockNone, Sentence: "a has room; considered in the next scheduling round"},
		},
		"busy, and another node with room is dedicated": {
			yard: func(y yard) {
				y.node("a", 4, alone)
				y.hold("a", "j1", 1, 1000, time.Hour)
				y.node("b", 1, nil)
				y.hold("b", "j2", 1, 1000, 0)
			}, need: of("ada", need(1, nil)),
			want: place.Why{Blocker: place.BlockResources, Nodes: []id.Node{"b"},
				Sentence: "1 GPU and 1 CPU needed, not free on b, the only suitable node; a has room, but does not isolate users " +
					"and is dedicated to bob until it is empty",
				Remedies: texts("b has room for it when j2 (bob) has ended")},
			by: []id.Job{"j2"},
		},
		"only a node that is not there": {
			yard: func(y yard) { y.node("a", 4, nil) }, need: named("", "|b|", ""),
			want: place.Why{
				Blocker:  place.BlockNoFit,
				Sentence: "the job file allows only node b, and none of them could run it; node b not found",
				Remedies: texts("change pool, nodes and avoid of the job: without them a could run it"),
			},
		},
		"only nodes of a pool that are too small": {
			yard: func(y yard) {
				y.node("a", 4, nil)
				y.node("b", 0, func(n *fleet.Node) { n.Pool = "lab" })
			}, need: named("|attic|lab|", "", "|c|"),
			want: place.Why{
				Blocker: place.BlockNoFit,
				Sentence: "the job file allows only nodes of pools attic or lab without c, and none of them could run it; " +
					"no node is in pool attic",
				Remedies: texts("change pool, nodes and avoid of the job: without them a could run it"),
			},
		},
		"only nodes with labels that none has": {
			yard: func(y yard) {
				y.node("a", 4, func(n *fleet.Node) { n.Inventory.Labels = []string{"ssd"} })
			}, need: labelled,
			want: place.Why{
				Blocker: place.BlockNoFit,
				Sentence: "the job file allows only nodes with labels ssd and zone=a, and none of them could run it; " +
					"no node has label zone=a",
				Remedies: texts("change pool, nodes, labels and avoid of the job: without them a could run it"),
			},
		},
		"the only node is busy, another has room": {
			yard: func(y yard) {
				y.node("a", 4, nil)
				y.node("b", 1, nil)
				y.hold("b", "j2", 1, 1000, 0)
			}, need: named("", "", "|a|"),
			want: place.Why{Blocker: place.BlockResources, Nodes: []id.Node{"b"},
				Sentence: "1 GPU and 1 CPU needed, not free on b, the only suitable node; a has room, but the job file allows " +
					"all nodes without a",
				Remedies: texts("b has room for it when j2 (bob) has ended")},
			by: []id.Job{"j2"},
		},
		"reserved for another user": {
			yard: func(y yard) {
				y.node("a", 4, func(n *fleet.Node) {
					n.Reserved = &fleet.Reservation{User: "eve", Until: time.Date(2027, 1, 2, 15, 0, 0, 0, time.UTC)}
				})
			}, need: of("ada", need(1, nil)),
			want: place.Why{Blocker: place.BlockReserved, Sentence: "a is reserved for eve until 2027-01-02 15:00 UTC",
				NotBefore: time.Date(2027, 1, 2, 15, 0, 0, 0, time.UTC),
				Remedies:  texts("ask an operator to end the reservation: trainyard reservations")},
		},
		"reserved for other users, one of them soon": {
			yard: func(y yard) {
				at := func(hour int) time.Time { return time.Date(2027, 1, 2, hour, 0, 0, 0, time.UTC) }
				y.node("a", 4, func(n *fleet.Node) { n.Reserved = &fleet.Reservation{User: "eve", Until: at(15)} })
				y.node("b", 4, func(n *fleet.Node) {
					n.Upcoming = &fleet.Upcoming{
						Reservation: &fleet.Reservation{User: "eve", From: at(12), Until: at(14)}, Longest: job.Duration(time.Hour),
					}
				})
				y.node("c", 0, func(n *fleet.Node) { n.Reserved = &fleet.Reservation{User: "eve", Until: at(13)} })
				y.node("d", 4, func(n *fleet.Node) { n.Reserved = &fleet.Reservation{User: "eve", Until: at(16)} })
			}, need: long("ada", 2*time.Hour),
			want: place.Why{Blocker: place.BlockReserved, Sentence: "a is reserved for eve until 2027-01-02 15:00 UTC, " +
				"b is reserved for eve until 2027-01-02 14:00 UTC, from 2027-01-02 12:00 UTC on, before the job would have ended " +
				"and d is reserved for eve until 2027-01-02 16:00 UTC",
				NotBefore: time.Date(2027, 1, 2, 14, 0, 0, 0, time.UTC),
				Remedies:  texts("ask an operator to end the reservation: trainyard reservations")},
		},
		"reserved soon, for longer than it takes": {
			yard: func(y yard) {
				y.node("a", 4, func(n *fleet.Node) {
					n.Upcoming = &fleet.Upcoming{Reservation: &fleet.Reservation{User: "eve"}, Longest: job.Duration(time.Hour)}
				})
			}, need: long("ada", time.Hour), due: true,
			want: place.Why{Blocker: place.BlockNone, Sentence: "a has room; considered in the next scheduling round"},
		},
		"reserved for its owner": {
			yard: func(y yard) {
				y.node("a", 4, func(n *fleet.Node) { n.Reserved = &fleet.Reservation{User: "ada"} })
			}, need: of("ada", need(1, nil)), due: true,
			want: place.Why{Blocker: place.BlockNone, Sentence: "a has room; considered in the next scheduling round"},
		},
		"nothing": {
			yard: func(y yard) { y.node("a", 4, nil) }, need: need(1, nil), due: true,
			want: place.Why{Blocker: place.BlockNone, Sentence: "a has room; considered in the next scheduling round"},
		},
		"a policy that says why": {
			yard: func(y yard) { y.node("a", 4, nil) }, need: need(1, nil), said: true,
			want: place.Why{Blocker: place.BlockPolicy}, // what it says is the sentence
		},
		"a policy that does not": {
			yard: func(y yard) { y.node("a", 4, nil) }, need: need(1, nil),
			want: place.Why{Blocker: place.BlockPolicy, Sentence: "a has room, but policy fifo lets the job wait"},
		},
		"what a policy said before the yard changed": {
			yard: func(y yard) { y.node("a", 4, nil) }, need: need(1, nil), said: true, due: true,
			want: place.Why{Blocker: place.BlockNone, Sentence: "a has room; considered in the next scheduling round"},
		},
		"too many GPUs": {
			yard: func(y yard) {
				y.node("a", 4, nil)
				y.node("b", 2, nil)
			}, need: need(8, nil),
			want: place.Why{Blocker: place.BlockNoFit, Sentence: "no node has 8 GPUs and 1 CPU",
				Remedies: texts("request at most 4 GPUs, 16 CPUs and 64 GB of memory per node, as a has, or add a node")},
		},
		"a GPU that is not there": {
			yard: func(y yard) { y.node("a", 4, nil) },
			need: need(1, func(s *job.Spec) {
				s.Resources.GPU, s.Resources.Memory = []job.GPUKind{{Model: "H100"}, {Model: "A100", Memory: 40 << 30}}, 32<<30
			}),
			want: place.Why{Blocker: place.BlockNoFit, Sentence: "no node has 1× A100 40GB or H100, 1 CPU and 32 GB of memory",
				Remedies: texts("allow other GPU models; trainyard nodes lists those of the yard")},
		},
		"unlike nodes for a job with same_gpu": {
			yard: func(y yard) {
				y.node("a", 4, nil)
				y.node("b", 4, other)
			}, need: need(2, same),
			want: place.Why{Blocker: place.BlockNoFit,
				Sentence: "2 nodes with the same GPU model needed (same_gpu), the yard has at most 1: A100 80GB on a and T4 16GB on b",
				Remedies: texts("remove same_gpu, or add a node")},
		},
		"one of two alike nodes is busy": {
			yard: func(y yard) {
				y.node("a", 2, nil)
				y.hold("a", "j1", 3, 1000, 0)
				y.node("b", 2, nil)
				y.node("c", 2, other)
			}, need: need(2, same),
			want: place.Why{Blocker: place.BlockResources, Nodes: []id.Node{"a"},
				Sentence: "2 nodes with 2 GPUs and 1 CPU each needed, free on 1 of 2 suitable nodes",
				Remedies: texts("a has room for it when j1 (bob) has ended")},
			by: []id.Job{"j1"},
		},
		"GPU memory": {
			yard: func(y yard) { y.node("a", 1, nil) },
			need: need(2, func(s *job.Spec) {
				s.Resources.GPUMemory, s.Resources.CPUs = job.ByteRange{Min: 24 << 30, Max: 48 << 30}, 0
			}),
			want: place.Why{Blocker: place.BlockNoFit, Sentence: "no node has 2 GPUs with 24 GB to 48 GB",
				Remedies: texts("add a node that could run it")},
		},
		"memory after an escalation": {
			yard: func(y yard) { y.node("a", 1, nil) },
			need: fleet.NeedOf(&job.Spec{Place: job.PlaceAny, Resources: job.Resources{GPUs: job.Range{Min: 1, Max: 1}}},
				job.Floor{GPUMemory: 80 << 30}, nil),
			want: place.Why{Blocker: place.BlockNoFit, Sentence: "no node has 1 GPU with more than 80 GB of memory",
				Remedies: texts("add a node that could run it")},
		},
		"too many nodes": {
			yard: func(y yard) {
				y.node("a", 4, nil)
				y.node("b", 4, nil)
				y.node("c", 0, nil)
			}, need: need(4, gang(3)),
			want: place.Why{Blocker: place.BlockNoFit, Sentence: "3 nodes with 4 GPUs and 1 CPU each needed, the yard has 2",
				Remedies: texts("request at most 2 nodes, or add nodes")},
		},
		"no node of its place": {
			yard: func(y yard) { y.node("a", 4, nil) }, need: need(1, func(s *job.Spec) { s.Place = job.PlaceCloud }),
			want: place.Why{Blocker: place.BlockNoFit, Sentence: "place is cloud, but the yard has no cloud node",
				Remedies: texts("set place: any, or add such a node")},
		},
		"only nodes it failed on": {
			yard: func(y yard) {
				y.node("a", 4, nil)
				y.node("b", 4, nil)
			},
			need: fleet.NeedOf(&job.Spec{Place: job.PlaceAny}, job.Floor{}, []id.Node{"b", "a"}),
			want: place.Why{Blocker: place.BlockBackoff, Sentence: "failed on a and b and no other node could run it; it may " +
				"run there again after a delay",
				Remedies: texts("add a node that could run it")},
		},
		"drained and silent": {
			yard: func(y yard) {
				y.node("a", 4, drained)
				y.node("b", 4, state(fleet.Suspect))
				y.node("c", 0, nil)
			}, need: need(1, nil),
			want: place.Why{Blocker: place.BlockClosed,
				Sentence: "2 nodes could run it, but a is cordoned and b is suspect", Remedies: texts("trainyard uncordon a")},
		},
		"without space": {
			yard: func(y yard) {
				y.node("a", 4, noSpace)
				y.node("b", 4, func(n *fleet.Node) { noSpace(n); drained(n) })
			}, need: need(1, nil),
			want: place.Why{Blocker: place.BlockClosed,
				Sentence: "2 nodes could run it, but a takes no jobs (less than 256 MB free on the disk that holds /data) and " +
					"b takes no jobs (less than 256 MB free on the disk that holds /data)"},
		},
		"many are closed": {
			yard: func(y yard) {
				for _, n := range []string{"a", "b", "c", "d", "e"} {
					y.node(n, 1, state(fleet.Lost))
				}

				y.node("f", 1, nil)
			}, need: need(1, gang(2)),
			want: place.Why{Blocker: place.BlockClosed,
				Sentence: "2 nodes needed; 6 nodes could run it, but a is lost, b is lost, c is lost and 2 more are unavailable"},
		},
		"others hold the GPUs": {
			yard: func(y yard) {
				y.node("a", 4, nil)
				y.node("b", 4, nil)
				y.hold("a", "j1", 0b0111, 1000, 0)
				y.hold("b", "j2", 0b1111, 1000, time.Hour)
				y.hold("b", "j3", 0, 1000, time.Minute)
			}, need: need(4, nil),
			want: place.Why{Blocker: place.BlockResources, Sentence: "4 GPUs and 1 CPU needed, at most 1 free on any of 2 " +
				"suitable nodes; j2 (bob) is expected to release 4 GPUs on b at 10:00 UTC",
				Nodes: []id.Node{"b", "a"}, Remedies: texts("a has room for it with gpus: 1",
					"b has room for it when j2 (bob) has ended")},
			by: []id.Job{"j2", "j1"},
		},
		"others hold the CPUs": {
			yard: func(y yard) {
				y.node("a", 4, nil)
				y.hold("a", "j1", 0, 15000, time.Hour)
			},
			need: need(0, func(s *job.Spec) { s.Resources.CPUs = 2000 }),
			want: place.Why{Blocker: place.BlockResources, Sentence: "2 CPUs needed, not free on a, the only suitable node; " +
				"j1 (bob) is expected to release its part of a at 10:00 UTC",
				Nodes: []id.Node{"a"}, Remedies: texts("a has room for it when j1 (bob) has ended")},
			by: []id.Job{"j1"},
		},
		"it is next, and the time is known": {
			yard: func(y yard) {
				y.node("a", 2, nil)
				y.hold("a", "j1", 1, 1000, time.Hour)
			}, need: need(2, nil),
			held: &place.Reservation{Job: "j9", Nodes: []id.Node{"a"}, At: now.Add(time.Hour)},
			want: place.Why{Blocker: place.BlockResources, Start: now.Add(time.Hour), Nodes: []id.Node{"a"},
				Sentence: "2 GPUs and 1 CPU needed, at most 1 free on a, the only suitable node; j1 (bob) is expected to " +
					"release 1 GPU on a at 10:00 UTC; next in the queue, expected to start at 10:00 UTC if no job overtakes it",
				Remedies: texts("a has room for it with gpus: 1", "a has room for it when j1 (bob) has ended")},
			by: []id.Job{"j1"},
		},
		"a gang that is next": {
			yard: func(y yard) {
				y.node("a", 2, nil)
				y.node("b", 2, nil)
				y.node("c", 2, nil)
				y.hold("a", "j1", 1, 1000, 0)
				y.hold("b", "j2", 1, 1000, 0)
			}, need: need(2, gang(3)),
			held: &place.Reservation{Job: "j9", Nodes: []id.Node{"c", "a", "b"}},
			want: place.Why{Blocker: place.BlockResources, Nodes: []id.Node{"a", "b"},
				Sentence: "3 nodes with 2 GPUs and 1 CPU each needed, free on 1 of 3 suitable nodes; next in the queue, c and 2 " +
					"other nodes are reserved for it",
				Remedies: texts("a and b have room for it when j1 (bob) and j2 (bob) have ended")},
			by: []id.Job{"j1", "j2"},
		},
		"kept for another": {
			yard: func(y yard) {
				y.node("a", 2, nil)
				y.node("b", 1, nil)
				y.hold("b", "j1", 1, 1000, 0)
			}, need: need(2, nil),
			held: &place.Reservation{Job: "j5", Nodes: []id.Node{"a"}},
			want: place.Why{Blocker: place.BlockReserved, Sentence: "a has room but is reserved for j5, which is ahead in " +
				"the queue",
				Remedies: texts("set expect for the jobs running there, so that gaps can be filled")},
		},
		"kept for another until a time": {
			yard: func(y yard) { y.node("a", 2, nil) }, need: need(1, nil), lasts: 2 * time.Hour,
			held: &place.Reservation{Job: "j5", Nodes: []id.Node{"a"}, At: now.Add(90 * time.Minute)},
			want: place.Why{Blocker: place.BlockReserved,
				Sentence: "a has room but is reserved for j5, which is ahead in the queue and is expected to start at 10:30 UTC",
				Remedies: texts("only a job that has ended by then may start there: set expect or max_duration to at most 1h30m, if it is that short")},
		},
		"kept for another until a time at which it has ended": {
			yard: func(y yard) { y.node("a", 2, nil) }, need: need(1, nil), lasts: 90 * time.Minute,
			held: &place.Reservation{Job: "j5", Nodes: []id.Node{"a"}, At: now.Add(90 * time.Minute)},
			want: place.Why{Blocker: place.BlockReserved,
				Sentence: "a has room but is reserved for j5, which is ahead in the queue and is expected to start at 10:30 UTC"},
		},
		"a gang of which one node is kept": {
			yard: func(y yard) {
				y.node("a", 1, nil)
				y.node("b", 1, nil)
			}, need: need(1, gang(2)),
			held: &place.Reservation{Job: "j5", Nodes: []id.Node{"b"}},
			want: place.Why{Blocker: place.BlockReserved, Sentence: "b has room but is reserved for j5, which is ahead in " +
				"the queue",
				Remedies: texts("set expect for the jobs running there, so that gaps can be filled")},
		},
		"free GPUs that are kept are not offered": {
			yard: func(y yard) {
				y.node("a", 2, nil)
				y.hold("a", "j1", 1, 1000, 0)
			}, need: need(2, nil),
			held: &place.Reservation{Job: "j5", Nodes: []id.Node{"a"}},
			want: place.Why{Blocker: place.BlockResources, Sentence: "2 GPUs and 1 CPU needed, at most 1 free on a, the only " +
				"suitable node",
				Nodes: []id.Node{"a"}, Remedies: texts("a has room for it when j1 (bob) has ended")},
			by: []id.Job{"j1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard()
			tc.yard(y)
			got := place.Explain(y.view(), place.QueuedJob{
				Job: "j9", Need: tc.need, Short: tc.held.EndsBefore(now, tc.lasts),
			}, place.Verdict{Policy: "fifo", Reservation: tc.held, Said: tc.said, Due: tc.due})

			var by []id.Job
			for _, h := range got.Holders {
				by = append(by, h.Job)
			}

			got.Holders = nil
			got.Remedies = texts(place.Texts(got.Remedies)...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}

			if diff := cmp.Diff(tc.by, by); diff != "" {
				t.Errorf("holders: %s", diff)
			}
		})
	}
}

// TestExplainNamesTheDataset has a yard whose nodes could run the job but for its data.
func TestExplainNamesTheDataset(t *testing.T) {
	t.Parallel()
	const rule = "dataset mri may only be used on local nodes"
	const ask = "ask the owner of the data to change its rule, or an admin to override it for this job"
	cloud := func(n *fleet.Node) { n.Class = fleet.Reserved }

	at := func(gpus int, p job.Place) fleet.Need { return need(gpus, func(s *job.Spec) { s.Place = p }) }
	for name, tc := range map[string]struct {
		yard func(y yard)
		need fleet.Need
		want place.Why
	}{
		"no node of that place": {
			yard: func(y yard) { y.node("c", 4, cloud) }, need: at(1, job.PlaceLocal),
			want: place.Why{Blocker: place.BlockData, Sentence: rule + ", and the yard has no local node",
				Remedies: texts("add such a node", ask)},
		},
		"nowhere at all": {
			yard: func(y yard) {
				y.node("a", 4, nil)
				y.node("c", 4, cloud)
			}, need: at(1, job.PlaceNowhere),
			want: place.Why{Blocker: place.BlockData, Sentence: rule, Remedies: texts(ask)},
		},
		"too small where it may be": {
			yard: func(y yard) {
				y.node("a", 1, nil)
				y.node("c", 8, cloud)
			}, need: at(8, job.PlaceLocal),
			want: place.Why{Blocker: place.BlockNoFit, Sentence: "no node has 8 GPUs and 1 CPU; c has room, but " + rule,
				Remedies: texts("request at most 1 GPU, 16 CPUs and 64 GB of memory per node, as a has, or add a node", ask)},
		},
		"too small everywhere": {
			yard: func(y yard) { y.node("a", 1, nil) }, need: at(8, job.PlaceLocal),
			want: place.Why{Blocker: place.BlockNoFit, Sentence: "no node has 8 GPUs and 1 CPU; " + rule,
				Remedies: texts("request at most 1 GPU, 16 CPUs and 64 GB of memory per node, as a has, or add a node")},
		},
		"closed where it may be": {
			yard: func(y yard) {
				y.node("a", 1, func(n *fleet.Node) { n.State = fleet.Lost })
				y.node("c", 1, cloud)
			}, need: at(1, job.PlaceLocal),
			want: place.Why{Blocker: place.BlockClosed,
				Sentence: "1 node could run it, but a is lost; c has room, but " + rule, Remedies: texts(ask)},
		},
		"all busy: it is not the rule": {
			yard: func(y yard) {
				y.node("a", 1, func(n *fleet.Node) { n.State = fleet.Lost })
				y.node("c", 1, cloud)
				y.hold("c", "j1", 1, 1000, 0)
			}, need: at(1, job.PlaceLocal),
			want: place.Why{Blocker: place.BlockClosed, Sentence: "1 node could run it, but a is lost"},
		},
		"nothing blocks": {
			yard: func(y yard) {
				y.node("a", 1, nil)
				y.node("c", 1, cloud)
			}, need: at(1, job.PlaceLocal),
			want: place.Why{Blocker: place.BlockNone, Sentence: "a has room; considered in the next scheduling round"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard()
			tc.yard(y)
			v := y.view()
			got := place.Explain(v, place.QueuedJob{Job: "j9", Need: tc.need, Rule: rule}, place.Verdict{Due: true})
			got.Remedies = texts(place.Texts(got.Remedies)...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHoldersAreBounded(t *testing.T) {
	t.Parallel()
	y := newYard()
	y.node("a", 1, func(n *fleet.Node) { n.Inventory.CPUs = 100_000 })

	for i := range uint64(100) {
		y.hold("a", id.NewJob(i+1), 0, 1000, 0)
	}

	why := place.Explain(y.view(), place.QueuedJob{Job: "j200", Need: need(0, nil)}, place.Verdict{})
	if len(why.Holders) != 20 || len(why.Nodes) != 20 {
		t.Errorf("%d holders on %d nodes are listed, want 20", len(why.Holders), len(why.Nodes))
	}
}
