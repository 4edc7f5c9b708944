package notifier

import (
	"fmt"
	"strings"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// message is a notification: what happened, as it is stored and sent.
type message struct {
	// ID is the same for every attempt to deliver the event, so that a receiver can ignore what it has had.
	ID      string       `json:"id"`
	Type    string       `json:"type"` // kind of the event
	At      time.Time    `json:"at"`
	Topic   tenant.Topic `json:"topic"`
	Event   uint64       `json:"event,omitempty"`
	Job     id.Job       `json:"job,omitempty"`
	Name    string       `json:"name,omitempty"` // of the job
	Owner   id.User      `json:"owner,omitempty"`
	Project id.Project   `json:"project,omitempty"`
	Reason  string       `json:"reason,omitempty"`
	// Of a message about all jobs of a file: the first and the last, and how they ended.
	First id.Job  `json:"first,omitempty"`
	Last  id.Job  `json:"last,omitempty"`
	Jobs  *counts `json:"jobs,omitempty"`
}

// testType is the type of messages that were asked for with trainyard notify test.
const testType = "notify.test"

// messageOf makes the message about an event. The job is described by its name and project, "" if it is not known.
func messageOf(e *yardmaster.Event, topic tenant.Topic, name string, project id.Project) message {
	return message{
		// The time is in it because a yard that was restored from a backup gives out the same numbers again.
		ID:   fmt.Sprintf("ty_%d_%x", e.Seq, e.At.UnixMicro()),
		Type: e.Kind, At: e.At, Topic: topic, Event: e.Seq, Job: e.Job, Name: name, Owner: e.Owner, Project: project,
		Reason: e.Reason,
	}
}

// predicates complete the sentence that begins with the job.
var predicates = map[tenant.Topic]string{
	tenant.TopicDone:     "succeeded",
	tenant.TopicFailed:   "failed",
	tenant.TopicStalled:  "reports no progress",
	tenant.TopicNaN:      "has a metric that is not a number",
	tenant.TopicIdle:     "is idle and will be stopped",
	tenant.TopicNeedsYou: "needs a decision",
	tenant.TopicBudget:   "budget alert",
}

// title says in a few words what happened.
func (m *message) title() string {
	if m.Type == testType {
		return "Test of a notification"
	}

	job := strings.TrimSpace(string(m.Job) + " " + m.Name)

	switch {
	case m.Jobs != nil:
		return m.Jobs.title(m.First, m.Last)
	case job == "" && m.Project != "":
		return "Budget alert for project " + string(m.Project)
	case job == "":
		return "Budget alert for " + string(m.Owner)
	case m.Topic == tenant.TopicBudget:
		return job + ": " + predicates[m.Topic]
	}

	return job + " " + predicates[m.Topic]
}

// text is the message for people.
func (m *message) text() string {
	lines := []string{m.title()}
	if m.Reason != "" {
		lines = append(lines, m.Reason)
	}

	owner := ""
	if m.Owner != "" {
		owner = "owner " + string(m.Owner)
	}
	if m.Project != "" {
		owner = strings.TrimPrefix(owner+", project "+string(m.Project), ", ")
	}
	if owner != "" {
		lines = append(lines, owner)
	}

	switch {
	case m.Topic == tenant.TopicNeedsYou:
		lines = append(lines, "trainyard inbox "+string(m.Job))
	case m.Job != "":
		lines = append(lines, "trainyard job "+string(m.Job))
	case m.Jobs != nil:
		lines = append(lines, "trainyard jobs --ended")
	}

	return strings.Join(lines, "\n")
}
