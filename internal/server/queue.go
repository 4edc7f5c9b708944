package server

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/queue"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

func (s *Server) queueRoutes() {
	const tag = "jobs"
	huma.Register(s.api, s.op("list-queue", http.MethodGet, "/api/v1/queue",
		"List queued jobs in the order in which they are considered, with why they wait", tag), s.listQueue)
	huma.Register(s.api, s.op("preview-edit", http.MethodPost, "/api/v1/jobs/{job}/edit/preview",
		"Show what an edit of a job would change, without changing anything", tag), s.previewEdit)
}

const (
	listHolders = 5      // that a list has of each job
	maxQueueOf  = 10_000 // how many jobs of others somebody sees in the queue who does not see all
	maxAffected = 20     // jobs that the preview of an edit lists
)

// What rehearsals of edits may cost: each copies the queue, and asks the policy for up to rehearsalTime.
const (
	rehearsalsAtAll = 2 // that run at the same time
	rehearsalsEach  = 2 // of one user, with those that wait for their turn
	rehearsalWait   = 10 * time.Second
)

type queueInput struct {
	Paging
	Owner string `query:"owner" maxLength:"63"`
}

// listQueue lists the queue from the newest snapshot, beside the loop. The cursor is how many jobs were listed before.
func (s *Server) listQueue(ctx context.Context, in *queueInput) (*httpapi.Body[api.QueuePage], error) {
	skip := 0
	if in.Cursor != "" {
		n, err := strconv.Atoi(in.Cursor)
		if err != nil || n < 0 {
			return nil, httpapi.ToProblem(badCursor(in.Cursor))
		}

		skip = n
	}

	f := store.JobFilter{Owner: id.User(in.Owner), States: []job.State{job.Pending, job.Recovering}}
	if err := confineJobs(ctx, &f); err != nil {
		return nil, httpapi.ToProblem(err)
	}

	sees, err := s.queueFilter(ctx, f)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	snap, err := s.Loop.snapshot()
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	now := s.Clock.Now()
	rows, total := pick(snap.Queue(now), sees, skip, in.Limit)
	if sees == nil {
		total = snap.Queued()
	}

	page := api.QueuePage{At: now.UTC(), Queued: total, Jobs: []api.QueuedJob{}}
	if skip+len(rows) < total {
		page.Next = strconv.Itoa(skip + len(rows))
	}

	if err := s.addQueued(ctx, snap, rows, &page); err != nil {
		return nil, s.fail(ctx, err)
	}

	starts, err := s.starts.get(ctx, s)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	for i := range page.Jobs {
		if at, ok := starts[page.Jobs[i].ID]; ok {
			page.Jobs[i].Start = timeOrNil(at)
		}
	}

	waiting, err := s.Store.CountJobs(ctx, f)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	for _, n := range waiting {
		page.Held += n
	}

	page.Held = max(page.Held-total, 0) // the snapshot may be older than what is stored

	return &httpapi.Body[api.QueuePage]{Body: page}, nil
}

// What it may cost to foresee when jobs start: it is done once for all who look at the queue.
const (
	startsFor  = 5 * time.Second        // it counts for so long while nothing happens
	startsGap  = 500 * time.Millisecond // between two
	startsOf   = 500                    // for so many jobs
	startsTime = time.Second
)

// starts keeps when queued jobs are expected to start.
type starts struct {
	mu    sync.Mutex
	at    time.Time
	event uint64 // number of the newest event before
	list  map[id.Job]time.Time
}

// get returns when the first jobs of the queue are expected to start. The loop only copies the yard; the rest is done
// outside it. Those who ask meanwhile get the same.
func (k *starts) get(ctx context.Context, s *Server) (map[id.Job]time.Time, error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	age := s.Clock.Now().Sub(k.at).Abs()
	if age < startsFor && k.event == s.Feed.Last() {
		return k.list, nil
	}

	// Whoever asks because of an event must not get what was there before it.
	if age < startsGap && !clock.Sleep(ctx, startsGap-age) {
		return nil, ctx.Err()
	}

	now, event := s.Clock.Now(), s.Feed.Last()
	var copied *place.Copy // written by the loop, perhaps after we gave up on it
	if err := s.query(ctx, func(y *yardmaster.Yard) { copied = y.CopyView(now) }); err != nil {
		return nil, err
	}

	until := now.Add(startsTime)
	k.list = ordered.ExpectStarts(copied.View(), startsOf, func() bool { return s.Clock.Now().After(until) })
	k.at, k.event = now, event

	return k.list, nil
}

// queueRow is a place in the queue.
type queueRow struct {
	number   uint64
	position int
}

// pick returns at most limit jobs of the queue that somebody sees after the first ones, and how many they see in all.
// Sees is nil for somebody who sees everything; the rest of the queue is not looked at then.
func pick(
	line iter.Seq2[uint64, id.User],
	sees func(uint64, id.User) bool,
	skip, limit int,
) (rows []queueRow, total int) {
	position := 0

	for number, owner := range line {
		position++
		if sees != nil && !sees(number, owner) {
			continue
		}

		total++
		if total > skip && len(rows) < limit {
			rows = append(rows, queueRow{number, position})
		}

		if sees == nil && len(rows) == limit {
			break
		}
	}

	return rows, total
}

