package yardmaster

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/inbox"
	"trainyard/internal/job"
	"trainyard/internal/money"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/timers"
)

// Questions to people. Whatever wants a decision calls ask with the job and the kind of question; what there is to
// decide is worked out by situation from the yard as it is, when it is asked and once more when an option is
// accepted, so that what is carried out is what was agreed to.

// questionRecord is an open question.
type questionRecord struct {
	inbox.Question
	batch.Mark
	expiry *timers.Timer // nil if it has none
}

// situation is what there is to decide.
type situation struct {
	sentence string
	options  []inbox.Option // the recommended one first
	unless   string         // what happens if no option is accepted, as a clause
	lasts    time.Duration  // how long the question stays open; 0 for as long as it matters
}

// situation works out what there is to decide about a job, and reports whether there is something.
func (y *Yard) situation(r *jobRecord, kind inbox.Kind) (situation, bool) {
	switch kind {
	case inbox.OutOfMemory:
		return y.outOfMemory(r)
	case inbox.RetriesOver:
		return y.retriesOver(r)
	case inbox.OverBudget:
		return y.overBudget(r)
	case inbox.TooSlow:
		return y.tooSlow(r)
	case inbox.MoreMemory, inbox.Preempted:
		return y.notice(r)
	}

	return situation{}, false
}

// ask puts a question about a job to its owner, or renews the open one of the same kind, and reports whether there is
// something to decide.
func (y *Yard) ask(r *jobRecord, kind inbox.Kind) bool {
	if y.cfg.Unattended {
		return false
	}

	now, ok := y.situation(r, kind)
	if !ok {
		return false
	}

	if q := r.question(kind); q != nil {
		y.renew(q, &now)
		return true
	}

	r.Questions++
	q := &questionRecord{Question: inbox.Question{
		ID: id.NewQuestion(r.ID, r.Questions), Kind: kind, Job: r.ID, Owner: r.Owner, State: inbox.Open,
		Sentence: now.sentence, Options: now.options, Unless: now.unless, Asked: y.now, Since: y.now,
	}}

	if now.lasts > 0 {
		q.Expires = y.now.Add(now.lasts)
	}

	y.openQuestion(r, q)
	y.changedJob(r)
	y.changedQuestion(q)

	what := "inbox.asked"
	if kind.Notice() {
		what = "inbox.noticed"
	}

	y.event(Event{Kind: what, Actor: theYard, Owner: r.Owner, Job: r.ID, Question: q.ID, Reason: now.sentence})

	return true
}

// renew brings an open question up to date. Estimates that have hardly moved are left as they are, so that a question
// that is asked again and again is not stored each time.
func (y *Yard) renew(q *questionRecord, now *situation) {
	same := q.Sentence == now.sentence && len(q.Options) == len(now.options)
	for i := 0; same && i < len(q.Options); i++ {
		same = staleness(&q.Options[i], &now.options[i]) == "" && q.Options[i].Sentence == now.options[i].Sentence
	}

	if same {
		return
	}

	q.Sentence, q.Options = now.sentence, now.options
	y.changedQuestion(q)
}

// staleness says why an option is not what it was, "" if it is.
func staleness(then, now *inbox.Option) string {
	const tolerance = 1.1 // estimates move a little all the time

	switch {
	case now == nil:
		return "it is not possible any more"
	case then.ID != now.ID || !reflect.DeepEqual(then.Action, now.Action):
		return "it would do something else now: " + now.Sentence
	case now.Cost != nil && (then.Cost == nil || *now.Cost > then.Cost.Times(tolerance)+money.Amount(0.01)):
		if then.Cost == nil {
			return fmt.Sprintf("it is estimated to cost %s now", humanize.Dollars(*now.Cost))
		}

		return fmt.Sprintf("it is estimated to cost %s now instead of %s", humanize.Dollars(*now.Cost),
			humanize.Dollars(*then.Cost))
	}

	return ""
}

// Accept accepts an option of a question, which is carried out at once. The answer is the question.
type Accept struct {
	Question id.Question
	Option   string // "" for the recommended one
	By       id.User
}

