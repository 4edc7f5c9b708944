// Package office is the part of the server's API that is about machines, money and
// data: nodes, offers, leases, limits, datasets, and the reports from the books.
//
// Like all handlers it decides nothing: it checks who asks, turns wire types into
// messages for the yardmaster or into questions to the store, and turns the answers
// back. What runs now is in the reports as if it ended now. The server builds an
// Office from what it has itself and tells it what agents report.
package office

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/store"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// Deps is what the office has of the server.
type Deps struct {
	API      huma.API
	Security []map[string][]string // of every operation
	Store    store.Store
	Clock    clock.Clock
	Do       func(context.Context, yardmaster.Message) (any, error)
	Query    func(context.Context, func(*yardmaster.Yard)) error
	Caller   func(context.Context) tenant.Caller
	Allow    func(ctx context.Context, a tenant.Action, owner id.User) error // Denied unless the caller may
	Fail     func(context.Context, error) error                              // makes an answer of an error
	Job      func(ctx context.Context, name string) (job.Job, error)         // one that the caller may see
	ToJob    func(*job.Job) api.Job
	ToEvent  func(*yardmaster.Event) api.Event
}

// Office answers requests about machines, money and data.
type Office struct {
	Deps
	seen *sightings
}

// New returns an office whose operations are part of the API.
func New(d Deps) *Office {
	o := &Office{Deps: d, seen: newSightings()}
	o.nodeRoutes()
	o.leaseRoutes()
	o.limitRoutes()
	o.dataRoutes()
	o.bookRoutes()
	return o
}

// Paging is the part of every list request that says which page.
type Paging struct {
	Cursor string `query:"cursor" maxLength:"400" doc:"next of the page before"`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
}

// body is an answer.
type body[T any] struct{ Body T }

// op describes an operation for people.
func (o *Office) op(name, method, path, summary, tag string) huma.Operation {
	return huma.Operation{OperationID: name, Method: method, Path: path, Summary: summary, Security: o.Security, Tags: []string{tag}}
}

// of returns whose things the caller gets to see: those of the owner that was asked
// for, or of everyone (""), or, where that is not for them, their own.
func (o *Office) of(ctx context.Context, a tenant.Action, owner id.User) (id.User, error) {
	who := o.Caller(ctx)
	if owner == "" && !who.May(a, "") {
		owner = who.User
	}
	return owner, o.Allow(ctx, a, owner)
}

func badCursor(c string) error {
	return fault.New(fault.Invalid, "bad_cursor", "%q is no cursor of this list", c).WithField("cursor").
		WithRemedy("use the value that an earlier answer gave, or leave it out")
}

// shown is a time as the store keeps it, so that the same thing reads the same from
// memory and from the store.
func shown(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// timeOrNil leaves out a time that has not come.
func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	u := shown(t)
	return &u
}
