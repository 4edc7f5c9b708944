package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/dataset"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) datasetRoutes() {
	const tag, path = "data", "/api/v1/datasets/{dataset}"
	huma.Register(
		s.api,
		s.op("list-datasets", http.MethodGet, "/api/v1/datasets", "List datasets by name", tag),
		s.listDatasets,
	)

	huma.Register(s.api, s.op("get-dataset", http.MethodGet, path, "Show a dataset", tag), s.getDataset)
	huma.Register(s.api, s.op("put-dataset", http.MethodPut, path, "Register or update a dataset", tag), s.putDataset)

	huma.Register(
		s.api,
		s.op(
			"audit-dataset",
			http.MethodGet,
			path+"/audit",
			"Show whether a dataset ever left the premises, and list its uses",
			tag,
		),
		s.auditDataset,
	)

	huma.Register(
		s.api,
		s.op(
			"override-place",
			http.MethodPost,
			"/api/v1/jobs/{job}/override",
			"Allow a job to run where its datasets may not be used; recorded in the audit",
			tag,
		),
		s.override,
	)

	remove := s.op("remove-dataset", http.MethodDelete, path, "Remove a dataset; its audit records are kept", tag)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, remove, s.removeDataset)
}

func (s *Server) listDatasets(ctx context.Context, in *struct{ Paging }) (*httpapi.Body[api.DatasetPage], error) {
	if err := allow(ctx, tenant.ReadData, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	list, err := s.datasets(ctx)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	page := api.DatasetPage{Datasets: []api.Dataset{}}
	for i := range list {
		if string(list[i].ID) <= in.Cursor || !sees(ctx, &list[i]) {
			continue
		}

		if len(page.Datasets) == in.Limit {
			page.Next = string(page.Datasets[in.Limit-1].ID)
			break
		}

		page.Datasets = append(page.Datasets, toDataset(ctx, &list[i]))
	}

	return &httpapi.Body[api.DatasetPage]{Body: page}, nil
}

// placed is a dataset with where it may be used, which rules of others with the same data may restrict.
type placed struct {
	dataset.Dataset
	place job.Place
	reads bool // whether the caller may use it
}

// placedOf returns a dataset as the caller may use it.
func placedOf(ctx context.Context, y *yardmaster.Yard, d dataset.Dataset) placed {
	return placed{Dataset: d, place: y.DatasetPlace(&d), reads: y.ReadsDataset(callerOf(ctx).User, &d)}
}

// datasets returns all datasets by name.
func (s *Server) datasets(ctx context.Context) ([]placed, error) {
	var list []placed
	err := s.query(ctx, func(y *yardmaster.Yard) {
		for _, d := range y.Datasets() {
			list = append(list, placedOf(ctx, y, d))
		}
	})

	return list, err
}

// sees reports whether the caller is shown a dataset: those who may use it, and admins.
func sees(ctx context.Context, d *placed) bool {
	return d.reads || allow(ctx, tenant.ReadUsage, d.Owner) == nil
}

// toDataset shows a dataset. What gives access to its source is shown to those who may change it.
func toDataset(ctx context.Context, d *placed) api.Dataset {
	out := api.Dataset{
		ID:      d.ID,
		Owner:   d.Owner,
		Created: shown(d.Created),
		DatasetRequest: api.DatasetRequest{
			Place: d.Rule, Size: d.Size, Source: d.Source, Readers: d.Readers,
		},
	}

	if d.place != d.Rule {
		out.Effective = d.place
	}

	if allow(ctx, tenant.ManageData, d.Owner) != nil {
		out.Source = dataset.Redacted(d.Source)
	}

	for _, c := range d.Copies {
		out.Copies = append(out.Copies, toCopy(c))
	}

	return out
}

func toCopy(c dataset.Copy) api.Copy {
	return api.Copy{Node: c.Node, Pool: c.Pool, At: c.At, Path: c.Path}
}

type datasetInput struct {
	Dataset string `path:"dataset" maxLength:"63"`
}

// findDataset returns a registered dataset, and whom its name belongs to, also if it is registered no more.
func (s *Server) findDataset(ctx context.Context, name string) (placed, id.User, error) {
	var owner id.User
	found := (*placed)(nil)

	err := s.query(ctx, func(y *yardmaster.Yard) {
		owner = y.DatasetOwner(id.Dataset(name))
		list := y.Datasets()
		at := slices.IndexFunc(list, func(d dataset.Dataset) bool { return string(d.ID) == name })
		if at >= 0 {
			d := placedOf(ctx, y, list[at])
			found = &d
		}
	})

	switch {
	case err != nil:
		return placed{}, "", err
	case found == nil:
		return placed{}, owner, fault.New(fault.NotFound, "no_dataset", "dataset %s not found", name)
	}

	return *found, owner, nil
}

func (s *Server) getDataset(ctx context.Context, in *datasetInput) (*httpapi.Body[api.Dataset], error) {
	if err := allow(ctx, tenant.ReadData, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	d, _, err := s.findDataset(ctx, in.Dataset)
	if err == nil && !sees(ctx, &d) {
		err = fault.New(fault.NotFound, "no_dataset", "dataset %s not found", in.Dataset)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.Dataset]{Body: toDataset(ctx, &d)}, nil
}

type putDatasetInput struct {
	Dataset string `path:"dataset" maxLength:"63"`
	Body    api.DatasetRequest
}

func (s *Server) putDataset(ctx context.Context, in *putDatasetInput) (*httpapi.Body[api.Dataset], error) {
	old, err := s.mayChange(ctx, in.Dataset)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return nil, s.fail(ctx, err)
	}

	d := dataset.Dataset{
		ID: id.Dataset(in.Dataset), Size: in.Body.Size, Rule: in.Body.Place, Source: in.Body.Source,
		Readers: fromReaders(in.Body.Readers, old.Readers),
	}
	for _, c := range in.Body.Copies {
		d.Copies = append(d.Copies, fromCopy(c, old.Copies, s.Clock.Now()))
	}

	answer, err := s.do(ctx, yardmaster.PutDataset{Dataset: d, By: callerOf(ctx).User})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	changed, _ := answer.(dataset.Dataset)
	var put placed

	if err := s.query(ctx, func(y *yardmaster.Yard) { put = placedOf(ctx, y, changed) }); err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.Dataset]{Body: toDataset(ctx, &put)}, nil
}