// queueFilter returns what lets those jobs of the queue through that a filter does, nil if it lets all through. The
// order of the queue has the owners of jobs; those of the projects of others are read.
func (s *Server) queueFilter(ctx context.Context, f store.JobFilter) (func(uint64, id.User) bool, error) {
	owner := f.Owner
	if owner == "" {
		return nil, nil
	}

	shared := map[uint64]bool{}

	if len(f.Projects) > 0 {
		f.Outline, f.Oldest, f.Limit = true, true, maxQueueOf

		jobs, err := s.Store.Jobs(ctx, f)
		if err != nil {
			return nil, err
		}

		for i := range jobs {
			number, _ := jobs[i].ID.Number()
			shared[number] = true
		}
	}

	return func(number uint64, of id.User) bool { return of == owner || shared[number] }, nil
}

// addQueued reads the jobs of the rows and adds them to the page, with why they wait and when they are expected to
// start. Those that have left the queue since are left out.
func (s *Server) addQueued(ctx context.Context, snap *snapshot, rows []queueRow, page *api.QueuePage) error {
	now := s.Clock.Now()
	explainer := snap.explainer(now)
	jobs := make([]job.Job, 0, len(rows))

	for _, row := range rows {
		j, err := s.Store.Job(ctx, id.NewJob(row.number))
		if fault.KindOf(err) == fault.NotFound {
			continue
		}
		if err != nil {
			return err
		}

		why, waits := snap.Why(now, &j, explainer)
		if !waits || !j.State.Waiting() {
			continue
		}

		n := min(len(why.Holders), listHolders)
		why.Holders, why.Nodes = why.Holders[:n], why.Nodes[:n]
		jobs = append(jobs, j)
		page.Jobs = append(page.Jobs, api.QueuedJob{
			Job: toJob(&j), Position: row.position, Queued: shown(j.QueuedSince()),
			Why: *toWhy(&yardmaster.WhyReport{Why: why, Position: row.position}),
		})
	}

	briefs, err := s.briefs(ctx, jobs)
	if err != nil {
		return err
	}

	foreseen, err := s.seer.Waiting(jobs)
	if err != nil {
		return err
	}

	for i := range page.Jobs {
		addBrief(&page.Jobs[i].Job, &briefs[i])
		addForecast(&page.Jobs[i].Job, foreseen[i])
	}

	return nil
}

// previewEdit says what an edit would change. The loop only copies the yard; the policy is asked outside it.
func (s *Server) previewEdit(ctx context.Context, in *editInput) (*httpapi.Body[api.EditPreview], error) {
	j, err := s.readJob(ctx, in.Job)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if err := allowJob(ctx, "edit jobs", &j); err != nil {
		return nil, httpapi.ToProblem(err)
	}

	end, err := s.rehearsals.begin(ctx, callerOf(ctx).User)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	defer end()

	before, waits, err := s.why(ctx, &j)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	type outcome struct { // written by the loop, perhaps after we gave up on it
		rehearsal *yardmaster.EditRehearsal
		refused   error
	}

	done := &outcome{}
	edit := yardmaster.Edit{Job: j.ID, By: callerOf(ctx).User, Set: in.Body.Set}

	err = s.query(ctx, func(y *yardmaster.Yard) {
		done.rehearsal, done.refused = y.RehearseEdit(s.Clock.Now(), edit)
	})
	if err == nil {
		err = done.refused
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	until := s.Clock.Now().Add(rehearsalTime)
	preview := done.rehearsal.Preview(func() bool { return ctx.Err() != nil || s.Clock.Now().After(until) })
	out := toEditPreview(&preview)
	if waits {
		before.Position = 0
		out.Before.Why = toWhy(&before)
	}

	return &httpapi.Body[api.EditPreview]{Body: out}, nil
}

func toEditPreview(p *yardmaster.EditPreview) api.EditPreview {
	out := api.EditPreview{
		Before: api.EditPlace{Position: p.Before},
		After:  api.EditPlace{Position: p.After, Why: toWhy(&yardmaster.WhyReport{Why: p.Why})},
		Starts: p.Starts, Passed: toPassed(p.Passed), Passing: toPassed(p.Passing), Preempted: []api.AffectedJob{},
	}

	for _, rn := range p.Preempted {
		out.Preempted = append(out.Preempted, api.AffectedJob{Job: rn.Job, Owner: rn.User})
	}

	return out
}

func toPassed(list []*queue.Item) api.PassedJobs {
	out := api.PassedJobs{Count: len(list), Jobs: []api.AffectedJob{}}
	for _, it := range list[:min(len(list), maxAffected)] {
		out.Jobs = append(out.Jobs, api.AffectedJob{Job: it.Job, Owner: it.User})
	}

	return out
}
