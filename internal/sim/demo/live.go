package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs/archive"
	"trainyard/internal/metric"
	"trainyard/internal/sim"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

// Live lets the nodes of a demo work as long as a server runs its yard, and people submit jobs.
type Live struct {
	model *sim.Live
	state yardmaster.State
}

// NewLive returns the nodes of a yard with this state. It must follow all that the yard does from then on.
func NewLive(s *yardmaster.State) *Live {
	return &Live{model: sim.NewLive(), state: yardmaster.State{
		Jobs: slices.Clone(s.Jobs), Runs: slices.Clone(s.Runs), Nodes: slices.Clone(s.Nodes), Users: slices.Clone(s.Users),
		Leases: slices.Clone(s.Leases), Needs: s.Needs,
	}}
}

// Follow takes in a committed batch.
func (l *Live) Follow(b *yardmaster.Batch) { l.model.Follow(b) }

// Server is what the nodes report to.
type Server struct {
	Intake
	Do    func(context.Context, yardmaster.Message) (any, error)
	Store store.Store
	Logs  *archive.Archive
	Clock clock.Clock
	Log   *slog.Logger
}

// Run models the nodes until ctx ends.
func (l *Live) Run(ctx context.Context, s Server) error {
	done, err := progress(ctx, s.Store, l.state.Jobs)
	if err != nil {
		return err
	}

	now := s.Clock.Now()
	w := &watcher{ctx: ctx, intake: s.Intake, logs: s.Logs, log: s.Log, live: true, runs: map[id.Run]*sight{}}

	cfg := base()
	cfg.Jobs = newWorkload(now, uint64(now.Unix()))
	cfg.Watch, cfg.WatchEvery = w.see, watchLive
	cfg.OnRefusal = func(err error) { w.warn("a model was refused", err) }
	cfg.Begin = &sim.Beginning{
		Now: now, State: l.state,
		Truth: func(j job.Job) *sim.Job { return truth(j.Spec) },
		Progress: func(j id.Job) (float64, time.Time, bool) {
			p, known := done[j]
			return p.Step, time.UnixMicro(int64(p.At * 1e6)), known
		},
	}

	return l.model.Run(ctx, cfg, sim.Line{Do: s.Do, Clock: s.Clock, ReportEvery: reportEvery})
}

// progress returns how far jobs have come: the newest points of their curves.
func progress(ctx context.Context, s store.Store, jobs []job.Job) (map[id.Job]metric.Point, error) {
	done := map[id.Job]metric.Point{}

	for i := range jobs {
		if jobs[i].State.Final() || jobs[i].Epoch == 0 {
			continue
		}

		docs, err := s.Documents(ctx, store.DocumentFilter{
			Kind: store.CurveDocument, ID: string(jobs[i].ID) + "/loss", Limit: 1,
		})
		if err != nil {
			return nil, fmt.Errorf("read how far job %s is: %w", jobs[i].ID, err)
		}

		for _, d := range docs {
			var curve metric.Series
			if err := json.Unmarshal([]byte(d.Text), &curve); err != nil {
				return nil, fmt.Errorf("read how far job %s is: %w", jobs[i].ID, err)
			}

			if n := len(curve.Points); n > 0 {
				done[jobs[i].ID] = curve.Points[n-1]
			}
		}
	}

	return done, nil
}
