package yardmaster

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/queue"
)

// defaultLast is what a job of unknown length is charged for in the order of the line.
const defaultLast = time.Hour

// enqueue puts a waiting job into the line.
func (y *Yard) enqueue(r *jobRecord) {
	if r.item != nil {
		return
	}
	need := y.describeItem(r)
	if why := y.barred(r, need.GPUs*need.Nodes); why != "" {
		y.setAside(r, why)
		return
	}
	r.item = r.entry
	y.line.Add(r.item, need)
	y.round = true
	if len(r.Avoid) > 0 {
		y.forgive(r.item)
	}
}

// describeItem makes a job's entry for the line.
func (y *Yard) describeItem(r *jobRecord) fleet.Need {
	number, _ := r.ID.Number()
	need := y.need(r)
	lasts := r.lasts(&need)
	charge := lasts
	if charge == 0 {
		charge = defaultLast
	}
	r.entry = &queue.Item{
		Job: r.ID, Number: number, User: r.Owner, Project: r.Project, Priority: r.Spec.Priority, Lasts: lasts,
		Cost: weight(&need, need.GPUs, need.Nodes) * charge.Seconds(), Prefer: r.Last, Outlook: r.outlook,
		Spec: r.Spec, Since: y.now,
	}
	return need
}

// forgive lets a job back onto the nodes that failed it when it has waited in
// vain for another one: that one may be lost or drained for good.
func (y *Yard) forgive(it *queue.Item) {
	y.after(y.now.Add(y.cfg.BackoffMost), func(y *Yard) {
		r, ok := y.jobs[it.Job]
		if !ok || r.item != it {
			return
		}
		r.Avoid = nil
		y.changedJob(r)
		y.dequeue(r)
		y.enqueue(r)
	})
}

// dequeue takes a job out of the line.
func (y *Yard) dequeue(r *jobRecord) {
	y.unpromise(r)
	y.bringBack(r)
	if r.item == nil {
		return
	}
	y.line.Remove(r.item)
	r.item = nil
	y.unhire(r.ID)
	// The nodes kept for the first in line are free for others if it was this one.
	if y.held != nil && y.held.Job == r.ID {
		y.held = nil
	}
	y.round = true
}

// lasts returns how long a job will run at most as far as is known, 0 if it is not.
func lasts(s *job.Spec) time.Duration {
	if s.MaxDuration > 0 {
		return time.Duration(s.MaxDuration)
	}
	return time.Duration(s.Expect)
}

// lasts returns how long a job will run at most as far as its owner said, and
// otherwise how long the rest of it takes on as little as it asks for.
func (r *jobRecord) lasts(need *fleet.Need) time.Duration {
	if d := lasts(r.Spec); d > 0 || r.outlook.Speed == nil {
		return d
	}
	var longest time.Duration
	for _, kind := range r.outlook.Speed.Kinds() {
		c := r.outlook.Speed.On(kind, 0)
		count := max(need.GPUs*need.Nodes, c.Least())
		if d, known := r.outlook.Takes(c.Rate(count, need.Nodes)); known {
			longest = max(longest, d)
		}
	}
	return longest
}

func weight(n *fleet.Need, gpus, nodes int) float64 {
	return queue.Weight(float64(gpus), nodes, float64(n.CPUs)/1000, 1) // where it will run is not known yet
}

// user returns the record of a user. Jobs have an owner, but a store that was
// meddled with may name one that is not there: it is treated as one without use.
func (y *Yard) user(u id.User) *userRecord {
	r, ok := y.users[u]
	if !ok {
		r = &userRecord{}
		r.ID = u
		y.users[u] = r
	}
	return r
}

// usage returns a user's decayed use at this time.
func (y *Yard) usage(u id.User) float64 {
	r, ok := y.users[u]
	if !ok {
		return 0
	}
	return queue.Decayed(r.Usage, r.rate, y.now.Sub(r.UsageAt))
}

// projectUsage returns a project's decayed use at this time.
func (y *Yard) projectUsage(p id.Project) float64 { return y.shares.Use(y.now, p) }

// charge changes how much the owner and the project of a job have in use now.
func (y *Yard) charge(j *jobRecord, delta float64) {
	y.shares.Charge(y.now, j.Project, delta)
	r := y.user(j.Owner)
	r.Usage, r.UsageAt = y.usage(j.Owner), y.now
	r.rate += delta
	if r.rate < 1e-9 { // sums of fractions do not come out at zero exactly
		r.rate = 0
	}
	y.changedUser(r)
}
