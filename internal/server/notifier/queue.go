package notifier

import (
	"context"
	"fmt"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// read queues the notifications about events that are new.
func (n *Notifier) read(ctx context.Context) error {
	for {
		events, _, ok := n.Feed.After(n.cursor)
		if !ok {
			var err error
			events, err = n.Store.Events(ctx, store.EventFilter{After: n.cursor, Limit: readLimit})
			if err != nil {
				return fmt.Errorf("read events: %w", err)
			}
		}

		if len(events) == 0 {
			break
		}

		events = events[:min(len(events), readLimit)]
		if err := n.queue(ctx, events); err != nil {
			return err
		}
	}

	if n.cursor != n.stored && n.Clock.Now().Sub(n.storedAt) >= cursorEvery {
		return n.keepCursor(ctx)
	}

	return nil
}

// queue stores the notifications about events, together with the new cursor.
func (n *Notifier) queue(ctx context.Context, events []yardmaster.Event) error {
	var fresh []*delivery
	dropped := map[string]*delivery{} // the first of each channel
	added := map[string]int{}

	for i := range events {
		found, err := n.about(ctx, &events[i])
		if err != nil {
			return err
		}

		for _, d := range found {
			path := d.path()

			switch {
			case n.line(path).waiting+added[path] < maxWaiting:
				fresh = append(fresh, d)
				added[path]++
			case dropped[path] == nil:
				dropped[path] = d
			}
		}
	}

	last := events[len(events)-1].Seq
	if len(fresh) > 0 {
		docs := []store.Document{n.cursorDocument(last)}
		for _, d := range fresh {
			doc, err := d.document()
			if err != nil {
				return err
			}

			docs = append(docs, doc)
		}

		if err := n.Store.Keep(ctx, docs...); err != nil {
			return fmt.Errorf("store notifications: %w", err)
		}

		n.stored, n.storedAt = last, n.Clock.Now()
	}

	n.cursor = last
	for _, d := range fresh {
		n.add(d)
	}

	for path, d := range dropped {
		n.drop(ctx, n.line(path), d)
	}

	return nil
}

// about returns the deliveries of an event; none if nobody is notified of it.
func (n *Notifier) about(ctx context.Context, e *yardmaster.Event) ([]*delivery, error) {
	topic, notified := tenant.TopicOf(e.Kind)
	if !notified && !endsJob(e.Kind) {
		return nil, nil
	}

	name, project := "", id.Project("")
	if p, ok := strings.CutPrefix(e.To, "project/"); ok && e.Job == "" {
		project = id.Project(p)
	}

	if e.Job != "" {
		j, err := n.Store.Job(ctx, e.Job)

		switch {
		case err == nil && j.Pipeline != "" && endsJob(e.Kind):
			return n.together(ctx, e, j.Pipeline)
		case err == nil:
			name, project = j.Spec.Name, j.Project
		case fault.KindOf(err) != fault.NotFound:
			return nil, fmt.Errorf("read job %s: %w", e.Job, err)
		}
	}

	if !notified {
		return nil, nil
	}

	m := messageOf(e, topic, name, project)

	return n.deliveries(ctx, e.Owner, project, &m)
}

// deliveries returns the deliveries of a message to the channels of a user and of a project.
func (n *Notifier) deliveries(ctx context.Context, u id.User, p id.Project, m *message) ([]*delivery, error) {
	var channels []tenant.Channel
	err := n.Query(ctx, func(y *yardmaster.Yard) { channels = y.Notified(u, p, m.Topic, m.At) })
	if err != nil {
		return nil, fmt.Errorf("read the channels: %w", err)
	}

	now := n.Clock.Now()
	list := make([]*delivery, len(channels))
	for i := range channels {
		list[i] = &delivery{
			Message: *m, Subject: channels[i].Subject, Channel: channels[i].Name,
			Mail: channels[i].Kind == tenant.MailChannel, Queued: now, Next: now,
		}
	}

	return list, nil
}

// drop notes, once until the channel has room again, that messages are not delivered.
func (n *Notifier) drop(ctx context.Context, l *line, d *delivery) {
	if l.full {
		return
	}

	_, err := n.Do(ctx, yardmaster.NoteUndelivered{
		Subject: d.Subject, Name: d.Channel, Kind: yardmaster.EventNotifyDropped, Job: d.Message.Job,
		Reason: fmt.Sprintf("channel %s has %d notifications to deliver; further ones are dropped until there is room",
			d.path(), maxWaiting),
	})
	l.full = err == nil
}
