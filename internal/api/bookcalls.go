package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/id"
)

// OfferFilter says which offers are wanted. Empty fields do not filter.
type OfferFilter struct {
	GPU      string // kind: A100, A100:80GB
	Provider string
	Region   string
	Spot     *bool
	Page
}

func (f OfferFilter) query() url.Values {
	q := f.Page.query()
	set(q, "gpu", f.GPU)
	set(q, "provider", f.Provider)
	set(q, "region", f.Region)
	if f.Spot != nil {
		q.Set("spot", strconv.FormatBool(*f.Spot))
	}
	return q
}

// LeaseFilter says which leases are wanted. Empty fields do not filter.
type LeaseFilter struct {
	Owner   id.User
	Project id.Project
	Job     id.Job
	Live    bool // only those that have not ended
	From    time.Time
	To      time.Time
	Page
}

func (f LeaseFilter) query() url.Values {
	q := f.Page.query()
	set(q, "owner", string(f.Owner))
	set(q, "project", string(f.Project))
	set(q, "job", string(f.Job))
	if f.Live {
		q.Set("live", "true")
	}
	setTime(q, "from", f.From)
	setTime(q, "to", f.To)
	return q
}

// BookQuery says what is asked of the books.
type BookQuery struct {
	From, To time.Time // zero: since the beginning, until now
	By       []string  // rows are by these
	Where    []string  // KEY=VALUE, all of which hold; several values of one key are alternatives
	// Researcher is for usage, which is by nothing: only what this one used and pays for.
	Researcher id.User
}

func (b BookQuery) query() url.Values {
	q := url.Values{}
	setTime(q, "from", b.From)
	setTime(q, "to", b.To)
	set(q, "by", strings.Join(b.By, ","))
	set(q, "researcher", string(b.Researcher))
	for _, w := range b.Where {
		q.Add("where", w)
	}
	return q
}

func setTime(q url.Values, key string, at time.Time) {
	if !at.IsZero() {
		q.Set(key, at.UTC().Format(time.RFC3339Nano))
	}
}

func put[T any](ctx context.Context, c *Client, path string, in any) (T, error) {
	var out T
	err := c.call(ctx, http.MethodPut, path, nil, in, &out)
	return out, err
}

// Offers returns one page of what can be hired, and of what is not asked for and why.
func (c *Client) Offers(ctx context.Context, f OfferFilter) (OfferPage, error) {
	return get[OfferPage](ctx, c, at("offers"), f.query())
}

// Leases returns one page of leases, newest first.
func (c *Client) Leases(ctx context.Context, f LeaseFilter) (LeasePage, error) {
	return get[LeasePage](ctx, c, at("leases"), f.query())
}

// Lease returns one lease.
func (c *Client) Lease(ctx context.Context, l id.Lease) (Lease, error) {
	return get[Lease](ctx, c, at("leases", string(l)), nil)
}

// ReturnLease gives a hired node back.
func (c *Client) ReturnLease(ctx context.Context, l id.Lease) (Lease, error) {
	return post[Lease](ctx, c, at("leases", string(l), "return"), nil)
}

// Reaper returns what was found when leases were compared with what providers show.
func (c *Client) Reaper(ctx context.Context) (ReaperReport, error) {
	return get[ReaperReport](ctx, c, at("reaper"), nil)
}

// Limits returns one page of who may have what, and where they stand.
func (c *Client) Limits(ctx context.Context, p Page) (LimitPage, error) {
	return get[LimitPage](ctx, c, at("limits"), p.query())
}

// PutLimit sets the limit of a subject: user/NAME, project/NAME, each/user, each/project.
func (c *Client) PutLimit(ctx context.Context, subject string, in LimitRequest) (Limit, error) {
	kind, name, _ := strings.Cut(subject, "/")
	return put[Limit](ctx, c, at("limits", kind, name), in)
}

// RemoveLimit takes a subject's limit away.
func (c *Client) RemoveLimit(ctx context.Context, subject string) error {
	kind, name, _ := strings.Cut(subject, "/")
	return c.call(ctx, http.MethodDelete, at("limits", kind, name), nil, nil, nil)
}

// Datasets returns one page of the datasets, by name.
func (c *Client) Datasets(ctx context.Context, p Page) (DatasetPage, error) {
	return get[DatasetPage](ctx, c, at("datasets"), p.query())
}

// Dataset returns one dataset.
func (c *Client) Dataset(ctx context.Context, d id.Dataset) (Dataset, error) {
	return get[Dataset](ctx, c, at("datasets", string(d)), nil)
}

// PutDataset registers a dataset or changes it.
func (c *Client) PutDataset(ctx context.Context, d id.Dataset, in DatasetRequest) (Dataset, error) {
	return put[Dataset](ctx, c, at("datasets", string(d)), in)
}

// RemoveDataset forgets a dataset; what is known of its uses stays.
func (c *Client) RemoveDataset(ctx context.Context, d id.Dataset) error {
	return c.call(ctx, http.MethodDelete, at("datasets", string(d)), nil, nil, nil)
}

// AuditDataset answers whether a dataset was ever outside the building. It lists the
// newest uses, at most limit; 0 means as many as the server sees fit.
func (c *Client) AuditDataset(ctx context.Context, d id.Dataset, limit int) (Audit, error) {
	return get[Audit](ctx, c, at("datasets", string(d), "audit"), Page{Limit: limit}.query())
}

// Override lets a job run against the rules of its data.
func (c *Client) Override(ctx context.Context, j id.Job, in OverrideRequest) (Job, error) {
	return post[Job](ctx, c, at("jobs", string(j), "override"), in)
}

// Usage returns the figures of a period.
func (c *Client) Usage(ctx context.Context, q BookQuery) (Usage, error) {
	return get[Usage](ctx, c, at("usage"), q.query())
}

// Books returns a report from the books.
func (c *Client) Books(ctx context.Context, q BookQuery) (Books, error) {
	return get[Books](ctx, c, at("books"), q.query())
}

// Savings returns what decisions saved.
func (c *Client) Savings(ctx context.Context, q BookQuery) (Savings, error) {
	return get[Savings](ctx, c, at("savings"), q.query())
}

// CSV writes one of the reports usage, books and savings as text with commas.
func (c *Client) CSV(ctx context.Context, report string, q BookQuery, w io.Writer) error {
	resp, err := c.send(ctx, c.http, http.MethodGet, at(report), q.query(), nil, "Accept", "text/csv")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("read %s: %w", report, err)
	}
	return nil
}

// ReleaseGPU lets a GPU back into use that its agent has taken out of use.
func (c *Client) ReleaseGPU(ctx context.Context, n id.Node, gpu int) (Node, error) {
	return post[Node](ctx, c, at("nodes", string(n), "gpus", strconv.Itoa(gpu), "release"), nil)
}
