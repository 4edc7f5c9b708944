package rules

import (
	"cmp"
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/timeline"
	"trainyard/internal/queue"
	"trainyard/internal/share"
)

// backlog is what is known of the jobs from round to round: how long each queued job will
// last and what its time is worth, in the order in which they are considered (lanes), and who has
// jobs here. A job is described when it enters the queue and forgotten when it leaves it; a round
// looks at those that have entered and left since the last one.
type backlog struct {
	queue       *queue.Queue
	position    uint64 // in the changes of the queue, up to which they are known
	now         time.Time
	hadOffers   bool   // there were offers: jobs have a patience
	version     uint64 // of the timeline
	generation  uint64 // incremented when offers or nodes have changed: see queuedJob.provisioning
	comparisons uint64 // with all jobs of the queue
	jobs        map[id.Job]*queuedJob
	volatile    map[*queuedJob]bool // described anew in each round
	undescribed []*queuedJob        // described in this round
	shapes      map[*queue.Shape]*shape
	past        *queue.Past
	pastVersion uint64
	kins        map[queue.Kin]*kin
	lanes
	leased    []*queuedJob // for which nodes are provisioned
	users     queue.Portions[id.User]
	projects  queue.Portions[id.Project]
	running   []*place.Running     // as the view had them
	stoppable []stoppableJob       // those of them that could be preempted, by order of submission
	demands   map[share.Demand]int // what the queued jobs ask for
	parts     int                  // how many jobs share a GPU, or want to
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
		*l = backlog{
			queue: v.Queue, jobs: map[id.Job]*queuedJob{}, volatile: map[*queuedJob]bool{},
			shapes: map[*queue.Shape]*shape{}, kins: map[queue.Kin]*kin{}, lanes: newLanes(),
			demands: map[share.Demand]int{},
		}
	}

	if l.version != e.timeline.Version() {
		l.version = e.timeline.Version()
		l.dropProvisioning()
	}

	l.updateRunning(v.Running)
	l.updateKins(e)
	e.policy.patiences.Forget(v.Queue)
	l.updateQueued()

	if offered := len(v.Offers) > 0; offered != l.hadOffers {
		l.hadOffers = offered
		l.undescribed = l.undescribed[:0]
		for _, j := range l.jobs {
			l.volatile[j] = true
		}
	}

	l.describe(e)

	if v.Now.Before(l.now) {
		l.rejuvenate(v.Now)
	}

	l.now = v.Now
	l.age(v.Now)
}

// updateQueued finds out who has entered the queue and who has left it.
func (l *backlog) updateQueued() {
	changes, ok := l.queue.ChangesSince(l.position)
	l.position = l.queue.Position()

	if !ok {
		l.compare()
		return
	}

	for c := range changes {
		if c.Item != nil {
			l.enter(c.Stay, c.Item)
			continue
		}

		if j := l.jobs[c.Job]; j != nil && j.stay == c.Stay {
			l.leave(j)
		}
	}
}

// compare compares all queued jobs with those that were there.
func (l *backlog) compare() {
	l.comparisons++

	for stay, it := range l.queue.Stays {
		j := l.jobs[it.Job]
		if j != nil && j.stay != stay {
			l.leave(j)
			j = nil
		}

		if j == nil {
			j = l.enter(stay, it)
		}

		j.comparison = l.comparisons
	}

	for _, j := range l.jobs {
		if j.comparison != l.comparisons {
			l.leave(j)
		}
	}
}

func (l *backlog) enter(stay uint64, it *queue.Item) *queuedJob {
	j := newQueuedJob(it, l.shape(it.Shape), l.users.Join(it.User))
	j.stay = stay
	if it.Project != "" {
		j.project = l.projects.Join(it.Project)
	}

	j.shape.jobs++
	l.jobs[it.Job] = j
	count(l.demands, &j.shape.of.Need, 1)
	l.countPart(j.shape.of.Need.Share, 1)
	l.undescribed = append(l.undescribed, j)

	return j
}

func (l *backlog) leave(j *queuedJob) {
	l.users.Leave(j.item.User)
	count(l.demands, &j.shape.of.Need, -1) // as it was counted; its item may have another shape by now
	l.countPart(j.shape.of.Need.Share, -1)

	if j.item.Project != "" {
		l.projects.Leave(j.item.Project)
	}

	l.remove(j)
	l.release(j)
	delete(l.volatile, j)

	if l.jobs[j.item.Job] == j {
		delete(l.jobs, j.item.Job)
	}
}

// describe describes the new jobs and those of which the answer may be another in this round. It does so by order of
// submission: the patience of a job depends on those before it.
func (l *backlog) describe(e *engine) {
	for j := range l.volatile {
		l.undescribed = append(l.undescribed, j)
	}

	slices.SortFunc(l.undescribed, func(a, b *queuedJob) int { return cmp.Compare(a.number, b.number) })

	for _, j := range l.undescribed {
		l.remove(j)

		if e.describe(j) {
			l.volatile[j] = true
		} else {
			delete(l.volatile, j)
		}

		l.add(j, e.view.Now)
	}

	clear(l.undescribed)
	l.undescribed = l.undescribed[:0]
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

// release drops what is known of a job's shape, and of its kin if there are many, if nobody else has it.
func (l *backlog) release(j *queuedJob) {
	j.shape.jobs--
	if j.shape.jobs == 0 {
		delete(l.shapes, j.shape.of)
	}

	if j.kin == nil {
		return
	}

	j.kin.jobs--
	if j.kin.jobs == 0 && len(l.kins) > maxKins {
		delete(l.kins, j.kin.of)
	}
}

// maxKins is how many kins are kept until more of the past is known also if they have no queued job: in a yard that
// is not full, jobs like those that have just started come one at a time.
const maxKins = 4096

// kinOf returns what is known of how long a queued job takes that does not say so.
func (l *backlog) kinOf(e *engine, it *queue.Item) *kin {
	of := queue.KinOf(it)
	k, ok := l.kins[of]
	if !ok {
		k = e.newKin(of)
		l.kins[of] = k
	}

	k.jobs++

	return k
}

// updateKins estimates anew how long jobs take, if more of the past is known.
func (l *backlog) updateKins(e *engine) {
	past, version := e.view.Past, e.view.Past.Version()
	if past == l.past && version == l.pastVersion {
		return
	}

	l.past, l.pastVersion = past, version
	for of, k := range l.kins {
		if k.jobs == 0 {
			delete(l.kins, of)
			continue
		}

		k.estimate(e)
	}
}

// dropProvisioning drops what provisioning for the jobs would cost.
func (l *backlog) dropProvisioning() { l.generation++ }

// updateRunning compares the running jobs with those that ran.
func (l *backlog) updateRunning(list []*place.Running) {
	same := 0 // at the beginning
	for same < len(l.running) && same < len(list) && l.running[same] == list[same] {
		same++
	}

	old, rest := l.running[same:], list[same:]
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

	l.running = append(l.running[:same], list[same:]...)
	if len(list) < before {
		clear(l.running[len(list):before])
	}
}

func (l *backlog) addRunning(r *place.Running) {
	l.users.Join(r.User)
	l.countPart(partOf(r), 1)

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
	l.countPart(partOf(r), -1)

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

// partOf returns the share of a GPU on which a job runs, 0 on whole ones.
func partOf(r *place.Running) float64 {
	if len(r.Allocations) != 1 {
		return 0
	}

	return r.Allocations[0].Share
}

// single reports whether a job runs on one node, on whole GPUs.
func single(r *place.Running) bool { return len(r.Allocations) == 1 && r.Allocations[0].Share == 0 }
