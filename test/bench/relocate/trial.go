package relocate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/ledger"
	"trainyard/internal/place"
	"trainyard/internal/place/catalogue"
	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
	"trainyard/internal/yardmaster"
	"trainyard/test/bench/burst"
)

// mover is who decides whether a job moves.
type mover int

const (
	stays  mover = iota // nobody: jobs end where they started
	moves               // the product
	always              // whenever there is room, whatever it costs
	pays                // whenever it pays at all
)

// trial is one way to run a stretch.
type trial struct {
	stretch *stretch
	worth   float64 // of an hour of waiting, in GPU-hours of the cloud
	bare    bool    // without ageing, patience and nodes that are kept, as the figure that is to be beaten
	mover   mover
	errors  forecasts
	outcome
}

// outcome is what a trial comes to.
type outcome struct {
	cloud     float64 // GPU-hours, at one dollar each
	transfer  float64 // dollars for checkpoints that go to and fro
	mean, p99 float64 // completion, in hours
	moved     int
	useless   int     // moves that did not save what they cost
	late      int     // moves that made a job later by more than the stated margin
	gained    float64 // dollars that moves saved, less what they cost

	ends           map[string]time.Duration // completion of each job
	later, earlier int                      // jobs, by more than the stated margin, than if none is moved
}

// money is what is paid for the cloud.
func (o *outcome) money() float64 { return o.cloud + o.transfer }

// savedWithTime is the money that is saved against another trial of the stretch, less the time of its jobs at its
// value.
func (t *trial) savedWithTime(never *trial) float64 {
	return never.money() - t.money() - (t.mean-never.mean)*float64(len(t.stretch.jobs))*t.worth
}

// compare counts the jobs that end later or earlier than in another trial of the stretch.
func (t *trial) compare(never *trial) {
	for name, at := range t.ends {
		switch was := never.ends[name]; {
		case at > was+statedMargin:
			t.later++
		case at < was-statedMargin:
			t.earlier++
		}
	}
}

// policy names the policy with its parameters.
func (t *trial) policy() string {
	name := "rules:balanced=" + strconv.FormatFloat(t.worth, 'f', -1, 64)
	if t.bare {
		name += ":ageing=90000h:patience=90000h"
	}

	if t.mover != moves {
		name += ":relocate=no"
	}

	return name
}

func (t *trial) run() error {
	newPolicy, err := catalogue.All(nil).Make(t.policy())
	if err != nil {
		return err
	}

	policy := newPolicy()

	switch t.mover {
	case always:
		policy = heedless(policy)
	case pays:
		policy = knowing(policy, t.worth)
	case stays, moves:
	}

	sizes := map[id.Job]job.Bytes{}
	t.ends = make(map[string]time.Duration, len(t.stretch.jobs))

	var completion []float64

	var savings []ledger.Saving

	cfg := sim.Config{
		Policy: policy, Nodes: burst.Local(t.stretch.nodes), Jobs: trace.List(t.jobs()),
		Cloud: &sim.Cloud{Offers: burst.Offers()}, Network: network(),
		Forecast: t.errors.maker(), ForecastEvery: forecastEvery,
		OnEnd: func(o *sim.Outcome) {
			completion = append(completion, (o.Ended - o.Job.At).Hours())
			sizes[o.ID] = o.Job.CheckpointSize
			t.ends[o.Job.Name] = o.Ended - o.Job.At
		},
		Yard: func(c *yardmaster.Config) {
			c.Unmetered = false
			if t.bare {
				c.Keep.MaxIdle, c.Keep.ReleaseMargin = time.Millisecond, 0
			}
		},
		OnLedger: func(c *ledger.Changes) {
			savings = append(savings, c.Savings...)
		},
	}

	r, err := sim.Run(cfg)
	switch {
	case err != nil:
		return err
	case r.Succeeded != len(t.stretch.jobs):
		return fmt.Errorf("%d of %d jobs succeeded", r.Succeeded, len(t.stretch.jobs))
	}

	for i := range savings {
		t.settle(&savings[i], sizes)
	}

	t.cloud, t.transfer = r.ByClass[fleet.OnDemand], r.TransferMoney
	t.mean, t.p99 = meanOf(completion), quantileOf(completion, 0.99)

	return nil
}

// settle counts what a move saved, as the yard's own ledger settles it, less what its transfer cost.
func (t *trial) settle(s *ledger.Saving, sizes map[id.Job]job.Bytes) {
	if s.Kind != string(place.Move) {
		return
	}

	saved := float64(s.Money)/1e9 - float64(network().Price.Moving(int64(sizes[s.Job])))
	t.moved++
	t.gained += saved

	if saved <= 0 {
		t.useless++
	}

	if s.Time.Duration() < -statedMargin {
		t.late++
	}
}

// statedMargin is by how much a move may make a job later, whatever is left of it. Of long ones the product allows a
// tenth; that is not counted in its favour here.
const statedMargin = 15 * time.Minute

// network is the product's default, and what clouds charge for a gigabyte that leaves them.
func network() *sim.Network {
	return &sim.Network{Storage: 1 << 30, Inside: 1 << 30, Across: 120 << 20, Price: 0.09, Disk: 1 << 30}
}

// jobs are those of the stretch as people would submit them: balanced, anywhere, with checkpoints of half to 32 GB.
// Each declares its run time.
func (t *trial) jobs() []*sim.Job {
	list := make([]*sim.Job, len(t.stretch.jobs))

	for i := range t.stretch.jobs {
		a := &t.stretch.jobs[i]
		chance := rand.New(rand.NewPCG(uint64(i), 14))
		spec := &job.Spec{
			Place: job.PlaceAny, Objective: job.ObjectiveBalanced, Resources: burst.Resources(a.GPUs),
			Expect: job.Duration(a.Duration), Checkpoint: &job.Checkpoint{Every: job.Duration(10 * time.Minute)},
		}

		list[i] = &sim.Job{
			Name: a.Name, At: a.At, Owner: id.User(a.Owner), Duration: a.Duration, Spec: spec,
			CheckpointSize: job.Bytes(math.Exp2(29 + 6*chance.Float64())),
		}
	}

	return list
}
