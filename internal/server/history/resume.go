package history

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/logs/archive"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// Deps is what Resume works with.
type Deps struct {
	Store store.Store // this server must be its writer
	Logs  *archive.Archive
	Mark  *Mark
	Log   *slog.Logger
	// Restored says how it is known that the database was restored; "" if that is to be found out.
	Restored string
}

// Report is what Resume found.
type Report struct {
	Restored    bool               // the database is an older copy
	Last        yardmaster.Numbers // of the database
	Found       yardmaster.Numbers // greatest numbers of which there is a trace
	Strays      []archive.Log      // output of runs that the database does not know
	Incarnation yardmaster.Incarnation
}

// Resume prepares a state for Yard.Load; it is called each time a state was loaded. It recognises a
// database that is an older copy and begins a new incarnation of the yard then, which is stored
// before it returns.
func Resume(ctx context.Context, d Deps, now time.Time, state *yardmaster.State) (Report, error) {
	seed, err := random()
	if err != nil {
		return Report{}, err
	}

	state.Seed = seed
	r := Report{Last: yardmaster.Numbers{
		Job: state.LastJob, Lease: state.LastLease, Event: state.LastEvent, User: lastUser(state),
	}}

	mark, err := d.Mark.load()
	if err != nil {
		return Report{}, err
	}

	r.Found = r.Last.Max(mark.Last)

	reason, err := d.evidence(mark, state, &r)
	if err != nil {
		return Report{}, err
	}

	if reason != "" {
		if err := d.restore(ctx, now, state, &r, mark.Number, reason); err != nil {
			return Report{}, err
		}
	} else if state.Incarnation.Number == 0 {
		if err := d.first(ctx, now, state); err != nil {
			return Report{}, err
		}
	}

	r.Incarnation = state.Incarnation
	d.Mark.reset(position{
		Number: r.Incarnation.Number, Mark: r.Incarnation.Mark,
		Last: yardmaster.Numbers{Job: r.Found.Job, Lease: r.Found.Lease, Event: state.LastEvent, User: r.Found.User},
	})

	return r, nil
}

// evidence returns how it is known that the database is an older copy, "" if it is not.
func (d *Deps) evidence(mark position, state *yardmaster.State, r *Report) (string, error) {
	open, err := d.Logs.Unfinished()
	if err != nil {
		return "", err
	}

	newest := uint64(0)
	for _, l := range open {
		newest = max(newest, jobOf(l))
	}

	r.Found.Job = max(r.Found.Job, newest)
	now := &state.Incarnation

	switch {
	case d.Restored != "":
		return d.Restored, nil
	case mark.Number > now.Number || mark.Number == now.Number && mark.Mark != now.Mark:
		return "the data directory belongs to a later history of the yard", nil
	case mark.Number == now.Number && mark.Last.Event > r.Last.Event:
		return fmt.Sprintf("the yard had come to event %d and job j%d, but the database ends with event %d and job j%d",
			mark.Last.Event, mark.Last.Job, r.Last.Event, r.Last.Job), nil
	case newest > r.Last.Job:
		return fmt.Sprintf("there is output of job j%d, but the newest job of the database is j%d", newest, r.Last.Job), nil
	}

	return "", nil
}

// lastUser returns the greatest number that a user of the database has or had.
func lastUser(state *yardmaster.State) uint64 {
	last := state.Incarnation.Last.User
	for i := range state.Users {
		last = max(last, uint64(state.Users[i].Number))
	}

	return last
}

func jobOf(l archive.Log) uint64 {
	j, _, _ := l.Run.Split()
	n, _ := j.Number()

	return n
}

// first stores the first incarnation of a yard.
func (d *Deps) first(ctx context.Context, now time.Time, state *yardmaster.State) error {
	mark, err := random()
	if err != nil {
		return err
	}

	i := yardmaster.Incarnation{Number: 1, Mark: id.UID(mark), Began: now, Settled: now, Reason: "the first"}
	if err := d.Store.Commit(ctx, &yardmaster.Batch{Incarnations: []yardmaster.Incarnation{i}}); err != nil {
		return fmt.Errorf("store the yard's first incarnation: %w", err)
	}

	state.Incarnation = i

	return nil
}

// restore stores a new incarnation of a yard whose database is an older copy.
func (d *Deps) restore(
	ctx context.Context,
	now time.Time,
	state *yardmaster.State,
	r *Report,
	seen uint64, // number of an incarnation of which there is a trace
	reason string,
) error {
	if err := d.findStrays(ctx, state, r); err != nil {
		return err
	}

	mark, err := random()
	if err != nil {
		return err
	}

	i := state.Incarnation.After(now, seen, r.Found, reason)
	i.Mark = id.UID(mark)

	e := i.Event()
	e.Seq, e.At = i.Last.Event+1, now
	if len(r.Strays) > 0 {
		e.Reason += fmt.Sprintf("; the output of %s that it does not know is kept apart",
			humanize.Count(len(r.Strays), "run"))
	}

	batch := &yardmaster.Batch{Incarnations: []yardmaster.Incarnation{i}, Events: []yardmaster.Event{e}}
	if err := d.Store.Commit(ctx, batch); err != nil {
		return fmt.Errorf("store the yard's new incarnation: %w", err)
	}

	r.Restored = true
	state.Incarnation = i
	state.LastJob, state.LastLease, state.LastEvent = i.Last.Job, i.Last.Lease, e.Seq
	d.Log.WarnContext(ctx, "the database was restored from a backup: a new incarnation of the yard begins",
		"incarnation", i.Number, "reason", reason, "next_job", id.NewJob(i.Last.Job+1), "stray_logs", len(r.Strays))

	return nil
}

// findStrays lists the output of runs that the database does not know: of jobs that are newer than it,
// and later runs of jobs that had not ended. Their names carry UIDs that no run of the database has,
// so they can stay where they are.
func (d *Deps) findStrays(ctx context.Context, state *yardmaster.State, r *Report) error {
	logs, err := d.Logs.Unfinished()
	if err != nil {
		return err
	}

	live := map[id.Job]bool{}
	for i := range state.Jobs {
		live[state.Jobs[i].ID] = true
	}

	for _, l := range logs {
		if err := d.findStray(ctx, l, live, r); err != nil {
			return err
		}
	}

	for l, err := range d.Logs.Complete(ctx) {
		if err == nil {
			err = d.findStray(ctx, l.Log, live, r)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// findStray lists a log if it is a stray.
func (d *Deps) findStray(ctx context.Context, l archive.Log, live map[id.Job]bool, r *Report) error {
	j, _, _ := l.Run.Split()
	if jobOf(l) <= r.Last.Job && !live[j] {
		return nil
	}

	run, err := d.Store.Run(ctx, l.Run)
	switch {
	case fault.KindOf(err) == fault.NotFound, err == nil && run.UID != l.UID:
		r.Strays = append(r.Strays, l)
		r.Found.Job = max(r.Found.Job, jobOf(l))
	case err != nil:
		return err
	}

	return nil
}

// random returns 128 random bits in hexadecimal.
func random() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", errors.Join(errors.New("make a random mark"), err)
	}

	return hex.EncodeToString(b[:]), nil
}
