package yardmaster

import (
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// launch creates a run of a job on the GPUs that a plan allocated and orders its nodes to start it.
func (y *Yard) launch(r *jobRecord, s *place.Start) {
	need := s.Item.Shape.Need
	lost := y.workLost(r, s)
	y.chargeLoss(r, s, lost)
	y.decideStart(r, s)
	y.dequeue(r)
	y.leases.Abandon(y.now, r.ID) // also of a job that was moved and not queued
	r.outlook.Slow = 0

	if lost > 0 {
		y.forgetWork(r, s)
	}

	y.noteUnfit(r, s)

	r.Epoch++
	r.NotBefore = time.Time{}
	name := id.NewRun(r.ID, r.Epoch)
	run := &runRecord{Run: job.Run{
		ID: name, UID: y.newUID(string(name)), Job: r.ID, Epoch: r.Epoch, State: job.RunOrdered, Reason: s.Reason,
		Ordered: y.now,
		Ranks:   make([]job.Rank, len(s.Allocations)),
	}}

	for i, allocation := range s.Allocations {
		run.Ranks[i] = job.Rank{
			Rank:   i,
			Node:   allocation.Node,
			GPUs:   fleet.Indices(allocation.GPUs),
			Share:  allocation.Share,
			CPUs:   need.CPUs,
			Memory: need.Memory,
			State:  job.RunOrdered,
		}
	}

	y.runs[run.ID] = run
	y.checkpoints.DropPartial(y.now, &r.Job, run.Epoch)
	y.carryOut(r, run)
	r.run, r.Last = run, s.Allocations[0].Node
	if need.Snapshot { // it may move only to where its snapshot can be continued
		r.entry.Shape = &queue.Shape{Need: y.need(r)}
	}

	y.recordFirstGPU(r, &s.Allocations[0])
	y.updateSaved(r)
	r.running = y.running.add(r.entry, &run.Run, s.Allocations, y.nodes.Of)
	y.bookNodes(r, run)

	for i := range run.Ranks {
		y.countUse(r, &run.Ranks[i], 1)
	}

	y.people.Charge(y.now, r.Owner, r.Project, y.nodes.Weigh(&run.Run))
	y.recordDataUse(r, run)
	y.changedRun(run)

	if first, ok := y.nodes.Get(run.Ranks[0].Node); ok {
		number, _ := run.Job.Number()
		run.port = first.Port(run.ID, number+uint64(run.Epoch))
	}

	from, _ := y.newestOn(r, s)
	shared := y.sharedOn(run)
	addresses := y.networkOf(run)

	for i := range run.Ranks {
		y.open(r, run, i, addresses, from, shared)
	}

	// The life cycle allows placing every waiting job, and start checked that it is one.
	if err := y.moveJob(r, job.EventPlace, theYard, s.Reason); err != nil {
		y.event(Event{Kind: "yard.bug", Actor: theYard, Job: r.ID, Reason: err.Error()})
	}
}

// bookNodes books what the run's ranks hold on their nodes, with the expected end if it is known.
func (y *Yard) bookNodes(r *jobRecord, run *runRecord) {
	ends := expectedEnd(y.now, r.Spec, &run.Run, r.running)

	for i := range run.Ranks {
		k := &run.Ranks[i]
		if k.State == job.RunEnded {
			continue
		}

		if k.Lends() { // it holds memory alone
			y.nodes.Rooms.Book(k.Node, fleet.Hold{
				Run: run.ID, Job: r.ID, Owner: r.Owner, Memory: k.Memory + k.Suspension.Memory, Since: run.Ordered,
			})
			y.enterNode(run, i)

			continue
		}

		y.nodes.Rooms.Book(k.Node, fleet.Hold{
			Run:    run.ID,
			Job:    r.ID,
			Owner:  r.Owner,
			GPUs:   fleet.Mask(k.GPUs),
			Share:  k.Share,
			CPUs:   k.CPUs,
			Memory: k.Memory,
			Cap:    r.entry.Shape.Need.Cap,
			Class:  r.entry.Shape.Need.Class,
			Limit:  r.entry.Shape.Need.Limit,
			MPS:    r.entry.Shape.Need.MPS,
			Since:  run.Ordered,
			Ends:   ends,

			Program: r.entry.Program.Key,
			Pace:    r.running.Pace,
		})

		y.enterNode(run, i)
	}

	if y.limited() {
		y.commit(r)
		y.watchQuotas()
	}
}

// enterNode records that a rank is on its node.
func (y *Yard) enterNode(run *runRecord, rank int) {
	k := &run.Ranks[rank]
	if n, ok := y.nodes.Get(k.Node); ok {
		n.Enter(run.ID, rank)
		y.nodeUsed(n)
	}

	y.meterChanged(k.Node)
}

// open orders a rank's node to run it, from a checkpoint unless that is nil.
func (y *Yard) open(
	r *jobRecord, run *runRecord, rank int, net network, from *checkpoint.Checkpoint, shared string,
) {
	k := &run.Ranks[rank]
	o := Order{
		Run: run.ID, Job: r.ID, Epoch: run.Epoch, Rank: rank, Node: k.Node,
		Launch: job.Launch{
			UID: run.UID, JobUID: y.jobUID(r),
			OwnerNumber: y.people.Number(r.Owner),
			Name:        r.Spec.Name, Owner: r.Owner, Workdir: r.Workdir, Image: r.Spec.Image,
			RegistryAuth: r.Spec.RegistryAuth, Setup: r.Spec.Setup, Command: r.Spec.Script(),
			Python:  r.Spec.Python,
			Env:     r.LaunchEnv(),
			Secrets: r.Spec.Secrets,
			GPUs:    k.GPUs, Share: k.Share, CPUs: k.CPUs, Memory: k.Memory, Grace: r.Spec.Grace, LogLimit: y.cfg.LogLimit,
			Nodes: net.nodes, MasterPort: run.port, Barrier: len(run.Ranks) > 1, Addresses: net.addresses, Slots: net.slots,
			Metrics: r.Spec.Metrics, Target: r.Spec.Target, Shared: shared, Outputs: r.Spec.Outputs,
		},
	}

	if k.Share > 0 {
		need := &r.entry.Shape.Need
		o.Launch.ShareCap, o.Launch.ShareClass, o.Launch.ShareLimit = y.gpuMemory(r, k), need.Class, need.Limit
		o.Launch.ShareMPS = need.MPS
	}

	if c := r.Spec.Checkpoint; c != nil {
		o.Launch.Checkpoint, o.Launch.SaveEvery, o.Launch.Snapshot = c.Dir, c.Every, c.Snapshot
	}

	// A snapshot cannot be continued with an input that is gone.
	o.Launch.Input = r.Spec.Interactive != nil && !o.Launch.Snapshot

	if from != nil && y.restorable(k.Node, from) {
		o.Launch.Restore, run.restore = from.Restore(), from.ID
	}

	for _, name := range r.Spec.Data {
		o.Launch.Data = append(o.Launch.Data, y.data.Ref(name, place.SpotOf(y.nodes.Of(k.Node))))
	}

	if rank == 0 && len(y.origins) > 0 {
		o.Keeps = y.originsOf(r.ID)
	}

	y.orders.Open(&o)
}

// gpuMemory returns how much memory of each of its GPUs a rank may have.
func (y *Yard) gpuMemory(r *jobRecord, k *job.Rank) job.Bytes {
	memory := y.nodes.GPUMemory(k)
	if k.Share == 0 {
		return memory
	}

	cut := r.entry.Shape.Need.Cut(k.Share)

	return cut.CapOn(memory)
}

// stop orders the ranks of a run that have not ended to stop. A run that is stopping within
// its grace period may still be killed, never the other way round.
func (y *Yard) stop(run *runRecord, mode job.StopMode, why job.Cause) {
	y.endPreparation(run)
	y.endLoan(run)

	if run.Stop == job.StopNone {
		run.StopFor, run.stopOrdered = why, y.now
	}

	if r := y.jobs[run.Job]; r.running != nil {
		r.running.Stopping = true
	}

	if run.Stop == mode || run.Stop == job.StopKill {
		return
	}

	// One that continues later is saved, one that was cancelled is not.
	c := y.jobs[run.Job].Spec.Checkpoint
	dump := c != nil && c.Snapshot && run.StopFor == job.CausePreempted && mode == job.StopTerm

	run.Stop = mode
	run.Advance(job.RunStop)
	y.changedRun(run)

	for i := range run.Ranks {
		y.orders.Stop(run.ID, i, mode, dump)
	}
}
