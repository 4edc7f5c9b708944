package utilization

import (
	"fmt"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

const (
	// shortFor is how long a rank may get less than its share of a GPU until that is reported.
	shortFor = 10 * time.Second
	// A rank gets less than its share if more than this part of it is missing, and more than this many seconds: one
	// that waits until others have ended their turns gets its own a little later.
	shortPart    = 0.05
	shortSeconds = 0.1
	// deniedAgain is how long no allocation may be refused until the next one is reported anew.
	deniedAgain = 10 * time.Minute
)

// shareRecord is what a rank gets of a GPU that it shares.
type shareRecord struct {
	GPU   int     `json:"gpu"`
	Asked float64 `json:"asked"`
	// Between the two newest measurements, as parts of the time: how much it had, and how much it had or waited for.
	Got    float64 `json:"got"`
	Wanted float64 `json:"wanted"`
	// Since is since when it gets less than its share; zero if it does not. Lacking is how many seconds it lacks since.
	Since    time.Time `json:"since,omitzero"`
	Lacking  float64   `json:"lacking,omitempty"`
	Reported bool      `json:"reported,omitempty"`
	Denied   time.Time `json:"denied,omitzero"`
	Bypassed int       `json:"bypassed,omitempty"` // reported
}

// addShare compares two measurements of a rank that shares a GPU, and returns what its owner should know.
func (r *rankRecord) addShare(before, now *job.Use, o *yardmaster.Order) []yardmaster.NoteShare {
	if now.Share == nil || o.Launch.Share == 0 || len(o.Launch.GPUs) != 1 {
		return nil
	}

	if r.Share == nil {
		r.Share = &shareRecord{GPU: o.Launch.GPUs[0], Asked: o.Launch.Share}
	}

	var notes []yardmaster.NoteShare

	note := func(kind yardmaster.ShareNote, format string, args ...any) {
		notes = append(notes, yardmaster.NoteShare{
			Run: o.Run, Node: o.Node, Kind: kind, Reason: fmt.Sprintf(format, args...),
		})
	}

	s, u := r.Share, now.Share
	gpu := fmt.Sprintf("GPU %d of %s", s.GPU, o.Node)

	if u.Bypassed > s.Bypassed {
		note(yardmaster.ShareBypassed, "not held to its share of %s of %s: %s of it without the library that divides the GPU",
			humanize.Percent(o.Launch.Share), gpu, humanize.Count(u.Bypassed, "process"))
	}

	s.Bypassed = u.Bypassed

	last := before.Share
	if last == nil || u.Demanded < last.Demanded { // nothing was measured before, or another agent counts from 0
		last = &job.ShareUse{}
	}

	if u.Denials > last.Denials {
		if s.Denied.IsZero() || now.At.Sub(s.Denied) >= deniedAgain {
			note(yardmaster.ShareDenied, "ran out of the %s of memory of %s that the job may have", humanize.Size(u.Cap), gpu)
		}

		s.Denied = now.At
	}

	if before.Share == nil { // the rest is about the time between two measurements
		return notes
	}

	elapsed := now.At.Sub(before.At).Seconds()
	s.Got = min((u.Held-last.Held)/elapsed, 1)
	s.Wanted = min((u.Demanded-last.Demanded)/elapsed, 1)

	// An opportunistic job is promised what the others leave, and no more.
	lacks := u.Short(last)
	if o.Launch.ShareClass == job.ShareOpportunistic || lacks <= max(shortPart*(u.Entitled-last.Entitled), shortSeconds) {
		s.Since, s.Lacking, s.Reported = time.Time{}, 0, false

		return notes
	}

	if s.Since.IsZero() {
		s.Since = before.At
	}

	s.Lacking += lacks

	if lasts := now.At.Sub(s.Since); lasts >= shortFor && !s.Reported {
		s.Reported = true
		note(yardmaster.ShareShort, "got less than its share of %s of %s for %s: %s are missing, and it has %s now",
			humanize.Percent(o.Launch.Share), gpu, humanize.Duration(lasts),
			humanize.Duration(time.Duration(s.Lacking*float64(time.Second))), humanize.Percent(s.Got))
	}

	return notes
}

// ShareOf returns what the newest run of a job gets of a GPU that it shares, nil if that is not known.
func (r *Recorder) ShareOf(j id.Job) *api.ShareUse {
	r.mu.Lock()
	defer r.mu.Unlock()

	known, ok := r.jobs[j]
	if !ok || known.Ranks[0] == nil || known.Ended {
		return nil
	}

	rank := known.Ranks[0]
	if rank.Share == nil || rank.Last.Share == nil {
		return nil
	}

	u := rank.Last.Share
	out := &api.ShareUse{
		Got: rank.Share.Got, Wanted: rank.Share.Wanted, Mode: u.Mode, Memory: job.Bytes(u.Memory), Denials: u.Denials,
		Bypassed: u.Bypassed,
	}

	if lasts := rank.Share.Since; !lasts.IsZero() && rank.Share.Reported {
		out.ShortSince = &lasts
	}

	if u.Demanded > 0 {
		mean := u.Held / u.Demanded
		out.Served = &mean
	}

	return out
}
