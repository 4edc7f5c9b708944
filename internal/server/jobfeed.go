package server

import (
	"context"
	"slices"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/yardmaster"
)

const (
	// lookEvery is how often a live feed looks at what is not stored: why a job waits, and what its owner should know.
	lookEvery = 3 * time.Second
	// repeatEvery is how often a feed sends why a job waits while only the figures in the sentence change.
	repeatEvery = time.Minute
)

// jobFeed sends a job to one who follows it, whenever its state changes, what it waits for, or what its owner should
// know.
type jobFeed struct {
	jobNews

	s        *Server
	out      itemWriter
	look     bool // what is not stored is to be looked at
	deferred bool // its new state is not in the feed of events yet
}

// jobNews is what one who follows a job knows of it.
type jobNews struct {
	shown   api.Job
	seq     uint64        // of the job that was sent last
	event   uint64        // number of the newest event that is accounted for
	blocker place.Blocker // why it waits
	at      time.Time     // when it was sent last
}

// itemWriter takes the items of a feed. It reports false if nobody listens any more.
type itemWriter interface {
	Add(cursor, kind string, v any) bool
}

// newJobFeed returns the feed of a job, of which nothing was sent yet.
func (s *Server) newJobFeed(out itemWriter) *jobFeed {
	return &jobFeed{s: s, out: out, jobNews: jobNews{event: s.Feed.Last()}, look: true}
}

// known returns what those who listen know by now.
func (f *jobFeed) known() *jobNews {
	news := f.jobNews
	return &news
}

// send sends the job if something about it is new. It reports false if nobody listens any more. newest is the number of
// the newest event before the job was read.
func (f *jobFeed) send(ctx context.Context, j *job.Job, newest uint64) bool {
	if j.Seq == f.seq {
		f.event = newest
		if !f.look {
			return true
		}
	}

	steps, complete := f.steps(j)
	if !complete && !f.deferred && !j.State.Final() {
		f.deferred = true // it was read before its event came, which is about to

		return true
	}

	now, blocker := toJob(j), place.BlockNone
	if !j.State.Final() {
		var known bool

		now, blocker, known = f.s.liveJob(ctx, j)
		if !known && j.Seq == f.seq {
			return true
		}
	}

	f.look, f.deferred = false, false
	if j.Seq == f.seq && !f.isNews(&now, blocker) {
		return true
	}

	for _, e := range steps {
		then := now
		then.State, then.Reason, then.Since, then.Remarks = job.State(e.To), e.Reason, shown(e.At), nil
		then.Status = job.StatusOf(then.State, j.Cause)
		if !f.out.Add("", "state", then) {
			return false
		}
	}

	f.shown, f.seq, f.event, f.blocker, f.at = now, j.Seq, max(newest, f.event), blocker, f.s.Clock.Now()

	return f.out.Add("", "state", now)
}

// steps lists the states through which a job has gone since it was sent last, without that in which it is. They may
// follow each other so closely that nobody who looks at the job alone would see them. It reports false if the event of
// the state in which it is has not come yet; a change of something else has none.
func (f *jobFeed) steps(j *job.Job) (list []yardmaster.Event, complete bool) {
	if j.Seq == f.seq || f.seq == 0 {
		return nil, true
	}

	events, _, _ := f.s.Feed.After(f.event) // what is not in memory any more is left out
	events = slices.DeleteFunc(events, func(e yardmaster.Event) bool {
		return e.Job != j.ID || e.To == "" || e.Kind != "job."+e.To || e.From == e.To
	})

	if n := len(events); n > 0 && events[n-1].To == string(j.State) {
		f.event = events[n-1].Seq
		return events[:n-1], true
	}

	return nil, false
}

// isNews reports whether a job that is in the same state as before is worth sending again.
func (f *jobFeed) isNews(now *api.Job, blocker place.Blocker) bool {
	return blocker != f.blocker || !slices.Equal(now.Remarks, f.shown.Remarks) ||
		now.Reason != f.shown.Reason && f.s.Clock.Now().Sub(f.at) >= repeatEvery
}

// liveJob returns a job that has not ended as lists show it, and why it waits. It reports false if only what is stored
// is known.
func (s *Server) liveJob(ctx context.Context, j *job.Job) (api.Job, place.Blocker, bool) {
	out := toJob(j)

	briefs, err := s.briefs(ctx, []job.Job{*j})
	if err != nil {
		return out, place.BlockNone, false
	}

	addBrief(&out, &briefs[0])

	made, err := s.seer.Waiting([]job.Job{*j})
	if err != nil && fault.KindOf(err) != fault.Unavailable {
		return out, briefs[0].Blocker, false
	}

	addForecast(&out, made[0])

	return out, briefs[0].Blocker, true
}

// addForecast shows the forecast of a job as lists do, and what its owner should know by it.
func addForecast(out *api.Job, f *job.Forecast) {
	out.Forecast = api.NewForecast(f).Brief()
	if f == nil || out.State.Final() {
		return
	}

	for _, code := range []string{job.NoticeStalled, job.NoticeNotNumber} {
		if text := f.Remarks[code]; text != "" && slices.Contains(f.Notices, code) {
			out.Remarks = append(out.Remarks, text)
		}
	}
}
