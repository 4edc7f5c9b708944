package yardmaster

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// launch makes a run of a job on the seats of a plan and orders its nodes to start it.
func (y *Yard) launch(r *jobRecord, s *place.Start) {
	need := s.Item.Shape.Need
	y.dequeue(r)
	r.Epoch++
	r.NotBefore = time.Time{}
	run := &runRecord{Run: job.Run{
		ID: id.NewRun(r.ID, r.Epoch), Job: r.ID, Epoch: r.Epoch, State: job.RunOrdered, Reason: s.Reason, Ordered: y.now,
		Ranks: make([]job.Rank, len(s.Seats)),
	}}
	addresses := make([]string, len(s.Seats))
	for i, seat := range s.Seats {
		run.Ranks[i] = job.Rank{
			Rank: i, Node: seat.Node, GPUs: fleet.Indices(seat.GPUs), Share: seat.Share, CPUs: need.CPUs, Memory: need.Memory, State: job.RunOrdered,
		}
		addresses[i] = y.nodes[seat.Node].Inventory.Address
	}
	y.runs[run.ID] = run
	r.run, r.Last = run, s.Seats[0].Node
	y.nowRunning(r, run, s.Seats)
	y.hold(r, run)
	for i := range run.Ranks {
		y.use(r, &run.Ranks[i], 1)
	}
	y.charge(r, y.weigh(&run.Run))
	y.used(r, run)
	y.changedRun(run)
	run.port = y.masterPort(run)
	for i := range run.Ranks {
		y.open(r, run, i, addresses)
	}
	// The tables allow placing every waiting job, and Apply checked that it waits.
	if err := y.moveJob(r, job.EventPlace, theYard, s.Reason); err != nil {
		y.event(Event{Kind: "yard.bug", Actor: theYard, Job: r.ID, Reason: err.Error()})
	}
}

// hold books what the run's ranks take, with the expected end as far as it is known.
func (y *Yard) hold(r *jobRecord, run *runRecord) {
	ends := y.ends(r, run)
	for i := range run.Ranks {
		k := &run.Ranks[i]
		if k.State == job.RunEnded {
			continue
		}
		y.table.Book(k.Node, fleet.Hold{
			Run: run.ID, Job: r.ID, Owner: r.Owner, GPUs: fleet.Mask(k.GPUs), Share: k.Share, CPUs: k.CPUs, Memory: k.Memory, Since: run.Ordered, Ends: ends,
		})
		if n, ok := y.nodes[k.Node]; ok {
			n.runs[run.ID] = i
		}
		y.touch(k.Node)
	}
	if y.limited() {
		y.commit(r)
		y.keepBooks()
	}
}

// ends returns when a run is expected to end: by what its owner said, else by
// what is left of the work at its rate. Zero if neither is known.
func (y *Yard) ends(r *jobRecord, run *runRecord) time.Time {
	if d := lasts(r.Spec); d > 0 {
		if !run.Started.IsZero() {
			return run.Started.Add(d)
		}
		return run.Ordered.Add(d)
	}
	at, _ := r.running.Ends(y.now)
	return at
}

// weigh returns what the ranks of a run that have not ended count for fair share, and
// settles that where it is new: what a GPU is worth may change while they run.
func (y *Yard) weigh(run *job.Run) float64 {
	total := 0.0
	for i := range run.Ranks {
		k := &run.Ranks[i]
		if k.State == job.RunEnded {
			continue
		}
		if k.Weight == 0 {
			k.Weight = queue.Weight(k.Whole(), 1, float64(k.CPUs)/1000, y.worth(k))
		}
		total += k.Weight
	}
	return total
}

// worth is what each GPU of a rank counts for fair share.
func (y *Yard) worth(k *job.Rank) float64 {
	n, ok := y.nodes[k.Node]
	if !ok || len(k.GPUs) == 0 {
		return 1
	}
	speed := 0.0
	if g := n.Inventory.GPU(k.GPUs[0]); g != nil {
		speed, _ = g.TFLOPS()
	}
	return queue.Worth(speed, k.Hourly/k.Whole())
}

// firstMasterPort is the first of the ports on which rank 0 of a run listens
// for the others. Runs get different ones, because two may share a node.
const firstMasterPort, masterPorts = 29500, 3000

// masterPort chooses a port that no other run has whose rank 0 is on the same node.
func (y *Yard) masterPort(run *runRecord) int {
	taken := y.nodes[run.Ranks[0].Node].ports
	number, _ := run.Job.Number()
	port := firstMasterPort + int((number+uint64(run.Epoch))%masterPorts)
	for range masterPorts {
		if _, used := taken[port]; !used {
			taken[port] = run.ID
			break
		}
		port = firstMasterPort + (port-firstMasterPort+1)%masterPorts
	}
	return port
}

// open orders a rank's node to run it.
func (y *Yard) open(r *jobRecord, run *runRecord, rank int, addresses []string) {
	k := &run.Ranks[rank]
	o := &orderRecord{dirty: true, Order: Order{
		Run: run.ID, Job: r.ID, Epoch: run.Epoch, Rank: rank, Node: k.Node,
		Launch: job.Launch{
			Name: r.Spec.Name, Owner: r.Owner, Workdir: r.Workdir, Setup: r.Spec.Setup, Command: r.Spec.Run, Env: r.Spec.Env,
			GPUs: k.GPUs, Share: k.Share, CPUs: k.CPUs, Memory: k.Memory, Grace: r.Spec.Grace, LogLimit: y.cfg.LogLimit,
			Nodes: addresses, MasterPort: run.port,
		},
	}}
	if c := r.Spec.Checkpoint; c != nil {
		o.Launch.Checkpoint = c.Dir
	}
	for _, name := range r.Spec.Data {
		o.Launch.Data = append(o.Launch.Data, y.data.Ref(name, spotOf(&y.nodes[k.Node].Node)))
	}
	y.orders[o.Key()] = o
	y.out.orders = append(y.out.orders, o)
}

// close ends the order of a rank.
func (y *Yard) close(run id.Run, rank int) {
	key := orderKey(run, rank)
	o, ok := y.orders[key]
	if !ok {
		return
	}
	delete(y.orders, key)
	o.dirty = false
	y.out.closed = append(y.out.closed, key)
}

// stop tells the ranks of a run that have not ended to stop. A run that was
// told to stop gently may still be told to stop at once, never the other way.
func (y *Yard) stop(run *runRecord, mode job.StopMode, why job.Cause) {
	if run.Stop == job.StopNone {
		run.StopFor, run.told = why, y.now
	}
	if r := y.jobs[run.Job]; r.running != nil {
		r.running.Stopping = true
	}
	if run.Stop == mode || run.Stop == job.StopKill {
		return
	}
	run.Stop = mode
	if to, err := run.State.After(job.RunStop); err == nil {
		run.State = to
	}
	y.changedRun(run)
	for i := range run.Ranks {
		o, ok := y.orders[orderKey(run.ID, i)]
		if !ok {
			continue
		}
		o.Stop = mode
		if !o.dirty {
			o.dirty = true
			y.out.orders = append(y.out.orders, o)
		}
	}
}
