package api

import (
	"context"
	"net/http"
	"time"

	"trainyard/internal/dataset"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Dataset is named data as people see it.
type Dataset struct {
	ID      id.Dataset `json:"id"`
	Owner   id.User    `json:"owner"`
	Created time.Time  `json:"created"`
	// Effective is set if another dataset with the same data has a stricter rule.
	Effective job.Place `json:"effective_place,omitempty" enum:"local,cloud,nowhere" doc:"where the dataset may be used, by the stricter rule of another dataset with the same data; absent if place says it"`
	DatasetRequest
}

// DatasetRequest registers a dataset or changes it.
type DatasetRequest struct {
	Place   job.Place        `json:"place" enum:"local,cloud,any" doc:"where the dataset may be used"`
	Size    job.Bytes        `json:"size,omitempty"`
	Source  string           `json:"source,omitempty" maxLength:"2000" doc:"path on the nodes, or URL to fetch it from; credentials in it are shown to its owner and to admins only"`
	Copies  []Copy           `json:"copies,omitempty" maxItems:"10000"`
	Readers []dataset.Reader `json:"readers,omitempty" maxItems:"1000" doc:"users, or projects as project/NAME, who may use the dataset besides its owner, * for everybody; if absent, everybody for a new dataset, and unchanged for one that is registered"`
}

// Everybody is the reader that lets all users use a dataset.
const Everybody dataset.Reader = "*"

// Copy is a place that has a dataset: one of node, pool and at.
type Copy struct {
	Node id.Node   `json:"node,omitempty" maxLength:"63" doc:"node that has the copy"`
	Pool string    `json:"pool,omitempty" maxLength:"63" doc:"pool whose nodes can all read the copy"`
	At   job.Place `json:"at,omitempty" enum:"local,cloud,any" doc:"class of location whose nodes can all read the copy"`
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
	Place   job.Place   `json:"place,omitempty" doc:"where it may be used now; absent if it is no longer registered"`
	Left    bool        `json:"left" doc:"whether the dataset ever left the premises: a run used it on a cloud node, or a copy is registered there"`
	Answer  string      `json:"answer" doc:"the answer in one sentence"`
	First   *DatasetUse `json:"first,omitempty" doc:"first use outside the premises"`
	Last    *DatasetUse `json:"last,omitempty" doc:"last use outside the premises"`
	Inside  int         `json:"inside" doc:"number of uses on the premises"`
	Outside int         `json:"outside" doc:"number of uses outside the premises"`
	Against int         `json:"against" doc:"number of uses that broke its rule, allowed by an override"`
	Copies  []Copy      `json:"copies" doc:"copies registered outside the premises"`
	// Complete says that every use was looked at.
	Complete bool         `json:"complete" doc:"whether all uses were examined; otherwise only the newest"`
	Uses     []DatasetUse `json:"uses" doc:"uses, newest first, up to the requested limit"`
}

// DatasetUse is one use of a dataset by a run on a node.
type DatasetUse struct {
	At       time.Time `json:"at"`
	Run      id.Run    `json:"run"`
	Job      id.Job    `json:"job"`
	Owner    id.User   `json:"owner"`
	Node     id.Node   `json:"node"`
	Outside  bool      `json:"outside" doc:"whether the node is outside the premises"`
	Override string    `json:"override,omitempty" doc:"who overrode the rule, and why"`
}

// OverrideRequest lets a job run against the rules of its data. It is written down.
type OverrideRequest struct {
	Place job.Place `json:"place" enum:"local,cloud,any"`
	Why   string    `json:"why" minLength:"1" maxLength:"1000"`
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