func (m Accept) handle(y *Yard) (any, error) {
	q, r, err := y.findQuestion(m.Question)
	if err != nil {
		return nil, err
	}

	name := m.Option
	if name == "" {
		name = q.Options[0].ID
	}

	then := q.Option(name)
	if then == nil {
		return nil, unknownOption(&q.Question, name)
	}

	now, ok := y.situation(r, q.Kind)
	if !ok {
		y.closeQuestion(r, q, inbox.Withdraw, theYard, "there is nothing to decide any more")
		return nil, q.Closed()
	}

	fresh := (&inbox.Question{Options: now.options}).Option(name)
	if why := staleness(then, fresh); why != "" {
		y.renew(q, &now)

		return nil, fault.New(fault.Conflict, "option_stale", "option %s of question %s has changed: %s", name, q.ID, why).
			WithRemedy("trainyard inbox %s shows the options as they are now", q.ID)
	}

	if err := acceptable(r, fresh.Action.Verb); err != nil {
		return nil, err
	}

	if fresh.Action.Where != nil {
		if err := y.provisionAccepted(r, fresh, m.By); err != nil {
			return nil, err
		}
	}

	q.Chosen, q.Options = name, now.options
	y.closeQuestion(r, q, inbox.Accept, string(m.By), fmt.Sprintf("%s accepted: %s", m.By, fresh.Sentence))
	y.carry(r, &fresh.Action, m.By)

	return q.Question, nil
}

// unknownOption is the error for an option that a question does not have.
func unknownOption(q *inbox.Question, name string) error {
	names := make([]string, len(q.Options))
	for i := range q.Options {
		names[i] = q.Options[i].ID
	}

	return fault.New(fault.Invalid, "unknown_option", "question %s has no option %q", q.ID, name).
		WithField("option").WithRemedy("use one of %s", strings.Join(names, ", "))
}

// acceptable reports why an option cannot be carried out just now, nil if it can.
func acceptable(r *jobRecord, do inbox.Verb) error {
	if do == inbox.Requeue && (r.State == job.Pausing || r.State == job.Cancelling) {
		return fault.New(fault.Conflict, "job_state", "job %s is still being stopped", r.ID).
			WithRemedy("accept it once the job has stopped")
	}

	return nil
}

// carry carries out what was accepted.
func (y *Yard) carry(r *jobRecord, a *inbox.Action, by id.User) {
	y.amend(r, a, by)

	switch a.Verb {
	case inbox.Requeue:
		y.runAgain(r, by)
	case inbox.Move:
		y.moveAccepted(r, a.Where, by)
	case inbox.Pause:
		_, err := Pause{Job: r.ID, By: by}.handle(y)
		y.must(err)
	case inbox.Cancel:
		_, err := Cancel{Job: r.ID, By: by}.handle(y)
		y.must(err)
	case inbox.Amend, inbox.Keep:
	}
}

// amend changes what a job asks for, as was agreed.
func (y *Yard) amend(r *jobRecord, a *inbox.Action, by id.User) {
	floor := job.Floor{
		Memory:    max(r.Floor.Memory, a.Floor.Memory),
		GPUMemory: max(r.Floor.GPUMemory, a.Floor.GPUMemory),
	}
	if floor == r.Floor && a.Amend.Empty() {
		return
	}

	if floor != r.Floor {
		r.Floor, r.FloorOf = floor, ""
	}

	if !a.Amend.Empty() {
		change := *a.Amend
		change.By, change.At = by, y.now
		r.Amended = r.Amended.Then(&change)
		y.countBudget(r, -1)
		r.Spec = r.Amended.Apply(r.Spec)
		y.countBudget(r, 1)
		y.updateOwnAllowance(r)

		if y.limited() {
			y.commit(r)
			y.watchQuotas()
		}
	}

	y.changedJob(r)

	switch {
	case r.item != nil: // as it is queued now
		since := r.item.Since
		y.dequeue(r)
		y.enqueueSince(r, since)
	case r.running != nil:
		y.redescribe(r)
	}
}

// runAgain lets a job run again, as amended and from its last checkpoint. Failures so far do not count any more.
func (y *Yard) runAgain(r *jobRecord, by id.User) {
	r.Tried, r.Avoid = nil, nil
	y.changedJob(r)

	switch {
	case r.State == job.Paused:
		_, err := Resume{Job: r.ID, By: by}.handle(y)
		y.must(err)
	case r.run != nil && r.run.Stop == job.StopNone:
		r.run.stopReason = "stopped to run again as " + string(by) + " accepted"
		y.stop(r.run, job.StopTerm, job.CausePreempted)
	}
}

// Dismiss ends a question without an option. A job that failed and was held for the answer ends. The answer is the
// question.
type Dismiss struct {
	Question id.Question
	By       id.User
}

func (m Dismiss) handle(y *Yard) (any, error) {
	q, r, err := y.findQuestion(m.Question)
	if err != nil {
		return nil, err
	}

	y.closeQuestion(r, q, inbox.Dismiss, string(m.By), "dismissed by "+string(m.By))
	y.failHeld(r, q.Kind, "question "+string(q.ID)+" was dismissed by "+string(m.By))

	return q.Question, nil
}

// failHeld ends a job that failed and was held for an answer that will not come.
func (y *Yard) failHeld(r *jobRecord, kind inbox.Kind, why string) {
	if (kind == inbox.OutOfMemory || kind == inbox.RetriesOver) && r.State == job.Paused {
		y.must(y.moveJob(r, job.EventFail, theYard, r.Reason+"; "+why))
	}
}

