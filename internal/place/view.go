package place

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"trainyard/internal/dataset"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/money"
	"trainyard/internal/queue"
	"trainyard/internal/share"
	"trainyard/internal/tenant"
)

// View is what a policy sees: the yard at one moment, as data. It holds no functions, so it
// can be written as JSON, read back and planned on again with the same result.
//
// A view for a plan that is made at once may share memory with the yard. One that
// outlives the next change of the yard must be a Clone.
type View struct {
	Now     time.Time
	Rooms   []fleet.Room   // sorted by the nodes' names
	Bands   []fleet.Band   `json:",omitempty"` // the rooms in the order in which to fill them; nil if not arranged
	Changes *fleet.Changes `json:"-"`          // which rooms have changed; nil if that is not known
	Queue   *queue.Queue
	Running []*Running // jobs that hold nodes, by order of submission
	// NoneSlow says that the Outlook.Slow of all of them is less than SlowForecasts; false if that is not known.
	NoneSlow bool `json:"-"`

	// Usage is the decayed usage of every user with unfinished jobs, in GPU-seconds, and
	// ProjectUsage the same for projects. A user or project that is not listed has none.
	Usage        map[id.User]float64    `json:",omitempty"`
	ProjectUsage map[id.Project]float64 `json:",omitempty"`

	Limits *Limits            `json:",omitempty"` // what quotas and budgets allow; nil if there are none
	Data   *dataset.Catalogue `json:",omitempty"` // datasets with their copies; nil if there are none
	Tariff *fleet.Tariff      `json:",omitempty"` // what nodes cost; nil if unknown
	Offers []fleet.Offer      `json:",omitempty"` // what can be provisioned now, cheapest first; MaxNodes is how many more
	Leases []*fleet.Lease     `json:",omitempty"` // that have not ended, by number
	Past   *queue.Past        `json:",omitempty"` // durations of earlier runs; nil if unknown

	Beside *share.Interference `json:",omitempty"` // how fast jobs are beside others on a GPU; nil if unknown

	NodeLimit NodeLimit       `json:",omitzero"`  // the yard's limit on provisioned nodes
	Network   dataset.Network `json:",omitzero"`  // over which datasets and checkpoints travel
	Exhausted []fleet.Offer   `json:",omitempty"` // offers of which as many nodes are in use as may be; MaxNodes is that limit
}

// UsageOf returns the decayed usage of a user.
func (v *View) UsageOf(u id.User) float64 { return v.Usage[u] }

// ProjectUsageOf returns the decayed usage of a project.
func (v *View) ProjectUsageOf(p id.Project) float64 { return v.ProjectUsage[p] }

// Allow returns what a job may still use under the quotas of its owner and project and under
// its own budget.
func (v *View) Allow(it *queue.Item) tenant.Allowance {
	if v.Limits == nil {
		return tenant.Unlimited()
	}

	if a, ok := v.Limits.Jobs[it.Job]; ok {
		return a
	}
	if l, ok := v.Limits.Payers[queue.Payer{User: it.User, Project: it.Project}]; ok {
		return l.Allowance
	}

	return tenant.Unlimited()
}

// Borrows reports whether the owner of a job, or its project, uses more GPUs than their quota,
// borrowed while nobody else needed them.
func (v *View) Borrows(it *queue.Item) bool {
	return v.Limits != nil && v.Limits.Payers[queue.Payer{User: it.User, Project: it.Project}].Borrows
}

// Stage returns how long staging a job's datasets on a node takes, and what it costs.
// A node that is not in the view counts as a local one.
func (v *View) Stage(it *queue.Item, n *fleet.Node) (time.Duration, money.Amount) {
	if v.Data == nil || it.Spec == nil || len(it.Spec.Data) == 0 {
		return 0, 0
	}

	return v.Data.Stage(it.Spec.Data, SpotOf(n), v.inCloud)
}

// inCloud reports whether a node of the view is not a local one.
func (v *View) inCloud(name id.Node) bool {
	n := v.node(name)
	return n != nil && n.Class != fleet.Local
}

// node returns a node of the view, nil if there is none of that name.
func (v *View) node(name id.Node) *fleet.Node {
	if r := v.room(name); r != nil {
		return r.Node
	}

	return nil
}

// room returns the room of a node, nil if there is none of that name.
func (v *View) room(name id.Node) *fleet.Room {
	at, found := slices.BinarySearchFunc(v.Rooms, name, func(r fleet.Room, n id.Node) int {
		return cmp.Compare(r.Node.ID, n)
	})
	if !found {
		return nil
	}

	return &v.Rooms[at]
}

// SpotOf returns where a node is, as datasets see it.
func SpotOf(n *fleet.Node) dataset.Spot {
	return dataset.Spot{Node: n.ID, Pool: n.Pool, Cloud: n.Class != fleet.Local}
}

// Clone returns a view that does not change with the yard, for a plan that is made
// outside the loop. What is never changed in place is shared: nodes, job specs, allocations,
// the tariff, and the snapshot of the datasets.
func (v *View) Clone() *View { return v.Copy(func() []fleet.Room { return v.Rooms }).View() }

// Copy is a view at one moment, of which View makes a clone, perhaps later and outside the loop.
type Copy struct {
	view    View // without rooms, queue and running jobs
	rooms   func() []fleet.Room
	queue   *queue.Copy
	running []Running
}

