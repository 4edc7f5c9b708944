package api

import (
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// WhatIfRequest says what would be changed in the yard. What is left out stays as it is.
type WhatIfRequest struct {
	AddNodes string             `json:"add_nodes,omitempty" maxLength:"500" doc:"nodes that are added at once, as COUNTxGPUxGPUS, e.g. 2xA100:80GBx8; several separated by commas"`
	Policy   string             `json:"policy,omitempty" maxLength:"1000" doc:"placement policy, with its parameters after colons, e.g. andreas:margin=0.2"`
	Prices   map[string]float64 `json:"prices,omitempty" maxProperties:"50" doc:"dollars for a GPU and hour by GPU, e.g. A100"`
	Load     *float64           `json:"load,omitempty" minimum:"0" maximum:"5" doc:"how many times as many jobs are submitted in the next 24 hours as in the last 24, compared with as many; absent if no further job is submitted in either case"`

	Priorities map[id.Job]int `json:"priorities,omitempty" maxProperties:"1000" doc:"other priorities of jobs, 0 to 100, by id"`

	Assume job.Duration `json:"assume,omitempty" doc:"run time of jobs without a forecast, expect, max_duration or speed; default 1h"`
	Draws  int          `json:"draws,omitempty" minimum:"0" maximum:"25" doc:"number of simulations of each case, with run times drawn from the prediction intervals of the forecasts; default 11"`
}

// WhatIf is what a simulation of the yard says of it as it is (today) and as it would be with a change (then).
type WhatIf struct {
	Now     time.Time `json:"now" doc:"when the simulated time begins"`
	Policy  string    `json:"policy" doc:"policy that the server uses"`
	Changes []string  `json:"changes" doc:"what is different then; empty if nothing is"`
	Jobs    int       `json:"jobs" doc:"number of running and queued jobs that were simulated"`
	Arrived int       `json:"arrived,omitempty" doc:"number of further jobs that were submitted in the first simulation of today"`
	Draws   int       `json:"draws" doc:"number of simulations of each case; fewer than asked for if the time was up"`

	Figures  []WhatIfFigure `json:"figures"`
	Timeline WhatIfTimeline `json:"timeline"`
	List     []WhatIfJob    `json:"list" doc:"the running and queued jobs by their start today, at most 500, and those whose priority is another"`
	Gaps     []string       `json:"gaps" doc:"what is not simulated as it really is"`
}

// WhatIfFigure is one figure of both cases: the median of the simulations and their 80 % interval.
type WhatIfFigure struct {
	Key    string   `json:"key" doc:"e.g. completion_mean_s"`
	Title  string   `json:"title"`
	Unit   string   `json:"unit" enum:"s,share,kWh,money,count,number"`
	Best   int      `json:"best" minimum:"-1" maximum:"1" doc:"1 if more is better, -1 if less is, 0 if neither"`
	Today  job.Band `json:"today"`
	Then   job.Band `json:"then"`
	Change job.Band `json:"change" doc:"then minus today, of simulations with the same run times"`
}

// WhatIfTimeline is how both cases go on.
type WhatIfTimeline struct {
	Seconds []float64   `json:"seconds" doc:"time since now"`
	Left    WhatIfLines `json:"left" doc:"number of jobs that have not ended"`
	Use     WhatIfLines `json:"use" doc:"share of the GPUs in use"`
}

// WhatIfLines is a figure over time in both cases.
type WhatIfLines struct {
	Today WhatIfLine `json:"today"`
	Then  WhatIfLine `json:"then"`
}

// WhatIfLine is a figure over time with its 80 % interval.
type WhatIfLine struct {
	Low  []float64 `json:"low"`
	Mid  []float64 `json:"mid"`
	High []float64 `json:"high"`
}

// WhatIfJob is when a job would start and end.
type WhatIfJob struct {
	Job   id.Job    `json:"job"`
	Name  string    `json:"name,omitempty"`
	Owner id.User   `json:"owner"`
	State job.State `json:"state"`
	Basis string    `json:"basis" doc:"what its run time was taken from: forecast, speed, expect, max_duration, overdue or assumed"`
	Today WhatIfEnd `json:"today"`
	Then  WhatIfEnd `json:"then"`
}

// WhatIfEnd is when a job would start and end in one case.
type WhatIfEnd struct {
	Start *float64  `json:"start,omitempty" doc:"seconds from now, median; absent if it runs already or never starts"`
	End   *job.Band `json:"end,omitempty" doc:"seconds from now; absent if it does not end in most simulations"`
}

// PolicyList is the placement policies that there are, and the one in force.
type PolicyList struct {
	Policy   string       `json:"policy" doc:"the policy in force, with its parameters, as the configuration of the server has it"`
	Policies []PolicyText `json:"policies" doc:"by name"`
}

// PolicyText is a policy as it is listed.
type PolicyText struct {
	Name   string        `json:"name"`
	Rule   string        `json:"rule" doc:"what it does, in one sentence"`
	Params []PolicyParam `json:"params"`
}

// PolicyParam is a parameter of a policy.
type PolicyParam struct {
	Name     string `json:"name"`
	Standard string `json:"standard" doc:"default value"`
	Help     string `json:"help"`
	Common   bool   `json:"common,omitempty" doc:"all policies that provision nodes have it"`
}
