package yardmaster

import (
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// ShareNote is something that a job's owner should know about its part of a GPU. It is the kind of the event.
type ShareNote string

// The notes.
const (
	ShareShort    ShareNote = "share.short"    // it got less than its share for some time
	ShareDenied   ShareNote = "share.denied"   // it was refused memory because it has as much as it may
	ShareBypassed ShareNote = "share.bypassed" // processes of it are not held to its share
)

// NoteShare records what was seen of a run that shares a GPU. What each run gets is watched beside the loop.
type NoteShare struct {
	Run    id.Run    `json:"run"`
	Node   id.Node   `json:"node"`
	Kind   ShareNote `json:"kind"`
	Reason string    `json:"reason"`
}

func (m NoteShare) handle(y *Yard) (any, error) { //nolint:unparam // Message wants both results
	run, live := y.runs[m.Run]
	if !live || run.State == job.RunEnded {
		return nil, nil
	}

	y.event(Event{
		Kind: string(m.Kind), Actor: "node/" + string(m.Node), Owner: y.jobs[run.Job].Owner, Job: run.Job, Run: m.Run,
		Node: m.Node, Reason: m.Reason,
	})

	return nil, nil
}
