// Package notifier tells people over webhooks, Slack and mail what has happened to their jobs.
//
// It runs beside the loop, which never waits for it, and follows the event feed from a stored cursor. The cursor
// and the messages that are to be delivered are stored in one transaction, so that nothing is lost and nothing is
// queued twice whatever crashes. A message is delivered at least once: if the server stops between the receiver's
// answer and the note of it, the message is sent again under the same id. What is not accepted is tried again with
// back-off, and given up after GiveUpAfter. The yardmaster keeps the channels; who may change them is checked by the
// server.
package notifier

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/server/feed"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/vault"
	"trainyard/internal/yardmaster"
)

// Deps are the dependencies of a notifier.
type Deps struct {
	Settings
	Store store.Store
	Feed  *feed.Feed
	Vault *vault.Vault
	Clock clock.Clock
	Log   *slog.Logger
	// Do sends a message to the yardmaster; Query reads its state.
	Do    func(context.Context, yardmaster.Message) (any, error)
	Query func(context.Context, func(*yardmaster.Yard)) error
}

// GiveUpAfter is how long a message is tried to be delivered.
const GiveUpAfter = 24 * time.Hour

// Intervals and limits.
const (
	passEvery   = time.Second
	firstPause  = 10 * time.Second // before the second attempt; doubled before each further one
	maxPause    = time.Hour
	maxInFlight = 16  // messages under way at the same time, at most one of each channel
	maxWaiting  = 500 // messages of one channel
	maxStored   = 100_000
	readLimit   = 1000             // events at a time
	cursorEvery = 10 * time.Second // between two writes of the cursor when there was nothing to deliver
	mailBurst   = 20               // mails of a channel at once, then one in mailEvery
	mailEvery   = time.Minute
)

// cursorID is the id of the document that holds the cursor.
const cursorID = "cursor"

// Notifier delivers notifications.
type Notifier struct {
	Deps
	sender  *sender
	results chan result

	// The fields below belong to the goroutine of Run.
	loaded   bool
	cursor   uint64    // all events up to this one have been looked at
	stored   uint64    // the cursor in the store
	storedAt time.Time // when it was written
	waiting  map[string]*delivery
	lines    map[string]*line
	inFlight int
	// unfinished holds the jobs that have not ended of files of which one has, by the name of the pipeline.
	unfinished map[string]map[id.Job]bool
	failing    string // the last problem with the store, so that it is logged once
}

// delivery is a message that is to be delivered over a channel.
type delivery struct {
	Message  message        `json:"message"`
	Subject  tenant.Subject `json:"subject"`
	Channel  string         `json:"channel"`
	Mail     bool           `json:"mail,omitempty"`
	Queued   time.Time      `json:"queued"`
	Next     time.Time      `json:"next"` // not before
	Attempts int            `json:"attempts,omitempty"`

	started bool // it is under way
	changed bool // it is to be stored again
	done    bool // delivered or given up; it is to be deleted from the store
}

func (d *delivery) path() string { return tenant.ChannelPath(d.Subject, d.Channel) }

func (d *delivery) id() string { return d.path() + "/" + strconv.FormatUint(d.Message.Event, 10) }

// line is what is known of a channel with messages.
type line struct {
	waiting int
	busy    bool
	full    bool // messages were dropped, and that was noted
	mails   *rate.Limiter
}

// result is what became of an attempt.
type result struct {
	of  *delivery
	err error
}

// New returns a notifier; Run starts it.
func New(d Deps) *Notifier {
	return &Notifier{
		Deps: d, sender: newSender(d.Settings, d.Clock), results: make(chan result, maxInFlight),
		waiting: map[string]*delivery{}, lines: map[string]*line{}, unfinished: map[string]map[id.Job]bool{},
	}
}

// Run delivers notifications until ctx ends.
func (n *Notifier) Run(ctx context.Context) {
	clock.Every(ctx, n.Clock, passEvery, func(time.Time) { n.pass(ctx) })

	for n.inFlight > 0 {
		n.finish(ctx, <-n.results)
	}

	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()

	n.note(last, n.clear(last))
	n.note(last, n.keepCursor(last))
	n.sender.close()
}

// pass reads what is new in the feed and starts deliveries that are due. Nothing in it waits for a receiver.
func (n *Notifier) pass(ctx context.Context) {
	for more := true; more; {
		select {
		case r := <-n.results:
			n.finish(ctx, r)
		default:
			more = false
		}
	}

	err := n.load(ctx)
	if err == nil {
		err = n.read(ctx)
	}
	if err == nil {
		err = n.clear(ctx)
	}

	n.note(ctx, err)

	if err == nil {
		n.start(ctx)
	}
}

