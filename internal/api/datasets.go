package api

import (
	"context"
	"net/http"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

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
