package api

import (
	"context"
	"errors"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Array is the jobs that the field array of a job file made. Each of them is a job in its own right.
type Array struct {
	ID        id.Array   `json:"id"`
	Name      string     `json:"name,omitempty"`
	Owner     id.User    `json:"owner"`
	Project   id.Project `json:"project,omitempty"`
	Values    string     `json:"values" doc:"as in the job file, such as 0..99%10"`
	Size      int        `json:"size" doc:"number of elements"`
	Limit     int        `json:"limit,omitempty" doc:"how many elements may run at the same time; absent if any number may"`
	First     id.Job     `json:"first" doc:"element 0; the others have the numbers after it"`
	Last      id.Job     `json:"last"`
	Resources string     `json:"resources" doc:"requested resources of each element as text"`
	Priority  int        `json:"priority"`
	Submitted time.Time  `json:"submitted"`
	Ended     *time.Time `json:"ended,omitempty" doc:"when the last element ended; absent while some have not"`
	Counts    []JobCount `json:"counts" doc:"number of elements by their status"`
	Cost      float64    `json:"cost_usd,omitempty" doc:"cost of all elements so far, as far as it is posted"`
}

// Count returns how many elements have a status.
func (a *Array) Count(s job.Status) int {
	for _, c := range a.Counts {
		if c.Status == s {
			return c.Jobs
		}
	}

	return 0
}

// ArrayPage is one page of a list of arrays, the newest first.
type ArrayPage struct {
	Arrays []Array `json:"arrays"`
	Next   string  `json:"next,omitempty" doc:"cursor of the next page; absent on the last page"`
}

// ArrayChange says what became of the elements of an array.
type ArrayChange struct {
	Array   Array  `json:"array" doc:"as it is after the change"`
	Changed int    `json:"changed" doc:"number of elements that were changed; those that had ended or were so already do not count"`
	Refused int    `json:"refused,omitempty" doc:"number of elements that could not be changed in their state"`
	Reason  string `json:"reason,omitempty" doc:"why one of those could not"`
}

// ArrayFilter says which arrays are wanted. Empty fields do not filter.
type ArrayFilter struct {
	Owner   id.User
	Project id.Project
	Name    string
	Active  bool // only those with elements that have not ended
	Page
}

// Arrays returns one page of the arrays that the filter lets through.
func (c *Client) Arrays(ctx context.Context, f ArrayFilter) (ArrayPage, error) {
	q := f.Page.query()
	set(q, "owner", string(f.Owner))
	set(q, "project", string(f.Project))
	set(q, "name", f.Name)

	if f.Active {
		q.Set("active", "true")
	}

	page, err := get[ArrayPage](ctx, c, at("arrays"), q)

	return page, arrayError(err)
}

// Array returns an array with how many of its elements have which status.
func (c *Client) Array(ctx context.Context, a id.Array) (Array, error) {
	array, err := get[Array](ctx, c, at("arrays", string(a)), nil)

	return array, arrayError(err)
}

// ChangeArray cancels, kills, pauses or resumes all elements of an array that have not ended, in one call.
func (c *Client) ChangeArray(ctx context.Context, a id.Array, verb string) (ArrayChange, error) {
	done, err := post[ArrayChange](ctx, c, at("arrays", string(a), verb), nil)

	return done, arrayError(err)
}

// NoArrays is the code of the error that a server of a release without arrays causes.
const NoArrays = "no_arrays"

// arrayError says what it means that a server does not have the paths of arrays.
func arrayError(err error) error {
	var refusal *fault.Error
	if errors.As(err, &refusal) && refusal.Code == "no_such_path" {
		return fault.New(fault.NotFound, NoArrays, "the server is of an older release, without arrays and parameters").
			WithRemedy("ask an admin to upgrade the server")
	}

	return err
}