// Copy does the part of Clone that must be done before the yard goes on, and which takes a fraction of the time. What
// rooms returns must not change until View has been called.
func (v *View) Copy(rooms func() []fleet.Room) *Copy {
	c := &Copy{view: *v, rooms: rooms, queue: v.Queue.Copy(), running: make([]Running, len(v.Running))}
	c.view.Bands, c.view.Changes = nil, nil // they belong to the table and only save work
	c.view.Rooms, c.view.Queue, c.view.Running = nil, nil, nil
	c.view.Offers = slices.Clone(v.Offers)
	c.view.Exhausted = slices.Clone(v.Exhausted)

	items := queue.CopyItems(len(v.Running), func(yield func(*queue.Item) bool) {
		for _, r := range v.Running {
			if !yield(r.Item) {
				return
			}
		}
	})

	for i, r := range v.Running {
		c.running[i] = *r
		c.running[i].Item = &items[i]
	}

	c.view.Leases = make([]*fleet.Lease, len(v.Leases))
	for i, l := range v.Leases {
		lease := *l
		c.view.Leases[i] = &lease
	}

	if v.Past != nil {
		c.view.Past = v.Past.Clone()
	}

	return c
}

// Now returns the time of the view.
func (c *Copy) Now() time.Time { return c.view.Now }

// View returns the view, which takes over what was copied: it may be called once.
func (c *Copy) View() *View {
	v := c.view
	v.Queue = c.queue.Queue()

	v.Rooms = slices.Clone(c.rooms())
	for i := range v.Rooms {
		v.Rooms[i].Holds = slices.Clone(v.Rooms[i].Holds)
	}

	v.Running = make([]*Running, len(c.running))
	for i := range c.running {
		r := &c.running[i]
		r.Shape = v.Queue.ShapeOf(r.Shape.Need)
		v.Running[i] = r
	}

	return &v
}

// UnmarshalJSON reads a view that was written as JSON.
func (v *View) UnmarshalJSON(text []byte) error {
	type plain View

	if err := json.Unmarshal(text, (*plain)(v)); err != nil {
		return err
	}

	// Queued and running jobs with the same need share one shape.
	for _, r := range v.Running {
		r.Shape = v.Queue.ShapeOf(r.Shape.Need)
	}

	return nil
}

// Limits is what quotas and budgets allow those who have jobs.
type Limits struct {
	// Payers holds the limits of each owner and project with unfinished jobs. All their jobs
	// share them, so there is one entry for all and not one for each job.
	Payers map[queue.Payer]PayerLimit
	// Jobs holds the allowances of queued jobs that have one of their own, because they have a
	// budget or money is committed to them already, and those of running jobs that are too slow.
	Jobs map[id.Job]tenant.Allowance
}

// PayerLimit is what the quotas of an owner and a project allow their jobs.
type PayerLimit struct {
	Allowance tenant.Allowance
	Borrows   bool // they use more GPUs than their quota
}

// limitsRecord is the JSON form of Limits.
type limitsRecord struct {
	Payers []payerRecord              `json:",omitempty"`
	Jobs   map[id.Job]allowanceRecord `json:",omitempty"`
}

type payerRecord struct {
	queue.Payer
	Allowance allowanceRecord
	Borrows   bool `json:",omitempty"`
}

// allowanceRecord leaves out the amounts that are not limited: JSON knows no infinity.
type allowanceRecord struct {
	tenant.Allowance
	Money    *money.Amount `json:",omitempty"`
	GPUHours *float64      `json:",omitempty"`
}

func recordAllowance(a tenant.Allowance) allowanceRecord {
	r := allowanceRecord{Allowance: a}
	unlimited := tenant.Unlimited()

	if a.Money != unlimited.Money {
		r.Money = &a.Money
	}

	if a.GPUHours != unlimited.GPUHours {
		r.GPUHours = &a.GPUHours
	}

	return r
}

func (r *allowanceRecord) allowance() tenant.Allowance {
	a := r.Allowance
	unlimited := tenant.Unlimited()
	a.Money = unlimited.Money
	a.GPUHours = unlimited.GPUHours

	if r.Money != nil {
		a.Money = *r.Money
	}

	if r.GPUHours != nil {
		a.GPUHours = *r.GPUHours
	}

	return a
}

// MarshalJSON writes the limits, by owner and project and by job.
func (l *Limits) MarshalJSON() ([]byte, error) {
	r := limitsRecord{Jobs: map[id.Job]allowanceRecord{}}

	for who, p := range l.Payers {
		r.Payers = append(r.Payers, payerRecord{who, recordAllowance(p.Allowance), p.Borrows})
	}

	slices.SortFunc(r.Payers, func(a, b payerRecord) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Project, b.Project))
	})
	for j, a := range l.Jobs {
		r.Jobs[j] = recordAllowance(a)
	}

	return json.Marshal(r)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *Limits) UnmarshalJSON(text []byte) error {
	var r limitsRecord
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}

	*l = Limits{Payers: map[queue.Payer]PayerLimit{}, Jobs: map[id.Job]tenant.Allowance{}}
	for i := range r.Payers {
		p := &r.Payers[i]
		l.Payers[p.Payer] = PayerLimit{p.Allowance.allowance(), p.Borrows}
	}

	for j, a := range r.Jobs {
		l.Jobs[j] = a.allowance()
	}

	return nil
}
