package api

import (
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
)

// OfferPage is one page of what can be hired, the cheapest first, and with the first
// page what is not asked for now.
type OfferPage struct {
	Offers []fleet.Offer `json:"offers" doc:"that may be asked for now"`
	Closed []Closing     `json:"closed" doc:"what was refused lately and is not asked for; on the first page"`
	Next   string        `json:"next,omitempty"`
}

// Closing is something that is not asked for until some time, because it was refused.
type Closing struct {
	What   string    `json:"what"`
	Why    string    `json:"why"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Times  int       `json:"times" doc:"refused in a row"`
	Offers int       `json:"offers" doc:"that it keeps from being asked for"`
}

// Lease is the yard's hold on a hired node as people see it.
type Lease struct {
	ID       id.Lease         `json:"id"`
	Offer    fleet.Offer      `json:"offer" doc:"as it was when it was taken"`
	State    fleet.LeaseState `json:"state"`
	Since    time.Time        `json:"since"`
	Reason   string           `json:"reason"`
	Job      id.Job           `json:"job,omitempty" doc:"for which it was hired"`
	Owner    id.User          `json:"owner,omitempty"`
	Project  id.Project       `json:"project,omitempty"`
	Gang     string           `json:"gang,omitempty" doc:"leases that are of use only together share this"`
	Asked    time.Time        `json:"asked"`
	Granted  *time.Time       `json:"granted,omitempty" doc:"when the provider gave the machine"`
	Joined   *time.Time       `json:"joined,omitempty"`
	Ends     *time.Time       `json:"ends,omitempty" doc:"not renewed until then, the machine ends itself"`
	Returned *time.Time       `json:"returned,omitempty"`
	Ended    *time.Time       `json:"ended,omitempty"`
	Instance string           `json:"instance,omitempty" doc:"the provider's name for the machine"`
	Node     id.Node          `json:"node,omitempty"`
	Stray    bool             `json:"stray,omitempty" doc:"a machine was found that no lease knew of"`
	Kept     float64          `json:"kept_seconds" doc:"for which the machine was there by now"`
	Cost     float64          `json:"cost_usd" doc:"rent by now, by the offer's price"`
	Billed   *float64         `json:"billed_usd,omitempty" doc:"what the provider says that it charged, where it says so"`
}

// LeasePage is one page of leases, newest first.
type LeasePage struct {
	Leases []Lease `json:"leases"`
	Next   string  `json:"next,omitempty"`
}

// ReaperReport is what the yard found when it compared its leases with what providers show.
type ReaperReport struct {
	At       time.Time         `json:"at"`
	Live     int               `json:"live" doc:"leases that have not ended"`
	Overdue  []Lease           `json:"overdue" doc:"not ended though their time is over"`
	Strays   []Event           `json:"strays" doc:"machines that no lease knew of, the newest last"`
	Unclear  []Event           `json:"unclear" doc:"orders of which it was not known whether they made a machine"`
	Failures []Event           `json:"failures" doc:"when providers stopped and began again to answer"`
	Failing  []FailingProvider `json:"failing" doc:"providers that do not answer as they should now"`
	States   map[string]int    `json:"states" doc:"live leases by state"`
}

// FailingProvider is one that does not answer as it should.
type FailingProvider struct {
	Provider string `json:"provider"`
	Why      string `json:"why"`
}

// LimitRequest sets what a user or project may have. A number that is left out is no limit.
type LimitRequest struct {
	GPUs     int               `json:"gpus,omitempty" minimum:"0" doc:"at once"`
	Nodes    int               `json:"nodes,omitempty" minimum:"0" doc:"on-demand nodes at once"`
	GPUHours float64           `json:"gpu_hours,omitempty" minimum:"0" doc:"in a period"`
	Money    job.Money         `json:"money,omitempty" doc:"in a period: rent and energy"`
	Period   tenant.Period     `json:"period,omitempty" enum:"day,week,month" doc:"month if left out"`
	At       tenant.OnExceeded `json:"at,omitempty" enum:"warn,ask,downgrade,stop" doc:"what happens when money or GPU-hours are used up; ask if left out"`
	Borrow   bool              `json:"borrow,omitempty" doc:"more GPUs at once while nobody else waits for them"`
	WarnAt   float64           `json:"warn_at,omitempty" minimum:"0" maximum:"1" doc:"share from which people are warned; 0.8 if left out"`
}

// Limit is what a user or project may have.
type Limit struct {
	Subject string `json:"subject" doc:"user/NAME, project/NAME, each/user or each/project"`
	LimitRequest
}

// Standing is where a user or project stands.
type Standing struct {
	Subject  string    `json:"subject"`
	Limit    *Limit    `json:"limit,omitempty" doc:"that binds; left out if none does"`
	GPUs     float64   `json:"gpus" doc:"in use now"`
	Local    float64   `json:"gpus_local"`
	Reserved float64   `json:"gpus_reserved"`
	OnDemand float64   `json:"gpus_ondemand"`
	Nodes    int       `json:"nodes" doc:"on-demand nodes now"`
	Hourly   float64   `json:"hourly_usd" doc:"spent per hour now"`
	Begin    time.Time `json:"begin" doc:"of the period"`
	Ends     time.Time `json:"ends" doc:"then all starts anew"`
	Money    Course    `json:"money_usd"`
	GPUHours Course    `json:"gpu_hours"`
}

// Course is what a period's use has come to and where it goes.
type Course struct {
	Limit    float64    `json:"limit,omitempty"`
	Used     float64    `json:"used"`
	Expected float64    `json:"expected" doc:"at the end of the period, if nothing more starts"`
	UsedUp   *time.Time `json:"used_up,omitempty" doc:"when the limit is, or was, reached; left out if it lasts"`
}

// LimitPage is one page of who stands where, by name; the limits are on the first page.
type LimitPage struct {
	Limits    []Limit    `json:"limits"`
	Standings []Standing `json:"standings"`
	Next      string     `json:"next,omitempty"`
}

// Dataset is named data as people see it.
type Dataset struct {
	ID      id.Dataset `json:"id"`
	Owner   id.User    `json:"owner"`
	Created time.Time  `json:"created"`
	DatasetRequest
}

// DatasetRequest registers a dataset or changes it.
type DatasetRequest struct {
	Place  job.Place `json:"place" enum:"local,cloud,any" doc:"where it may be used"`
	Size   job.Bytes `json:"size,omitempty"`
	Source string    `json:"source,omitempty" maxLength:"2000" doc:"a path on the nodes, or an address it is fetched from"`
	Copies []Copy    `json:"copies,omitempty" maxItems:"10000"`
}

// Copy is a place that has a dataset: one of node, pool and at.
type Copy struct {
	Node id.Node   `json:"node,omitempty" maxLength:"63" doc:"on this node"`
	Pool string    `json:"pool,omitempty" maxLength:"63" doc:"reached by every node of this pool"`
	At   job.Place `json:"at,omitempty" enum:"local,cloud,any" doc:"reached by every node there"`
	Path string    `json:"path,omitempty" maxLength:"2000"`
}

// DatasetPage is one page of datasets, by name.
type DatasetPage struct {
	Datasets []Dataset `json:"datasets"`
	Next     string    `json:"next,omitempty"`
}

// Audit answers whether a dataset was ever outside the building, and lists where it
// was used.
type Audit struct {
	Dataset id.Dataset  `json:"dataset"`
	Place   job.Place   `json:"place,omitempty" doc:"its rule now; left out if it is not registered any more"`
	Left    bool        `json:"left" doc:"a run used it on a node outside the building, or a copy is said to be there"`
	Answer  string      `json:"answer" doc:"the same as a sentence"`
	First   *DatasetUse `json:"first,omitempty" doc:"the first use outside"`
	Last    *DatasetUse `json:"last,omitempty" doc:"the last use outside"`
	Inside  int         `json:"inside" doc:"uses in the building"`
	Outside int         `json:"outside" doc:"uses outside"`
	Against int         `json:"against" doc:"uses against its rule, let by an override"`
	Copies  []Copy      `json:"copies" doc:"that are said to be outside"`
	// Complete says that every use was looked at.
	Complete bool         `json:"complete" doc:"all uses were looked at; else only the newest"`
	Uses     []DatasetUse `json:"uses" doc:"newest first, at most as many as asked for"`
}

// DatasetUse is one use of a dataset by a run on a node.
type DatasetUse struct {
	At       time.Time `json:"at"`
	Run      id.Run    `json:"run"`
	Job      id.Job    `json:"job"`
	Owner    id.User   `json:"owner"`
	Node     id.Node   `json:"node"`
	Outside  bool      `json:"outside" doc:"the node is not in the building"`
	Override string    `json:"override,omitempty" doc:"who let it go against the rule and why"`
}

// OverrideRequest lets a job run against the rules of its data. It is written down.
type OverrideRequest struct {
	Place job.Place `json:"place" enum:"local,cloud,any"`
	Why   string    `json:"why" minLength:"1" maxLength:"1000"`
}

// Amounts is what the books say of a row. The names are those of the CSV form.
type Amounts struct {
	NodeSeconds float64 `json:"node_seconds"`
	GPUSeconds  float64 `json:"gpu_seconds"`
	Rent        float64 `json:"rent_usd"`
	Power       float64 `json:"power_usd" doc:"what the energy cost"`
	Cost        float64 `json:"cost_usd"`
	Energy      float64 `json:"energy_kwh"`
}

// Books is a report from the books.
type Books struct {
	From  *time.Time `json:"from,omitempty"`
	To    *time.Time `json:"to,omitempty"`
	Group []string   `json:"group"`
	Rows  []BookRow  `json:"rows" doc:"sorted by their keys"`
	Total Amounts    `json:"total"`
}

// BookRow is one line of it.
type BookRow struct {
	Keys []string `json:"keys" doc:"one for each of group"`
	Amounts
}

// Usage is the four groups of figures by name, what was paid for without use, and how
// both went over the period.
type Usage struct {
	From       *time.Time `json:"from,omitempty"`
	To         *time.Time `json:"to,omitempty"`
	UseRate    []UseRate  `json:"use_rate" doc:"how much of the local and reserved nodes was used: first by class, then by node"`
	OnDemand   []Hired    `json:"on_demand" doc:"on-demand nodes created, their time and cost: first all, then by offer"`
	Own        []OwnTime  `json:"own_by_researcher" doc:"time on local and reserved nodes by researcher"`
	OnDemandBy []Hired    `json:"on_demand_by_researcher" doc:"on-demand nodes created, their time and cost, by researcher"`
	Unused     []Unused   `json:"unused" doc:"what was there and not used, by class and why"`
	Trend      []Trend    `json:"trend" doc:"what was used and spent, by hour or by day"`
}

// UseRate is how much of a node, or of all nodes of a class, was used.
type UseRate struct {
	Class         fleet.Class `json:"class"`
	Node          id.Node     `json:"node,omitempty" doc:"left out for all of the class"`
	BusyNode      float64     `json:"busy_node_seconds"`
	AvailableNode float64     `json:"available_node_seconds"`
	NodeRate      float64     `json:"node_rate"`
	BusyGPU       float64     `json:"busy_gpu_seconds"`
	AvailableGPU  float64     `json:"available_gpu_seconds"`
	GPURate       float64     `json:"gpu_rate"`
}

// Hired is what on-demand nodes were created, how long they were kept and what they cost.
type Hired struct {
	Offer        string  `json:"offer,omitempty" doc:"left out for all"`
	Researcher   id.User `json:"researcher,omitempty" doc:"left out for the yard itself"`
	Creations    int     `json:"creations"`
	NodeSeconds  float64 `json:"node_seconds"`
	GPUSeconds   float64 `json:"gpu_seconds"`
	Estimated    float64 `json:"estimated_usd"`
	Billed       float64 `json:"billed_usd" doc:"as providers said, for leases that ended in the period"`
	BilledLeases int     `json:"billed_leases" doc:"of which billed is the sum"`
}

// OwnTime is what a researcher had of nodes that are paid for anyway.
type OwnTime struct {
	Researcher  id.User     `json:"researcher"`
	Class       fleet.Class `json:"class"`
	NodeSeconds float64     `json:"node_seconds"`
	GPUSeconds  float64     `json:"gpu_seconds"`
	Cost        float64     `json:"cost_usd"`
}

// Unused is what was there and not used, for one reason.
type Unused struct {
	Class       fleet.Class `json:"class"`
	Account     string      `json:"account" doc:"idle, error, foreign, drained, boot, returning or waste"`
	NodeSeconds float64     `json:"node_seconds"`
	GPUSeconds  float64     `json:"gpu_seconds"`
	Cost        float64     `json:"cost_usd"`
}

// Trend is what runs used in one stretch of the period, and what all cost in it.
type Trend struct {
	Label      string  `json:"label" doc:"2026-11-15 or 2026-11-15T09, in UTC"`
	GPUSeconds float64 `json:"gpu_seconds" doc:"that runs held"`
	Cost       float64 `json:"cost_usd" doc:"of everything, used or not"`
}

// Savings is what decisions saved against what would have been done instead.
type Savings struct {
	From      *time.Time     `json:"from,omitempty"`
	To        *time.Time     `json:"to,omitempty"`
	Group     []string       `json:"group"`
	Rows      []SavingRow    `json:"rows"`
	Total     SavingRow      `json:"total"`
	Decisions []SavingReason `json:"decisions" doc:"the greatest of them, with their reasons; at most 20"`
}

// SavingRow is one line of it.
type SavingRow struct {
	Keys    []string `json:"keys,omitempty"`
	Count   int      `json:"decisions"`
	Money   float64  `json:"saved_usd"`
	Seconds float64  `json:"saved_seconds" doc:"less than 0 where jobs became later"`
}

// SavingReason is what one decision saved, and why.
type SavingReason struct {
	At      time.Time `json:"at"`
	Job     id.Job    `json:"job"`
	Owner   id.User   `json:"owner"`
	Kind    string    `json:"kind"`
	Money   float64   `json:"saved_usd"`
	Seconds float64   `json:"saved_seconds"`
	Reason  string    `json:"reason"`
}
