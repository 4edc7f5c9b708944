package yardmaster

import (
	"trainyard/internal/id"
	"trainyard/internal/yardmaster/batch"
)

// Origin is who sent a message, with which token and from where.
type Origin = batch.Origin

// From is a message with its origin: the events that the sender causes by it say with which token and from where.
type From struct {
	Message
	Origin
}

func (m From) handle(y *Yard) (any, error) {
	y.feed.SetOrigin(m.Origin)
	defer y.feed.SetOrigin(Origin{})

	return m.Message.handle(y)
}

// NoteAccess adds entries to the feed about calls that changed nothing, and that somebody should be able to look up.
type NoteAccess struct{ Calls []Access }

// Access is a number of calls of one caller.
type Access struct {
	Origin
	Kind   string // EventRefused, EventRead or EventTunnel
	Owner  id.User
	Job    id.Job
	Node   id.Node
	Count  int
	Reason string
}

// The kinds of events about access.
const (
	EventRefused = "access.refused" // calls that were refused: unknown, not allowed, too many
	EventRead    = "access.read"    // what belongs to others was read, or a checkpoint downloaded
	EventTunnel  = "access.tunnel"  // somebody entered a running job, or left it
)

func (m NoteAccess) handle(y *Yard) (any, error) { //nolint:unparam // the form of Message
	for i := range m.Calls {
		a := &m.Calls[i]
		y.event(Event{
			Kind: a.Kind, Actor: a.Actor, Token: a.Token, Address: a.Address, Owner: a.Owner, Job: a.Job, Node: a.Node,
			Count: a.Count, Reason: a.Reason,
		})
	}

	return nil, nil
}
