package yardmaster

import (
	"slices"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// PutChannel stores where a user or project is notified, with what must stay secret of it, which the server has
// encrypted. The answer is the channel.
type PutChannel struct {
	Channel tenant.Channel
	Sealed  *tenant.Sealed // nil if nothing of it is secret
	By      id.User
}

func (m PutChannel) handle(y *Yard) (any, error) {
	if p := m.Channel.Subject.Project; p != "" && !y.people.Restricted(p) {
		return nil, fault.New(fault.NotFound, "project_not_found", "project %s not found", p).
			WithRemedy("only a project with members has channels: trainyard projects add %s", p)
	}

	if err := y.channels.Check(&m.Channel); err != nil {
		return nil, err
	}

	if m.Sealed == nil {
		y.removeChannelSecret(&m.Channel, m.By)
	} else {
		secret := tenant.Secret{Subject: m.Channel.Subject, Name: m.Channel.SecretName(), Sealed: *m.Sealed}
		if _, err := y.secrets.Put(y.now, secret, m.By); err != nil {
			return nil, err
		}
	}

	return y.channels.Put(y.now, m.Channel, m.By), nil
}

// RemoveChannel deletes a channel with its secret. What was not delivered yet is not delivered any more.
type RemoveChannel struct {
	Subject tenant.Subject
	Name    string
	By      id.User
}

func (m RemoveChannel) handle(y *Yard) (any, error) {
	gone, err := y.channels.Remove(y.now, m.Subject, m.Name, m.By)
	if err == nil {
		y.removeChannelSecret(&gone, m.By)
	}

	return answer(gone, err)
}

// removeChannelSecret deletes the secret of a channel, if it has one.
func (y *Yard) removeChannelSecret(c *tenant.Channel, by id.User) {
	if _, ok := y.secrets.Get(c.Subject, c.SecretName()); ok {
		_, err := y.secrets.Remove(y.now, c.Subject, c.SecretName(), by)
		y.must(err)
	}
}

// removeChannelsOf deletes the channels of a project whose record is removed.
func (y *Yard) removeChannelsOf(p id.Project, by string) {
	for _, c := range y.channels.All() {
		if c.Subject.Project == p {
			_, err := RemoveChannel{Subject: c.Subject, Name: c.Name, By: id.User(by)}.handle(y)
			y.must(err)
		}
	}
}

// The kinds of events about notifications that were not delivered.
const (
	EventNotifyGaveUp  = "notify.gave_up" // the receiver did not accept one in time
	EventNotifyDropped = "notify.dropped" // too many waited for their delivery
)

// NoteUndelivered puts into the feed that notifications were not delivered. A channel that was removed meanwhile is no
// mistake.
type NoteUndelivered struct {
	Subject tenant.Subject
	Name    string
	Kind    string // EventNotifyGaveUp or EventNotifyDropped
	Job     id.Job
	Reason  string
}

func (m NoteUndelivered) handle(y *Yard) (any, error) { //nolint:unparam // Message wants both results
	if c, ok := y.channels.Get(m.Subject, m.Name); ok {
		y.event(Event{
			Kind: m.Kind, Actor: theYard, Owner: m.Subject.User, Job: m.Job, To: c.Path(), Reason: m.Reason,
		})
	}

	return nil, nil
}

// Channels returns all channels by path.
func (y *Yard) Channels() []tenant.Channel { return y.channels.All() }

// Channel returns a channel with its secret. The secret is zero if it has none.
func (y *Yard) Channel(of tenant.Subject, name string) (c tenant.Channel, secret tenant.Secret, found bool) {
	c, found = y.channels.Get(of, name)
	secret, _ = y.secrets.Get(of, c.SecretName())

	return c, secret, found
}

// Notified returns the channels on which something that happened is notified under a topic: those of a user and of a
// project, each "" if there is none. A channel that was added later is not among them, nor is that of a disabled user.
func (y *Yard) Notified(u id.User, p id.Project, topic tenant.Topic, at time.Time) []tenant.Channel {
	var of []tenant.Subject
	if who, ok := y.people.User(u); ok && !who.Disabled {
		of = append(of, tenant.Subject{User: u})
	}
	if y.people.Restricted(p) {
		of = append(of, tenant.Subject{Project: p})
	}

	return slices.DeleteFunc(y.channels.All(), func(c tenant.Channel) bool {
		return !slices.Contains(of, c.Subject) || !slices.Contains(c.Topics, topic) || at.Before(c.Created)
	})
}
