package yardmaster

import (
	"fmt"
	"slices"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/provision"
)

// Submit submits the jobs of one file. The answer is a Submitted.
type Submit struct {
	Owner   id.User
	Key     string // idempotency key, "" if none
	KeyHash string // digest of what was submitted
	Jobs    []NewJob
}

// NewJob is one job of a file. Its spec is shared and must not be changed.
type NewJob struct {
	Spec    *job.Spec
	Workdir string
	Needed  map[string]Needed // jobs of other files that it needs, by what its job file calls them
}

// Needed is a job that was submitted before, and its state as it was looked up.
type Needed struct {
	Job   id.Job
	State job.State
}

// Submitted lists the accepted jobs.
type Submitted struct {
	Jobs   []id.Job
	Stored []job.Job // those of the file as they were stored, of an array the first; nil if they were accepted before
	Replay bool      // they were accepted before under the same key
}

func (m Submit) handle(y *Yard) (any, error) {
	if !y.people.MaySubmit(m.Owner) {
		return nil, fault.New(fault.Denied, "user_disabled", "user %s may not submit jobs", m.Owner)
	}
	if len(m.Jobs) == 0 {
		return nil, fault.New(fault.Invalid, "no_jobs", "the submission has no job")
	}

	key := submitKey{m.Owner, m.Key}
	if m.Key != "" {
		if ids, seen := y.keys[key]; seen {
			return y.replay(ids, m.KeyHash)
		}
	}

	if err := y.checkRoom(&m); err != nil {
		return nil, err
	}

	records, err := y.newRecords(&m)
	if err != nil {
		return nil, err
	}

	ids := make([]id.Job, len(records))
	for i, r := range records {
		ids[i] = r.ID
	}

	if m.Key != "" {
		records[0].Key, records[0].KeyHash = m.Key, m.KeyHash
		y.keys[key] = ids
	}

	y.lastJob += uint64(len(ids))
	for _, r := range records {
		y.jobs[r.ID] = r
		y.countJob(r, 1)
		y.accept(r)
		y.changedJob(r)

		y.event(
			Event{
				Kind:   "job.submitted",
				Actor:  string(m.Owner),
				Owner:  m.Owner,
				Job:    r.ID,
				To:     string(r.State),
				Reason: r.Reason,
			},
		)
	}

	sub := Submitted{Jobs: ids, Stored: make([]job.Job, 0, len(m.Jobs))}
	for _, r := range records {
		if r.Index == 0 {
			sub.Stored = append(sub.Stored, r.Job)
		}
	}

	return sub, nil
}

// elements returns how many jobs a job of a file makes.
func (n *NewJob) elements() int {
	if a := n.Spec.Array; a != nil {
		return a.Len()
	}

	return 1
}

// elements returns how many jobs a file makes.
func (m *Submit) elements() int {
	total := 0
	for i := range m.Jobs {
		total += m.Jobs[i].elements()
	}

	return total
}

// newRecords makes the jobs of a file, in its order, and refuses those that may not be submitted. The elements of an
// array have one spec, and numbers that follow each other.
func (y *Yard) newRecords(m *Submit) ([]*jobRecord, error) {
	total := m.elements()
	byName := make(map[string][]id.Job, len(m.Jobs))
	ids := make([]id.Job, 0, total)

	for i := range m.Jobs {
		first := len(ids)
		for range m.Jobs[i].elements() {
			ids = append(ids, id.NewJob(y.lastJob+1+uint64(len(ids))))
		}

		byName[m.Jobs[i].Spec.Name] = ids[first:]
	}

	pipeline := ""
	if total > 1 {
		pipeline = string(ids[0])
	}

	records := make([]*jobRecord, 0, total)

	for i := range m.Jobs {
		nj := &m.Jobs[i]
		first := len(records)

		var array id.Array
		if nj.Spec.Array != nil {
			array = id.NewArray(y.lastJob + 1 + uint64(first))
		}

		for index := range nj.elements() {
			r := &jobRecord{Job: job.Job{
				ID: ids[first+index], Owner: m.Owner, Project: id.Project(nj.Spec.Project), Spec: nj.Spec, Workdir: nj.Workdir,
				Pipeline: pipeline, Array: array, Index: index, State: job.Pending, Submitted: y.now, Since: y.now,
			}}

			r.outlook = job.NewOutlook(&r.Job)

			if index > 0 { // what holds of the first element holds of all
				r.Reference, r.Needs = records[first].Reference, records[first].Needs
				records = append(records, r)

				continue
			}

			y.recordReference(r)

			if err := y.checkNew(r); err != nil {
				return nil, err
			}
			if err := y.resolveNeeds(r, nj, byName); err != nil {
				return nil, err
			}

			records = append(records, r)
		}
	}

	return records, nil
}