// note logs a problem with the store when it begins, and when it is over.
func (n *Notifier) note(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}

	if text == n.failing || ctx.Err() != nil {
		return
	}

	n.failing = text
	if text == "" {
		n.Log.InfoContext(ctx, "notifications are delivered again")
	} else {
		n.Log.WarnContext(ctx, "notifications wait", "error", err)
	}
}

// load reads what an earlier server has left.
func (n *Notifier) load(ctx context.Context) error {
	if n.loaded {
		return nil
	}

	marks, err := n.Store.Documents(ctx, store.DocumentFilter{Kind: store.NotifiedDocument, ID: cursorID, Limit: 1})
	if err != nil {
		return fmt.Errorf("read the cursor of the notifications: %w", err)
	}

	if len(marks) == 0 { // nobody had a channel before this version
		n.cursor = n.Feed.Last()
		if err := n.keepCursor(ctx); err != nil {
			return err
		}
	} else if n.cursor, err = strconv.ParseUint(marks[0].Text, 10, 64); err != nil {
		return fmt.Errorf("read the cursor of the notifications: %w", err)
	}

	docs, err := n.Store.Documents(ctx, store.DocumentFilter{Kind: store.DeliveryDocument, Limit: maxStored})
	if err != nil {
		return fmt.Errorf("read the notifications to deliver: %w", err)
	}

	for i := range docs {
		d := &delivery{}
		if err := json.Unmarshal([]byte(docs[i].Text), d); err != nil {
			return fmt.Errorf("read notification %s: %w", docs[i].ID, err)
		}

		n.add(d)
	}

	n.stored, n.storedAt, n.loaded = n.cursor, n.Clock.Now(), true

	return nil
}

func (n *Notifier) add(d *delivery) {
	n.waiting[d.id()] = d
	n.line(d.path()).waiting++
}

func (n *Notifier) line(path string) *line {
	l, ok := n.lines[path]
	if !ok {
		l = &line{mails: rate.NewLimiter(rate.Every(mailEvery), mailBurst)}
		n.lines[path] = l
	}

	return l
}

func (n *Notifier) cursorDocument(cursor uint64) store.Document {
	return store.Document{
		Kind: store.NotifiedDocument, ID: cursorID, At: n.Clock.Now(), Text: strconv.FormatUint(cursor, 10),
	}
}

func (n *Notifier) keepCursor(ctx context.Context) error {
	if err := n.Store.Keep(ctx, n.cursorDocument(n.cursor)); err != nil {
		return fmt.Errorf("store the cursor of the notifications: %w", err)
	}

	n.stored, n.storedAt = n.cursor, n.Clock.Now()

	return nil
}

func (d *delivery) document() (store.Document, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return store.Document{}, fmt.Errorf("write notification %s: %w", d.id(), err)
	}

	return store.Document{Kind: store.DeliveryDocument, ID: d.id(), At: d.Queued, Text: string(text)}, nil
}

// clear deletes from the store what is done, and stores when what failed is tried again. What it cannot delete now it
// deletes later, and does not deliver again.
func (n *Notifier) clear(ctx context.Context) error {
	var ids []string
	var docs []store.Document

	for id, d := range n.waiting {
		switch {
		case d.done:
			ids = append(ids, id)
		case d.changed:
			doc, err := d.document()
			if err != nil {
				return err
			}

			docs = append(docs, doc)
		}
	}

	if len(docs) > 0 {
		if err := n.Store.Keep(ctx, docs...); err != nil {
			return fmt.Errorf("store notifications: %w", err)
		}
	}
	if len(ids) > 0 {
		if err := n.Store.Drop(ctx, store.DeliveryDocument, ids...); err != nil {
			return fmt.Errorf("delete delivered notifications: %w", err)
		}
	}

	for _, doc := range docs {
		n.waiting[doc.ID].changed = false
	}

	for _, id := range ids {
		n.forget(id)
	}

	return nil
}

// forget drops a delivery from memory, and its channel when nothing is known of that any more.
func (n *Notifier) forget(id string) {
	path := n.waiting[id].path()
	delete(n.waiting, id)

	l := n.line(path)
	l.waiting--
	l.full = l.full && l.waiting > maxWaiting/2

	if l.waiting == 0 && l.mails.TokensAt(n.Clock.Now()) >= mailBurst {
		delete(n.lines, path)
	}
}

// start begins the deliveries that are due, the oldest of each channel first.
func (n *Notifier) start(ctx context.Context) {
	now := n.Clock.Now()

	var due []*delivery
	for _, d := range n.waiting {
		if !d.started && !d.Next.After(now) {
			due = append(due, d)
		}
	}

	slices.SortFunc(due, func(a, b *delivery) int {
		return cmp.Or(cmp.Compare(a.Message.Event, b.Message.Event), strings.Compare(a.path(), b.path()))
	})

	for _, d := range due {
		l := n.line(d.path())
		if l.busy || n.inFlight >= maxInFlight || d.Mail && !l.mails.AllowN(now, 1) {
			continue
		}

		l.busy, d.started = true, true
		n.inFlight++

		go func() { n.results <- n.attempt(ctx, d) }()
	}
}

