package yardmaster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/spec"
)

// Edit changes fields of a job that does not run. The answer is the job.
type Edit struct {
	Job id.Job
	By  id.User
	Set []string // KEY=VALUE, as spec.Set takes them
}

// editable are the fields that may be changed, with all below them.
var editable = []string{
	"priority", "expect", "deadline", "late_cost", "objective", "resources", "pool", "nodes", "avoid",
}

func (m Edit) handle(y *Yard) (any, error) {
	r, edited, err := y.checkedEdit(&m)
	if err != nil {
		return nil, err
	}

	changes, err := spec.Differences(*r.Spec, *edited)
	if err != nil {
		return nil, err
	}
	if len(changes) == 0 {
		return r.Job, nil
	}

	y.replaceSpec(r, edited, m.By)
	y.event(Event{
		Kind: "job.edited", Actor: string(m.By), Owner: r.Owner, Job: r.ID,
		Reason: fmt.Sprintf("edited by %s: %s", m.By, changeText(changes)),
	})

	return r.Job, nil
}

// checkedEdit returns the job of an edit and its spec as it would be, or says why the edit is refused.
func (y *Yard) checkedEdit(m *Edit) (*jobRecord, *job.Spec, error) {
	r, err := y.find(m.Job)
	if err != nil {
		return nil, nil, err
	}

	if !r.State.Waiting() && r.State != job.Paused {
		return nil, nil, fault.New(fault.Conflict, "job_state", "job %s is %s and cannot be edited", r.ID, r.State).
			WithRemedy("only queued and paused jobs can: pause it first, or submit it again with: trainyard rerun %s", r.ID)
	}

	edited, err := y.editedSpec(r, m.Set)
	if err != nil {
		return nil, nil, err
	}

	return r, edited, y.checkEdit(r, edited, m.By)
}

// editedSpec returns the spec of a job with changes, read as a job file is.
func (y *Yard) editedSpec(r *jobRecord, entries []string) (*job.Spec, error) {
	if len(entries) == 0 {
		return nil, fault.New(fault.Invalid, "no_change", "nothing to change").
			WithRemedy("give at least one change, for example priority=60")
	}

	var now time.Time // that a deadline has passed is no obstacle to other changes

	for _, entry := range entries {
		path, _, _ := strings.Cut(entry, "=")
		field, _, _ := strings.Cut(path, ".")
		if !slices.Contains(editable, field) {
			return nil, fault.New(fault.Invalid, "not_editable", "%s of a job cannot be changed after its submission", path).
				WithField(path).
				WithRemedy("%s can; to change others, cancel the job and submit it again with: trainyard rerun %s --set %s",
					humanize.List(editable...), r.ID, entry)
		}

		if field == "deadline" {
			now = y.now
		}
	}

	alone := *r.Spec
	alone.Needs = nil // the jobs of its file are not in this text

	text, err := spec.Set(alone, entries)
	if err != nil {
		return nil, err
	}

	file, err := spec.Parse(text, spec.Options{Now: now})
	if err != nil {
		return nil, fault.WithoutPlace(err)
	}

	edited := &file.Jobs[0].Spec
	edited.Needs = r.Spec.Needs

	return edited, nil
}

// checkEdit refuses what could not have been submitted either.
func (y *Yard) checkEdit(r *jobRecord, edited *job.Spec, by id.User) error {
	if edited.Priority > r.Spec.Priority {
		if err := y.people.CheckSubmit(by, r.Project, edited.Priority, y.cfg.Caps); err != nil {
			return err
		}
	}

	trial := jobRecord{Job: r.Job, outlook: r.outlook}
	trial.Spec = edited
	if y.need(&trial) == y.need(r) {
		return nil // nodes may have left since it was submitted
	}

	return y.checkPossible(&trial)
}

// replaceSpec gives a job another spec, and its place in the queue by that.
func (y *Yard) replaceSpec(r *jobRecord, edited *job.Spec, by id.User) {
	queued, held := r.item != nil || r.promise != nil, r.hold.reason != ""
	before, need := r.Spec, y.need(r)

	y.leaveQueue(r)
	y.countJob(r, -1)

	r.Amended = r.Amended.Edit(edited, by, y.now)
	r.Spec = r.Amended.Apply(before)
	y.countJob(r, 1)
	y.renewOutlook(r, before)
	y.changedJob(r)

	if held {
		r.Reason = "queued" // whether it still has to wait is found out now
	}

	if queued || held {
		y.enqueueSince(r, r.entry.Since)
	}

	// What is being provisioned for it is of use as long as it needs the same.
	if queued && (r.item == nil || !need.SameResources(r.item.Shape.Need)) {
		y.leases.Abandon(y.now, r.ID)
	}
}

// renewOutlook brings up to date what plans know of a job whose spec was another before.
func (y *Yard) renewOutlook(r *jobRecord, before *job.Spec) {
	renewed := *r.outlook // plans that are being made have the one before
	fresh := job.NewOutlook(&r.Job)
	renewed.Deadline, renewed.LateCost = fresh.Deadline, fresh.LateCost
	r.outlook = &renewed

	same := slices.Equal(before.Resources.GPU, r.Spec.Resources.GPU)
	if r.Epoch == 0 && (!same || before.Expect != r.Spec.Expect) {
		r.Reference = job.Reference{} // the run time is expected of another GPU now
		y.recordReference(r)
	}
}

// changeText writes changed fields with their values before and after: "priority from 0 to 60".
func changeText(changes []spec.Difference) string {
	value := func(text string) string {
		if text == "" {
			return "nothing"
		}

		return text
	}

	var parts []string
	for _, c := range changes {
		parts = append(parts, fmt.Sprintf("%s from %s to %s", c.Name, value(c.Before), value(c.After)))
	}

	return strings.Join(parts, ", ")
}