// openQuestion enters an open question.
func (y *Yard) openQuestion(r *jobRecord, q *questionRecord) {
	r.questions = append(r.questions, q)
	y.asked[r.ID] = true
	y.touch(r)

	if !q.Expires.IsZero() {
		y.watchExpiry(q)
	}
}

// renewQuestions brings the questions up to date that wait for an answer: nodes come and go, and prices change. That a
// job is too slow may turn out not to be true.
func (y *Yard) renewQuestions() {
	for _, j := range sortedKeys(y.asked) {
		r := y.jobs[j]

		for _, q := range slices.Clone(r.questions) {
			if q.Kind.Notice() {
				continue
			}

			now, ok := y.situation(r, q.Kind)

			switch {
			case ok:
				y.renew(q, &now)
			case q.Kind == inbox.TooSlow:
				y.withdrawSlow(r)
			}
		}
	}
}

// watchExpiry ends a question that nobody has answered in time.
func (y *Yard) watchExpiry(asked *questionRecord) {
	asked.expiry = y.after(asked.Expires, func() {
		q, r, err := y.findQuestion(asked.ID)
		if err != nil {
			return // it was answered
		}

		y.closeQuestion(r, q, inbox.Expire, theYard, "nobody answered within "+humanize.Duration(q.Expires.Sub(q.Asked)))
		y.failHeld(r, q.Kind, "question "+string(q.ID)+" was not answered")
	})
}

// withdrawAnswered withdraws the questions that the new state of a job has answered: those for which it was held if it
// is held no more, those about its run if it does not run, and all if it has ended or is about to.
func (y *Yard) withdrawAnswered(r *jobRecord) {
	held := r.State == job.Paused || r.State == job.Pausing

	for _, q := range slices.Clone(r.questions) {
		over := q.Kind.Holds() && !held || q.Kind == inbox.TooSlow && r.State != job.Running
		if over || r.State.Final() || r.State == job.Cancelling {
			y.closeQuestion(r, q, inbox.Withdraw, theYard, "job "+string(r.ID)+" is "+string(r.State))
		}
	}
}

// closeQuestion ends an open question.
func (y *Yard) closeQuestion(r *jobRecord, q *questionRecord, ev inbox.Event, by, reason string) {
	to, err := q.After(ev)
	if err != nil {
		y.must(err)
		return
	}

	q.State, q.Since, q.Reason = to, y.now, reason
	if ev == inbox.Accept || ev == inbox.Dismiss {
		q.By = by
	}

	r.questions = slices.DeleteFunc(r.questions, func(o *questionRecord) bool { return o == q })
	y.touch(r)

	if len(r.questions) == 0 {
		delete(y.asked, r.ID)
	}

	y.timers.Stop(q.expiry)
	y.changedQuestion(q)
	y.event(Event{
		Kind: "inbox." + string(to), Actor: by, Owner: q.Owner, Job: q.Job, Question: q.ID, Reason: reason,
	})
}

// question returns the open question of a kind about a job, nil if there is none.
func (r *jobRecord) question(kind inbox.Kind) *questionRecord {
	for _, q := range r.questions {
		if q.Kind == kind {
			return q
		}
	}

	return nil
}

// findQuestion returns an open question and its job.
func (y *Yard) findQuestion(name id.Question) (*questionRecord, *jobRecord, error) {
	j, _, _ := name.Split()
	if r, ok := y.jobs[j]; ok {
		for _, q := range r.questions {
			if q.ID == name {
				return q, r, nil
			}
		}
	}

	return nil, nil, fault.New(fault.NotFound, "question_not_found", "there is no open question %s", name).
		WithRemedy("trainyard inbox lists the open ones")
}

func (y *Yard) changedQuestion(q *questionRecord) {
	q.Seq++
	y.changedQuestions.Add(q)

	if r, ok := y.jobs[q.Job]; ok {
		y.touch(r)
	}
}

// takeQuestions adds to a batch the questions that have changed.
func (y *Yard) takeQuestions(b *Batch) {
	b.Questions = batch.Take(&y.changedQuestions, b.Questions, func(to *inbox.Question, q *questionRecord) {
		*to = q.Question
	})
}

// loadQuestions restores the open questions.
func (y *Yard) loadQuestions(list []inbox.Question) {
	slices.SortFunc(list, func(a, b inbox.Question) int {
		return cmp.Or(a.Asked.Compare(b.Asked), cmp.Compare(a.ID, b.ID))
	})

	for i := range list {
		r, ok := y.jobs[list[i].Job]
		if !ok || r.State.Final() {
			continue
		}

		y.openQuestion(r, &questionRecord{Question: list[i]})
	}
}