// attempt delivers a message once. It runs beside everything else.
func (n *Notifier) attempt(ctx context.Context, d *delivery) result {
	c, secret, found, err := n.channel(ctx, d.Subject, d.Channel)

	switch {
	case err != nil:
		return result{of: d, err: err}
	case !found: // the channel was removed, and nothing is to be delivered any more
		return result{of: d}
	}

	return result{of: d, err: n.deliver(ctx, &c, &secret, &d.Message)}
}

func (n *Notifier) channel(
	ctx context.Context, of tenant.Subject, name string,
) (c tenant.Channel, secret tenant.Secret, found bool, err error) {
	err = n.Query(ctx, func(y *yardmaster.Yard) { c, secret, found = y.Channel(of, name) })
	return c, secret, found, err
}

// deliver sends a message over a channel.
func (n *Notifier) deliver(ctx context.Context, c *tenant.Channel, secret *tenant.Secret, m *message) error {
	with := &Credentials{}
	if secret.Name != "" {
		text, err := n.Vault.Open(ctx, secret)
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(text), with); err != nil {
			return fmt.Errorf("read the secret of channel %s: it is damaged", c.Path())
		}
	}

	return n.sender.send(ctx, c, with, m)
}

// finish takes in what became of an attempt.
func (n *Notifier) finish(ctx context.Context, r result) {
	d := r.of
	n.inFlight--
	n.line(d.path()).busy = false
	d.started = false

	switch {
	case r.err == nil:
		d.done = true
		return
	case ctx.Err() != nil: // the server stops, which says nothing about the receiver
		return
	}

	now := n.Clock.Now()
	d.Attempts++
	d.Next = now.Add(pause(d.Attempts))
	d.changed = true

	if now.Sub(d.Queued) >= GiveUpAfter {
		d.done = n.giveUp(ctx, d, r.err)
	}
}

// giveUp puts into the feed that a message was not delivered, and reports whether it is there.
func (n *Notifier) giveUp(ctx context.Context, d *delivery, why error) bool {
	_, err := n.Do(ctx, yardmaster.NoteUndelivered{
		Subject: d.Subject, Name: d.Channel, Kind: yardmaster.EventNotifyGaveUp, Job: d.Message.Job,
		Reason: fmt.Sprintf("channel %s: %q not delivered in %s and %s, the last error: %v", d.path(), d.Message.title(),
			humanize.Duration(GiveUpAfter), humanize.Count(d.Attempts, "attempt"), why),
	})

	return err == nil
}

// pause is how long to wait after so many failed attempts.
func pause(attempts int) time.Duration {
	wait := firstPause
	for i := 1; i < attempts && wait < maxPause; i++ {
		wait *= 2
	}

	return min(wait, maxPause)
}

// Check refuses a channel that could never be delivered to. The errors repeat nothing secret.
func (n *Notifier) Check(c *tenant.Channel, with *Credentials) error {
	switch c.Kind {
	case tenant.WebhookChannel, tenant.SlackChannel:
		if _, err := n.sender.checkURL(with.URL, "https", "http"); err != nil {
			return invalid("url", err)
		}
	case tenant.MailChannel:
		if c.SMTP == "" && n.Relay.URL == "" {
			return fault.New(fault.Invalid, "no_mail_server", "the operator has set no mail server").WithField("smtp").
				WithRemedy("name one of yours, or ask the operator for --smtp")
		}

		if c.SMTP != "" {
			if _, err := n.sender.checkURL(c.SMTP, "smtps", "smtp"); err != nil {
				return invalid("smtp", err)
			}
		}
	}

	if c.Kind == tenant.WebhookChannel {
		if _, err := ParseKey(with.Key); err != nil {
			return invalid("key", err)
		}
	}

	return nil
}

func invalid(field string, err error) error {
	return fault.New(fault.Invalid, "bad_value", "%v", err).WithField(field)
}

// Test delivers a test message over a channel at once, and waits for the answer.
func (n *Notifier) Test(ctx context.Context, of tenant.Subject, name string) error {
	c, secret, found, err := n.channel(ctx, of, name)
	if err != nil {
		return err
	}
	if !found {
		return fault.New(fault.NotFound, "channel_not_found", "channel %s of %s not found", name, of)
	}

	now := n.Clock.Now()
	m := &message{
		ID: fmt.Sprintf("ty_test_%x", now.UnixMicro()), Type: testType, At: now, Owner: of.User, Project: of.Project,
		Reason: "Channel " + c.Path() + " works.",
	}

	if err := n.deliver(ctx, &c, &secret, m); err != nil {
		return fault.New(fault.Conflict, "not_delivered", "not delivered: %v", err).WithCause(err)
	}

	return nil
}
