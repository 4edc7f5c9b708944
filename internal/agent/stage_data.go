package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"

	"trainyard/internal/agent/staging"
	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// data brings the datasets of ranks before they are given to the runtime.
type data struct {
	cache  *staging.Cache
	notify func() // when a rank has its data, or never will
	tasks  sync.WaitGroup

	mu    sync.Mutex
	ranks map[key]*stagingTask
}

// stagingTask is how far the data of one rank is.
type stagingTask struct {
	cancel context.CancelFunc
	done   bool
	vars   map[string]string
	err    error
}

func (a *Agent) openData() (*data, error) {
	soon := func() { notify(a.reconcileSoon) }
	cache, err := staging.Open(staging.Options{
		Dir: a.path("datasets"), Limit: a.cfg.DataLimit, Roots: a.cfg.DataRoots, Hosts: a.cfg.DataHosts,
		Private: append([]string{a.cfg.Dir}, a.cfg.Private...), Log: a.log, Clock: a.clk, Changed: soon,
		Free: a.cfg.Free, MinFree: a.cfg.MinFree,
	})

	return &data{cache: cache, notify: soon, ranks: map[key]*stagingTask{}}, err
}

func (d *data) close() {
	d.mu.Lock()

	for _, b := range d.ranks {
		b.cancel()
	}

	d.mu.Unlock()
	d.cache.Close()
	d.tasks.Wait()
}

// nameOf is how the cache knows a rank.
func nameOf(k key) string { return string(k.run) + "." + strconv.Itoa(k.rank) }

// ready returns the launch of a rank with the variables by which it finds its data, and
// whether all of that is here. While it is not it is being brought.
func (d *data) ready(k key, launch api.Launch) (api.Launch, bool, error) {
	if len(launch.Data) == 0 {
		return launch, true, nil
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	b := d.ranks[k]
	if b == nil {
		ctx, cancel := context.WithCancel(context.Background())
		b = &stagingTask{cancel: cancel}
		d.ranks[k] = b
		d.tasks.Go(func() {
			defer cancel()

			vars, err := d.cache.Stage(ctx, nameOf(k), launch.Data)
			d.mu.Lock()
			b.done, b.vars, b.err = true, vars, err
			d.mu.Unlock()
			d.notify()
		})
	}

	if !b.done {
		return launch, false, nil
	}

	delete(d.ranks, k)

	env := maps.Clone(launch.Env)
	if env == nil {
		env = map[string]string{}
	}

	maps.Copy(env, b.vars)
	launch.Env = env

	return launch, true, b.err
}

// waiting lists the ranks whose data is being brought, as they are reported.
func (d *data) waiting() []api.RankReport {
	d.mu.Lock()
	defer d.mu.Unlock()

	var list []api.RankReport
	for k := range d.ranks {
		list = append(
			list,
			api.RankReport{Run: k.run, Rank: k.rank, State: job.RunPreparing, Reason: d.cache.Progress(nameOf(k))},
		)
	}

	return list
}

// busy reports whether any data is being brought.
func (d *data) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.ranks) > 0
}

// keepOnly lets go of the data of all ranks for which live is false.
func (d *data) keepOnly(live map[string]bool) error {
	d.mu.Lock()

	for k, b := range d.ranks {
		if !live[nameOf(k)] {
			b.cancel()
			delete(d.ranks, k)
		}
	}

	d.mu.Unlock()

	return d.cache.KeepOnly(func(rank string) bool { return live[rank] })
}

// purge removes data that this node may not keep. What a run uses stays until the yard
// asks again.
func (d *data) purge(list []job.DataCopy) {
	for _, c := range list {
		d.cache.Remove(c.Name, c.Source)
	}
}

// dataFailed gives a rank up whose data cannot be had here.
func (a *Agent) dataFailed(k key, uid id.UID, err error) error {
	if errors.Is(err, context.Canceled) {
		return nil // it is not wanted any more
	}

	a.log.Error("cannot stage data of a run", "run", k.run, "rank", k.rank, "error", err)

	return a.recordResult(k, api.RankReport{UID: uid, Cause: job.CauseDataFailed, Reason: fmt.Sprint(err)})
}