// fromReaders reads who may use a dataset. Clients of earlier versions know of no readers, so that none given are those
// of before.
func fromReaders(given, old []dataset.Reader) []dataset.Reader {
	switch {
	case given == nil:
		return old
	case slices.Contains(given, api.Everybody):
		return nil
	}

	return given
}

// fromCopy reads a copy; one that was there before is there since then.
func fromCopy(c api.Copy, old []dataset.Copy, now time.Time) dataset.Copy {
	for _, known := range old {
		if toCopy(known) == c {
			return known
		}
	}

	return dataset.Copy{Node: c.Node, Pool: c.Pool, At: c.At, Path: c.Path, Since: now}
}

// mayChange returns a dataset that the caller may change, or NotFound where they may
// register one of that name. A name that was registered once belongs to its owner for ever.
func (s *Server) mayChange(ctx context.Context, name string) (dataset.Dataset, error) {
	d, owner, err := s.findDataset(ctx, name)
	if fault.KindOf(err) == fault.NotFound && owner == "" {
		owner = callerOf(ctx).User
	}

	if denied := allow(ctx, tenant.ManageData, owner); denied != nil {
		return d.Dataset, denied
	}

	return d.Dataset, err
}

func (s *Server) removeDataset(ctx context.Context, in *datasetInput) (*struct{}, error) {
	d, err := s.mayChange(ctx, in.Dataset)
	if err == nil {
		d.Removed = true
		_, err = s.do(ctx, yardmaster.PutDataset{Dataset: d, By: callerOf(ctx).User})
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return nil, nil
}

type overrideInput struct {
	Job  string `path:"job" maxLength:"68" doc:"its id, its name, name@last or @last"`
	Body api.OverrideRequest
}

func (s *Server) override(ctx context.Context, in *overrideInput) (*httpapi.Body[api.Job], error) {
	j, err := s.readJob(ctx, in.Job)
	if err == nil {
		err = allow(ctx, tenant.OverridePlace, "")
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	answer, err := s.do(
		ctx,
		yardmaster.Override{Job: j.ID, Place: in.Body.Place, By: callerOf(ctx).User, Why: in.Body.Why},
	)

	if fault.KindOf(err) == fault.NotFound && j.State.Final() {
		err = fault.New(fault.Conflict, "job_state", "job %s has already ended (%s) and cannot be changed", j.ID, j.State)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	changed, _ := answer.(job.Job)

	return &httpapi.Body[api.Job]{Body: toJob(&changed)}, nil
}

type auditInput struct {
	Dataset string `path:"dataset" maxLength:"63"`
	Limit   int    `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"maximum number of uses to list"`
}

// maxUses is how many uses an audit looks at.
const maxUses = 200_000

// auditDataset is for admins and for who owns the data. Of data that is not registered
// any more the record is still there, for the same people.
func (s *Server) auditDataset(ctx context.Context, in *auditInput) (*httpapi.Body[api.Audit], error) {
	d, owner, missing := s.findDataset(ctx, in.Dataset)
	if missing != nil && fault.KindOf(missing) != fault.NotFound {
		return nil, s.fail(ctx, missing)
	}
	if err := allow(ctx, tenant.ReadUsage, owner); err != nil {
		return nil, s.fail(ctx, err)
	}

	uses, err := s.Store.Uses(ctx, id.Dataset(in.Dataset), maxUses+1)
	if err == nil && len(uses) == 0 {
		err = missing
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	a := auditOf(&d, uses)
	a.Dataset = id.Dataset(in.Dataset)
	a.Uses = a.Uses[:min(len(a.Uses), in.Limit)]

	return &httpapi.Body[api.Audit]{Body: a}, nil
}

// auditOf says where a dataset was used. Uses are newest first.
func auditOf(d *placed, uses []dataset.Use) api.Audit {
	a := api.Audit{Place: d.place, Copies: []api.Copy{}, Uses: []api.DatasetUse{}, Complete: len(uses) <= maxUses}

	for i := range uses {
		u := &uses[i]
		use := api.DatasetUse{
			At:       shown(u.At),
			Run:      u.Run,
			Job:      u.Job,
			Owner:    u.Owner,
			Node:     u.Node,
			Outside:  u.Cloud,
			Override: u.Override,
		}

		a.Uses = append(a.Uses, use)
		if u.Override != "" {
			a.Against++
		}

		if !u.Cloud {
			a.Inside++
			continue
		}

		a.Outside++
		a.First = &use
		if a.Last == nil {
			a.Last = &use
		}
	}

	for _, c := range d.Copies {
		if c.At == job.PlaceCloud || c.At == job.PlaceAny {
			a.Copies = append(a.Copies, toCopy(c))
		}
	}

	a.Left = a.Outside > 0 || len(a.Copies) > 0
	a.Answer = auditAnswer(&a)

	return a
}

// auditAnswer says in a sentence whether the data was ever outside.
func auditAnswer(a *api.Audit) string {
	switch {
	case a.Outside > 0:
		text := fmt.Sprintf(
			"Yes: first on %s, by %s of %s on node %s",
			a.First.At.Format("2006-01-02 15:04 UTC"),
			a.First.Run,
			a.First.Owner,
			a.First.Node,
		)

		if a.First.Override != "" {
			text += ", allowed by " + a.First.Override
		}

		if a.Outside > 1 {
			text += fmt.Sprintf("; %d uses outside the premises in total", a.Outside)
		}

		return text + "."
	case len(a.Copies) > 0:
		return "Yes: no run used it outside the premises, but a copy is registered there."
	case !a.Complete:
		return fmt.Sprintf("Not in its newest %d uses; older ones were not examined.", len(a.Uses))
	case a.Inside == 0:
		return "No: it was never used, and no copy is registered outside the premises."
	}

	return "No: every use was on a node on the premises."
}
