package yardmaster

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// A database that is restored from a backup knows nothing of what happened since, while nodes still
// have the runs of that time. Here the yard notices it by what nodes report, and keeps the two
// histories apart: runs by their UIDs, jobs by numbers that the lost history did not use.

// Seen is what a node has seen of the yard's history; zero if it has not had a run yet.
type Seen struct {
	Number uint64 // of the incarnation
	Mark   id.UID
	Job    uint64 // greatest number of a job that it was to run
}

// SetAsideRun is a rank of a run of another history that a node has stopped and set aside.
type SetAsideRun struct {
	Run  id.Run
	UID  id.UID
	Rank int
	Path string
}

// newUID returns a UID. It differs between two names and between two loads of the yard.
func (y *Yard) newUID(name string) id.UID {
	if y.seed == "" {
		return ""
	}

	return digest(y.seed, name)
}

// jobUID returns the UID of a job, which is the same in every history that has the job: two jobs that
// got the same number after a restore were submitted at different times.
func (y *Yard) jobUID(r *jobRecord) id.UID {
	if y.seed == "" {
		return ""
	}

	return digest(string(r.ID), string(r.Owner), strconv.FormatInt(r.Submitted.UnixMicro(), 10))
}

func digest(parts ...string) id.UID {
	h := sha256.New()
	for _, p := range parts {
		_, _ = h.Write([]byte(p + "\x00")) // it never fails
	}

	return id.UID(hex.EncodeToString(h.Sum(nil)[:16]))
}

// Incarnation returns the incarnation of the yard's history.
func (y *Yard) Incarnation() Incarnation { return y.incarnation }

// isRun reports whether a report is about this run and not about one that got the same id in
// another history. An agent that does not know UIDs is trusted; so is one that does and has a run
// from before it knew them, as long as the yard was never restored.
func (y *Yard) isRun(run *runRecord, rep *RankReport, marks bool) bool {
	if rep.UID == "" {
		return !marks || y.incarnation.Number <= 1
	}

	return rep.UID == run.UID
}

// checkHistory compares what a node has seen with what the yard knows, and begins a new incarnation
// if the yard must have been restored from a backup.
func (y *Yard) checkHistory(m *NodeReport) {
	for i := range m.SetAside {
		s := &m.SetAside[i]
		y.event(Event{Kind: "run.set_aside", Actor: "node/" + string(m.Node), Node: m.Node, Run: s.Run,
			Reason: fmt.Sprintf("node %s had run %s of another history of the yard; it was stopped, and its files are in %s",
				m.Node, s.Run, s.Path)})
	}

	seen, now := &m.Seen, &y.incarnation
	if seen.Number == 0 || now.Number == 0 {
		return
	}

	current := seen.Number == now.Number && seen.Mark == now.Mark
	switch {
	case seen.Number > now.Number || seen.Number == now.Number && !current:
		y.beginIncarnation(m, fmt.Sprintf("node %s has seen a later history of the yard", m.Node))
	case current && seen.Job > y.lastJob:
		y.beginIncarnation(m, fmt.Sprintf("node %s has had job j%d, but the newest job of the database is j%d",
			m.Node, seen.Job, y.lastJob))
	case current:
		if run := y.otherRun(m); run != "" {
			y.beginIncarnation(m, fmt.Sprintf("node %s has another run %s than the database", m.Node, run))
		}
	case seen.Job > y.lastJob:
		y.lastJob = seen.Job // of a history that is known to be lost
	}
}

// otherRun returns a run that the node has or has set aside, with the id of one of the yard's and not that run; "" if
// none is. Jobs from before a restore that is known may have had such runs: they are evidence of nothing new.
func (y *Yard) otherRun(m *NodeReport) id.Run {
	other := func(r id.Run, uid id.UID) bool {
		j, _, _ := r.Split()
		number, _ := j.Number()
		run, ok := y.runs[r]

		return ok && uid != "" && uid != run.UID && number > y.incarnation.Last.Job
	}

	for i := range m.Ranks {
		if rep := &m.Ranks[i]; other(rep.Run, rep.UID) {
			return rep.Run
		}
	}

	for i := range m.SetAside { // before it was ever reported, if the node got the other run first
		if s := &m.SetAside[i]; other(s.Run, s.UID) {
			return s.Run
		}
	}

	return ""
}

// beginIncarnation begins a new history after a node has shown that there was another one.
func (y *Yard) beginIncarnation(m *NodeReport, reason string) {
	found := Numbers{
		Job: max(y.lastJob, m.Seen.Job), Lease: y.leases.Last(), Event: y.feed.Last(), User: uint64(y.people.Last()),
	}
	y.incarnation = y.incarnation.After(y.now, m.Seen.Number, found, reason)
	y.incarnation.Mark = y.newUID(fmt.Sprintf("incarnation %d", y.incarnation.Number))
	y.incarnations = append(y.incarnations, y.incarnation)

	y.lastJob = y.incarnation.Last.Job
	y.leases.Skip(y.incarnation.Last.Lease)
	y.people.Skip(int(y.incarnation.Last.User))
	y.event(y.incarnation.Event())
	y.awaitSettled()
}

// awaitSettled keeps jobs of the history before a restore from starting until every node that may
// have a run of them has stopped it: at once if it is in contact, and otherwise when its contact
// lease has expired. New jobs can have no such runs.
func (y *Yard) awaitSettled() {
	y.settles = y.now.Add(y.cfg.LostAfter)

	for _, j := range sortedKeys(y.jobs) {
		r := y.jobs[j]
		if r.State.Waiting() && y.holdUntilSettled(r) {
			y.dequeue(r)
			y.wake(r)
		}
	}

	y.after(y.settles, func() {
		if !y.incarnation.Unsettled() || y.settles.After(y.now) {
			return // it takes longer by now
		}

		y.incarnation.Settled = y.now
		y.incarnations = append(y.incarnations, y.incarnation)
		y.event(Event{Kind: "yard.settled", Actor: theYard,
			Reason: "jobs from before the restore may start: all their earlier runs have stopped"})
	})
}

// holdUntilSettled lets a job wait if a run of it in another history may still be alive, and reports
// whether that is so.
func (y *Yard) holdUntilSettled(r *jobRecord) bool {
	number, _ := r.ID.Number()
	if !y.incarnation.Unsettled() || number > y.incarnation.Last.Job || !r.NotBefore.Before(y.settles) {
		return false
	}

	r.NotBefore = y.settles
	r.Reason = fmt.Sprintf("the yard was restored from a backup; starts in %s at the earliest, when no node can still "+
		"have an earlier run of it", job.Duration(y.settles.Sub(y.now).Round(time.Second)))
	y.changedJob(r)

	return true
}

// skipEpochs requeues a job whose run a node has refused because it has had a run of the job with
// the same or a later epoch, in a history that was lost. The next run gets an epoch beyond that, and
// the refusal does not count as a failure.
func (y *Yard) skipEpochs(r *jobRecord, run *runRecord) {
	r.Epoch = max(r.Epoch, run.newestEpoch)
	reason := fmt.Sprintf("its node has had run %s in a history of the yard that was lost",
		id.NewRun(r.ID, run.newestEpoch))
	y.retry(r, job.Handling{}, job.CauseLaunchFailed, reason, false)
}
