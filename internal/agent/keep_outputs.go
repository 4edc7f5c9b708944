package agent

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"trainyard/internal/agent/checkpoints"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/job"
)

// keptOutputs uploads the output files of ranks that have ended. Like that of a last checkpoint, their upload
// holds back the end of a rank: the node of one that the server hears of as ended may be released.
type keptOutputs struct {
	mu      sync.Mutex
	keepers map[key]*checkpoints.Keeper
	asked   map[string]bool // requests that are or were answered; the server forgets them soon
	answers sync.WaitGroup
	turns   chan struct{} // a place for each answer at a time
}

// maxAnswers is how many requests for files are answered at a time, and maxAsked how many are remembered.
const (
	maxAnswers = 2
	maxAsked   = 10_000
)

func newKeptOutputs() *keptOutputs {
	return &keptOutputs{
		keepers: map[key]*checkpoints.Keeper{}, asked: map[string]bool{}, turns: make(chan struct{}, maxAnswers),
	}
}

// updateKeepers begins to upload the output files of ranks that have ended.
func (a *Agent) updateKeepers(list []rundir.Status) error {
	o := a.outputs
	o.mu.Lock()
	defer o.mu.Unlock()

	var errs []error

	for _, st := range list {
		k := key{st.Run, st.Rank}
		if st.State != job.RunEnded || st.Started.IsZero() || o.keepers[k] != nil {
			continue
		}

		sources, err := a.rt.MetricSources(st.Run, st.Rank)
		if err != nil || len(sources.Launch.Outputs) == 0 {
			errs = append(errs, err)
			continue
		}

		o.keepers[k] = a.checkpoints.Keep(checkpoints.Outputs{
			Run: st.Run, UID: st.UID, Rank: st.Rank, Work: sources.Work, Checkpoint: sources.Launch.Checkpoint,
			Checkpoints: sources.Checkpoints, Patterns: sources.Launch.Outputs,
		})
	}

	return errors.Join(errs...)
}

// kept reports whether the output files of an ended rank are kept, or cannot be.
func (o *keptOutputs) kept(k key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	keeper := o.keepers[k]
	if keeper == nil {
		return true
	}

	done, _ := keeper.Finished()

	return done
}

// describe adds to the report of a rank how far the upload of its output files is. A rank that has ended is reported
// as running meanwhile, unless it was ordered to end at once.
func (o *keptOutputs) describe(k key, stop job.StopMode, report *api.RankReport) {
	o.mu.Lock()
	keeper := o.keepers[k]
	o.mu.Unlock()

	if keeper == nil || report.State != job.RunEnded {
		return
	}

	holdBack(&keeper.Upload, stop, report, "keeping output files", "its output files were not kept")
}

// holdBack changes the report of a rank that has ended while something of it is uploaded, or could not be: doing and
// failed say what. A rank that was ordered to end at once is not held back.
func holdBack(u *checkpoints.Upload, stop job.StopMode, report *api.RankReport, doing, failed string) {
	done, problem := u.Finished()

	switch {
	case !done && stop != job.StopKill:
		*report = stillRunning(report, cmp.Or(u.Progress(), doing))
	case problem != nil && report.Reason == "":
		report.Reason = clipReason(failed + ": " + problem.Error())
	}
}

// stillRunning is the report of a rank whose program has ended, and of which something is still to be stored.
func stillRunning(report *api.RankReport, words string) api.RankReport {
	return api.RankReport{
		Run: report.Run, UID: report.UID, Rank: report.Rank, State: job.RunRunning, Started: report.Started,
		Reason: "the program has ended; " + words,
	}
}

// drop ends the keeper of a rank that the runtime does not have any more.
func (o *keptOutputs) drop(k key) {
	o.mu.Lock()
	keeper := o.keepers[k]
	delete(o.keepers, k)
	o.mu.Unlock()

	if keeper != nil {
		keeper.Stop()
	}
}

// stop ends all keepers; the next agent process continues.
func (o *keptOutputs) stop() {
	o.mu.Lock()
	keepers := slices.Collect(maps.Values(o.keepers))
	o.mu.Unlock()

	for _, k := range keepers {
		k.Stop()
	}

	o.answers.Wait()
}

// answerRequests lists or uploads files that people want from runs of this node, each once.
func (a *Agent) answerRequests(ctx context.Context, requests []api.OutputsRequest) {
	o := a.outputs
	o.mu.Lock()
	defer o.mu.Unlock()

	for _, r := range requests {
		if o.asked[r.ID] {
			continue
		}

		if len(o.asked) >= maxAsked {
			o.asked = map[string]bool{}
		}

		o.asked[r.ID] = true

		o.answers.Go(func() {
			select {
			case o.turns <- struct{}{}:
				defer func() { <-o.turns }()

				a.noteProblem("answer to a request for files", a.answer(ctx, r))
			case <-ctx.Done():
			}
		})
	}
}

// answer answers one request. What goes wrong with the files is the answer, too.
func (a *Agent) answer(ctx context.Context, r api.OutputsRequest) error {
	reply := api.NewOutputs{Run: r.Run, Rank: r.Rank, Request: r.ID}

	sources, err := a.rt.MetricSources(r.Run, r.Rank)
	if err == nil {
		reply.UID = sources.Launch.UID
		set := checkpoints.Outputs{
			Run: r.Run, UID: sources.Launch.UID, Rank: r.Rank, Work: sources.Work, Checkpoint: sources.Launch.Checkpoint,
			Checkpoints: sources.Checkpoints, Patterns: r.Patterns, Request: r.ID,
		}

		if !r.List {
			err = a.checkpoints.Send(ctx, set)
			if err == nil {
				return nil // the files were the answer
			}
		} else {
			reply.Found, reply.Notes, err = checkpoints.List(set)
		}
	}

	if ctx.Err() != nil {
		return ctx.Err()
	}

	if err != nil {
		reply.Problem = clipReason(err.Error())
	}

	return a.client.Load().AddOutputs(ctx, reply)
}