// checkNew refuses a job that its owner may not submit, or that could never run.
func (y *Yard) checkNew(r *jobRecord) error {
	if err := y.people.CheckSubmit(r.Owner, r.Project, r.Spec.Priority, y.cfg.Caps); err != nil {
		return err
	}
	if err := y.data.CheckReaders(r.Owner, r.Spec.Data); err != nil {
		return err
	}
	if _, err := y.data.PlaceOf(r.Spec.Place, r.Spec.Data); err != nil {
		return err
	}
	if err := y.checkSecrets(r); err != nil {
		return err
	}
	if err := y.checkSameGPU(r); err != nil {
		return err
	}

	return y.checkPossible(r)
}

// resolveNeeds enters the jobs that a job has to wait for: those of its file, and of the others those that have not
// ended yet.
func (y *Yard) resolveNeeds(r *jobRecord, nj *NewJob, byName map[string][]id.Job) error {
	for _, name := range nj.Spec.Needs {
		if needs, known := byName[name]; known {
			r.Needs = append(r.Needs, needs...)
			continue
		}

		outside, found := nj.Needed[name]
		if !found {
			return fault.New(fault.Invalid, "unknown_need", "job %q needs %q, which is not in the same file",
				nj.Spec.Name, name).
				WithField("needs")
		}

		wait, err := y.mustWait(nj.Spec, outside)
		if err != nil {
			return err
		}
		if !wait || slices.Contains(r.Needs, outside.Job) {
			continue
		}

		r.Needs = append(r.Needs, outside.Job)
	}

	return nil
}

// mustWait reports whether a job has to wait for one that was submitted before. What can never be is refused.
func (y *Yard) mustWait(s *job.Spec, needed Needed) (bool, error) {
	state := needed.State
	if d, ok := y.jobs[needed.Job]; ok {
		state = d.State
	} else if !state.Final() {
		return false, fault.New(fault.Conflict, "need_changed", "job %s has just ended", needed.Job).
			WithField("needs").WithRemedy("submit again")
	}

	switch {
	case s.Released(state):
		return false, nil
	case state.Final():
		return false, fault.New(fault.Invalid, "need_failed", "the needed job %s did not succeed: it is %s",
			needed.Job, state).
			WithField("needs").WithRemedy("name a job that succeeded, or write after: any")
	}

	return true, nil
}

// checkRoom refuses jobs that would be more than a user, or all users together, may have before some have ended: in
// number, and in the text of their specs, which is kept in memory.
func (y *Yard) checkRoom(m *Submit) error {
	const remedy = "wait until some have finished, or cancel some"

	if alive := y.people.Alive(m.Owner); alive+m.elements() > y.cfg.MaxJobs {
		return fault.New(fault.OverLimit, "too_many_jobs", "%s has %d unfinished jobs, the limit is %d",
			m.Owner, alive, y.cfg.MaxJobs).
			WithRemedy(remedy)
	}

	text := y.texts.added(m.Owner, m.Jobs)
	if own := y.people.JobText(m.Owner); y.cfg.MaxJobText > 0 && own+text > y.cfg.MaxJobText {
		return fault.New(fault.OverLimit, "too_much_job_text",
			"the commands and variables of unfinished jobs of %s would have %s, the limit is %s",
			m.Owner, humanize.Size(own+text), humanize.Size(y.cfg.MaxJobText)).
			WithRemedy("put long scripts into files of the working directory, or " + remedy)
	}
	if y.cfg.MaxAllJobText > 0 && y.jobText+text > y.cfg.MaxAllJobText {
		return fault.New(fault.OverLimit, "too_much_job_text",
			"the commands and variables of all unfinished jobs would have %s, the limit is %s",
			humanize.Size(y.jobText+text), humanize.Size(y.cfg.MaxAllJobText)).
			WithRemedy("put long scripts into files of the working directory, or submit again later")
	}

	return nil
}

