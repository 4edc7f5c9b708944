package rules

import (
	"cmp"
	"slices"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
	"trainyard/internal/queue"
)

// backlog is what is known of the jobs from round to round: how long each queued job will
// last and what its time is worth, in the order of the last round, and who has jobs here. A
// job is described when it enters the queue and forgotten when it leaves it.
type backlog struct {
	queue     *queue.Queue
	hadOffers bool   // there were offers: jobs have a patience
	version   uint64 // of the timeline
	stays     []stay // by order of submission
	spare     []stay
	order     []*queuedJob // as they were considered last, then the new ones
	jobs      map[id.Job]*queuedJob
	shapes    map[*queue.Shape]*shape
	leased    []*queuedJob // for which nodes are provisioned
	users     queue.Portions[id.User]
	projects  queue.Portions[id.Project]
	running   []*place.Running // as the view had them
	stoppable []stoppableJob   // those of them that could be preempted, by order of submission
}

// stay is a job's stay in the queue.
type stay struct {
	count    uint64
	job      *queuedJob
	volatile bool // the job is described anew in each round
}

// stoppableJob is a running job that could be preempted.
type stoppableJob struct {
	*place.Running
	item    *queue.Item // as it was when the rest was looked up
	outlook *job.Outlook
	takes   timeline.Size
	gpus    uint64
	room    int32
	version uint64 // of the timeline with that room
}

// update brings the backlog up to date with a view.
func (l *backlog) update(e *engine) {
	v := e.view
	if l.queue != v.Queue {
		*l = backlog{queue: v.Queue, jobs: map[id.Job]*queuedJob{}, shapes: map[*queue.Shape]*shape{}}
	}

	if l.version != e.timeline.Version() {
		l.version = e.timeline.Version()
		l.dropProvisioning()
	}

	l.updateRunning(v.Running)

	if offered := len(v.Offers) > 0; offered != l.hadOffers {
		l.hadOffers = offered
		for i := range l.stays {
			l.stays[i].volatile = true
		}
	}

	e.policy.patiences.Forget(v.Queue)
	l.walk(e)
}

// walk compares the queued jobs with those that were there, and describes the new ones.
func (l *backlog) walk(e *engine) {
	old, next := l.stays, l.spare[:0]
	for count, it := range e.view.Queue.Stays {
		for len(old) > 0 && old[0].count != count && old[0].job.item.Number <= it.Number {
			l.leave(old[0].job)
			old = old[1:]
		}

		var s stay
		if len(old) > 0 && old[0].count == count {
			s, old = old[0], old[1:]
		} else {
			s = stay{count, l.enter(it), true}
			l.order = append(l.order, s.job)
		}

		if s.volatile {
			s.volatile = e.describe(s.job)
		}

		next = append(next, s)
	}

	for _, s := range old {
		l.leave(s.job)
	}

	clear(l.stays)
	l.stays, l.spare = next, l.stays
}

func (l *backlog) enter(it *queue.Item) *queuedJob {
	j := newQueuedJob(it, l.shape(it.Shape), l.users.Join(it.User))
	if it.Project != "" {
		j.project = l.projects.Join(it.Project)
	}

	j.shape.jobs++
	l.jobs[it.Job] = j

	return j
}

func (l *backlog) leave(j *queuedJob) {
	j.removed = true
	l.users.Leave(j.item.User)

	if j.item.Project != "" {
		l.projects.Leave(j.item.Project)
	}

	l.release(j)

	if l.jobs[j.item.Job] == j {
		delete(l.jobs, j.item.Job)
	}
}

// shape returns what is known of all jobs with one need.
func (l *backlog) shape(q *queue.Shape) *shape {
	s, ok := l.shapes[q]
	if !ok {
		s = &shape{of: q}
		l.shapes[q] = s
	}

	return s
}

// release drops what is known of a job's shape if nobody else has it.
func (l *backlog) release(j *queuedJob) {
	j.shape.jobs--
	if j.shape.jobs == 0 {
		delete(l.shapes, j.shape.of)
	}
}

// dropProvisioning drops what provisioning for the jobs would cost.
func (l *backlog) dropProvisioning() {
	for i := range l.stays {
		l.stays[i].job.provisioning = nil
	}
}

// updateRunning compares the running jobs with those that ran.
func (l *backlog) updateRunning(list []*place.Running) {
	old, rest := l.running, list
	for len(old) > 0 && len(rest) > 0 {
		switch {
		case old[0] == rest[0]:
			old, rest = old[1:], rest[1:]
		case old[0].Number <= rest[0].Number:
			l.removeRunning(old[0])
			old = old[1:]
		default:
			l.addRunning(rest[0])
			rest = rest[1:]
		}
	}

	for _, r := range old {
		l.removeRunning(r)
	}

	for _, r := range rest {
		l.addRunning(r)
	}

	before := len(l.running)

	l.running = append(l.running[:0], list...)
	if len(list) < before {
		clear(l.running[len(list):before])
	}
}

func (l *backlog) addRunning(r *place.Running) {
	l.users.Join(r.User)

	if r.Project != "" {
		l.projects.Join(r.Project)
	}

	if single(r) && r.Spec != nil && r.Spec.Objective == job.ObjectiveCost {
		at, _ := slices.BinarySearchFunc(l.stoppable, r.Number, byNumber)
		l.stoppable = slices.Insert(l.stoppable, at, stoppableJob{Running: r})
	}
}

func (l *backlog) removeRunning(r *place.Running) {
	l.users.Leave(r.User)

	if r.Project != "" {
		l.projects.Leave(r.Project)
	}

	if at, found := slices.BinarySearchFunc(l.stoppable, r.Number, byNumber); found {
		for ; at < len(l.stoppable) && l.stoppable[at].Number == r.Number; at++ {
			if l.stoppable[at].Running == r {
				l.stoppable = slices.Delete(l.stoppable, at, at+1)
				return
			}
		}
	}
}

func byNumber(c stoppableJob, number uint64) int { return cmp.Compare(c.Number, number) }

// single reports whether a job runs on one node, on whole GPUs.
func single(r *place.Running) bool { return len(r.Allocations) == 1 && r.Allocations[0].Share == 0 }
