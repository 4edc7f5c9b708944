package gangs_test

import (
	"slices"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/gangs"
	"trainyard/internal/queue"
)

var now = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// inner is a policy that notes what it was shown and starts nothing.
type inner struct{ saw *place.View }

func (*inner) Name() string  { return "inner" }
func (*inner) Revises() bool { return true }

func (p *inner) Plan(v *place.View) place.Plan {
	p.saw = v
	return place.Plan{}
}

// strict is one that bars all jobs.
type strict struct{ inner }

func (*strict) Bars(*place.View, *place.Plan, *queue.Item, []place.Allocation) string {
	return "not today"
}

type yard struct {
	table *fleet.Table
	line  *queue.Queue
	runs  []*place.Running
	last  uint64
}

// newYard has a node of each of the models, with 4 GPUs.
func newYard(models ...string) *yard {
	y := &yard{table: fleet.NewTable(), line: queue.New()}
	for i, model := range models {
		n := &fleet.Node{ID: id.Node(rune('a' + i)), Class: fleet.Local, State: fleet.Ready}
		n.Inventory = fleet.Inventory{CPUs: 8000, Memory: 1 << 30}
		for g := range 4 {
			n.Inventory.GPUs = append(n.Inventory.GPUs, fleet.GPU{Index: g, Model: model})
		}

		y.table.Put(n, 0)
	}

	return y
}

func (y *yard) submit(nodes, gpus int) *queue.Item {
	y.last++
	it := &queue.Item{Job: id.NewJob(y.last), Number: y.last, User: "ada", Outlook: &job.Outlook{Submitted: now}}
	y.line.Add(it, fleet.Need{
		Nodes: nodes, MaxNodes: nodes, GPUs: gpus, MaxGPUs: gpus, Place: job.PlaceAny,
	})

	return it
}

// occupy lets a job run on nodes for so long.
func (y *yard) occupy(gpus int, lasts time.Duration, nodes ...id.Node) {
	it := y.submit(len(nodes), gpus)
	y.line.Remove(it)
	r := &place.Running{Item: it, Run: id.NewRun(it.Job, 1), GPUs: gpus * len(nodes)}
	for _, n := range nodes {
		mask := fleet.LowestGPUs(15, gpus)
		r.Allocations = append(r.Allocations, place.Allocation{Node: n, GPUs: mask})
		y.table.Book(n, fleet.Hold{Run: r.Run, Job: it.Job, GPUs: mask, Ends: now.Add(lasts)})
	}

	y.runs = append(y.runs, r)
}

func (y *yard) view() *place.View {
	return &place.View{Now: now, Rooms: y.table.Rooms(), Queue: y.line, Running: y.runs}
}

func nodes(list []place.Allocation) []id.Node {
	var names []id.Node
	for _, a := range list {
		names = append(names, a.Node)
	}

	return names
}

func TestTheFirstGangStartsOrHasNodesKept(t *testing.T) {
	t.Parallel()

	y := newYard("A100", "V100", "T4")
	y.occupy(2, 3*time.Hour, "a")
	gang := y.submit(2, 4)

	p := &inner{}
	plan := gangs.Wrap(p, gangs.ByGPU).Plan(y.view())

	if len(plan.Starts) != 1 || !slices.Equal(nodes(plan.Starts[0].Allocations), []id.Node{"b", "c"}) {
		t.Fatalf("two nodes are free, and the plan is %+v", plan)
	}

	y.occupy(1, time.Hour, "b")
	plan = gangs.Wrap(p, gangs.ByGPU).Plan(y.view())

	r := plan.Reservation
	if len(plan.Starts) > 0 || r == nil || r.Job != gang.Job || !slices.Equal(r.Nodes, []id.Node{"b", "c"}) ||
		!r.At.Equal(now.Add(time.Hour)) {
		t.Fatalf("b is free in an hour, and the plan is %+v, %+v", plan.Starts, r)
	}

	var closed []id.Node
	for i := range p.saw.Rooms {
		if !p.saw.Rooms[i].Open {
			closed = append(closed, p.saw.Rooms[i].Node.ID)
		}
	}

	if !slices.Equal(closed, []id.Node{"b", "c"}) {
		t.Errorf("closed to others are %v", closed)
	}
}

func TestALaterGangGetsWhatIsLeft(t *testing.T) {
	t.Parallel()

	y := newYard("A100", "V100")
	y.submit(1, 4)
	gang := y.submit(2, 4)

	p := &inner{}
	plan := gangs.Wrap(p, gangs.ByGPU).Plan(y.view())

	if !p.saw.Rooms[0].Open || !p.saw.Rooms[1].Open {
		t.Error("nodes are closed to a job that is before the gang")
	}

	if len(plan.Starts) != 1 || plan.Starts[0].Item != gang {
		t.Errorf("the policy leaves both nodes free, and the plan is %+v", plan)
	}

	y.occupy(1, time.Hour, "a")
	plan = gangs.Wrap(p, gangs.ByGPU).Plan(y.view())
	if len(plan.Starts) != 0 || plan.Reservation != nil {
		t.Errorf("one node is not free, and the plan is %+v", plan)
	}
}

func TestAGangOnUnlikeNodesIsLeftAlone(t *testing.T) {
	t.Parallel()

	y := newYard("A100", "A100", "V100")
	y.occupy(2, time.Hour, "a", "b")
	y.occupy(2, time.Hour, "c", "a")

	p := &inner{}
	gangs.Wrap(p, gangs.ByGPU).Plan(y.view())

	if len(p.saw.Running) != 1 || p.saw.Running[0] != y.runs[0] {
		t.Errorf("the policy sees %v", p.saw.Running)
	}
}

func TestAlikeNodesAreThePolicysBusiness(t *testing.T) {
	t.Parallel()

	y := newYard("A100", "A100", "V100")
	y.submit(2, 4)
	y.submit(4, 4) // more than there are

	plan := gangs.Wrap(&inner{}, gangs.ByGPU).Plan(y.view())
	if len(plan.Starts) != 0 || plan.Reservation != nil {
		t.Errorf("the plan is %+v", plan)
	}
}

func TestThePolicysOwnConditionsHold(t *testing.T) {
	t.Parallel()

	y := newYard("A100", "V100")
	y.submit(2, 4)

	p := &strict{}
	plan := gangs.Wrap(p, gangs.ByGPU).Plan(y.view())
	if len(plan.Starts) != 0 || plan.Reservation != nil || !p.saw.Rooms[0].Open {
		t.Errorf("the policy bars it, and the plan is %+v", plan)
	}

	if want := (place.Wait{Job: "j1", Reason: "not today"}); len(plan.Waits) != 1 || plan.Waits[0] != want {
		t.Errorf("waits are %+v", plan.Waits)
	}
}