// checkPossible refuses a job that no node and no offer could ever run, and says what would
// fit. A yard without nodes and offers accepts every job.
func (y *Yard) checkPossible(r *jobRecord) error {
	if !y.cfg.RefuseImpossible || y.nodes.Rooms.Len() == 0 && len(y.cfg.Offers) == 0 {
		return nil
	}

	need, offers := y.need(r), y.leases.Market.All()
	if y.nodes.Fits(need) ||
		fleet.OnDemand.Allows(need.Place) && len(provision.Options(offers, need, provision.Query{Now: y.now})) > 0 {
		return nil
	}

	v := y.basicView(y.now)
	w := place.Explain(v, place.QueuedJob{Need: need, Rule: y.data.RuleText(r.Spec.Place, r.Spec.Data)},
		place.Verdict{Due: true})
	err := fault.New(fault.Invalid, "nothing_fits", "%s", w.Sentence).WithField(impossibleField(&need))
	switch provisionable := len(y.cfg.Offers) > 0 && fleet.OnDemand.Allows(need.Place) && !need.Pinned(); {
	case y.nodes.Rooms.Len() == 0:
		err.Message, w.Remedies = "no offer has "+place.NeedWords(need), nil
	case provisionable:
		err.Message += "; no offer fits either"
	}

	remedies := append(place.Texts(w.Remedies), place.Largest(v, y.cfg.Offers, need.Place))

	return err.WithRemedy("%s", strings.Join(remedies, "; "))
}

// checkSameGPU refuses same_gpu under a policy that would not heed it.
func (y *Yard) checkSameGPU(r *jobRecord) error {
	if !r.Spec.Resources.SameGPU || place.KeepsAlike(y.cfg.Policy) {
		return nil
	}

	return fault.New(fault.Invalid, "not_supported", "policy %s does not support same_gpu", y.cfg.Policy.Name()).
		WithField("resources.same_gpu").WithRemedy("remove it and name one GPU model instead, e.g. gpu: A100")
}

// impossibleField is the field of the job file that most likely is why no node could run a job.
func impossibleField(need *fleet.Need) string {
	switch {
	case need.Only != "":
		return "nodes"
	case need.Pools != "":
		return "pool"
	case need.Labels != "":
		return "labels"
	}

	return "resources"
}

// KeyReused is the error for an idempotency key that was used for another submission;
// first is the first job of that submission.
func KeyReused(first id.Job) error {
	const sentence = "this idempotency key was used for another submission, job %s"

	return fault.New(fault.Conflict, "key_reused", sentence, first).
		WithField("Idempotency-Key").WithRemedy("use a new key for each submission")
}

// replay answers a submission whose key was seen before.
func (y *Yard) replay(ids []id.Job, hash string) (any, error) {
	if first, ok := y.jobs[ids[0]]; ok && first.KeyHash != hash {
		return nil, KeyReused(ids[0])
	}

	return Submitted{Jobs: ids, Replay: true}, nil
}

// accept queues a job, unless it needs jobs that have not succeeded yet.
func (y *Yard) accept(r *jobRecord) {
	r.pendingNeeds = r.Needs // of which none has ended
	for _, n := range r.Needs {
		y.needed[n] = append(y.needed[n], r.ID)
	}

	if len(r.pendingNeeds) > 0 {
		r.Reason = needsReason(r.pendingNeeds)
		return
	}

	r.Reason = "queued"
	y.enqueue(r)

	if note := y.memoryNote(r); note != "" {
		r.Reason += "; " + note
	}
}

// needsReason says for which jobs a job waits.
func needsReason(needs []id.Job) string {
	if len(needs) > 1 {
		return fmt.Sprintf("waiting for required jobs %s and %d more", needs[0], len(needs)-1)
	}

	return "waiting for required job " + string(needs[0])
}
