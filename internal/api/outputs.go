package api

import (
	"context"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// NewOutputs is what an agent says of the output files of a rank: how much there is before it uploads them, and which
// they are when it has.
type NewOutputs struct {
	Run      id.Run    `json:"run" maxLength:"100"`
	UID      id.UID    `json:"uid" maxLength:"64"`
	Rank     int       `json:"rank"`
	Bytes    job.Bytes `json:"bytes" doc:"size of all files"`
	Manifest string    `json:"manifest,omitempty" maxLength:"64" doc:"digest of a manifest like that of a checkpoint; absent to ask whether there is room"`
	Notes    []string  `json:"notes,omitempty" maxItems:"100" doc:"what was left out, as sentences"`
}

// OutputSet is the output files of one rank of a run.
type OutputSet struct {
	Run     id.Run    `json:"run"`
	Rank    int       `json:"rank"`
	Node    id.Node   `json:"node" doc:"node that the rank ran on"`
	Kept    time.Time `json:"kept"`
	Files   int       `json:"files"`
	Bytes   job.Bytes `json:"bytes"`
	Notes   []string  `json:"notes,omitempty" doc:"what was left out, as sentences"`
	Removed string    `json:"removed,omitempty" doc:"why the files are not kept any more; absent if they are"`
}

// OutputList lists the output files of a job by rank, those of the newest run first.
type OutputList struct {
	Outputs []OutputSet `json:"outputs"`
}

// OutputManifest lists the output files of one rank.
type OutputManifest struct {
	Files []CheckpointFile `json:"files"`
}

// CheckOutputs refuses a manifest of output files that does not describe files and links inside a directory.
func (m *CheckpointManifest) CheckOutputs() error {
	if err := m.Check(); err != nil {
		return err
	}

	for i := range m.Files {
		f := &m.Files[i]
		if f.Link != "" && (f.Size != 0 || !InsideLink(f.Path, f.Link)) {
			return badManifest("%s is a link that points outside", f.Path)
		}
	}

	return nil
}

// InsideLink reports whether a link at a path has a target inside the same directory, as far as its text tells.
func InsideLink(name, target string) bool {
	return target != "" && !path.IsAbs(target) && fs.ValidPath(path.Join(path.Dir(name), target))
}

// AddOutputs enters output files whose chunks are uploaded, or asks whether there is room for them.
func (c *Client) AddOutputs(ctx context.Context, in NewOutputs) error {
	return c.call(ctx, http.MethodPost, "/agent/v1/outputs", nil, in, nil)
}

// Outputs lists the output files of a job by rank.
func (c *Client) Outputs(ctx context.Context, j id.Job) (OutputList, error) {
	return get[OutputList](ctx, c, at("jobs", string(j), "outputs"), nil)
}

// OutputFiles lists the output files of one rank of a run.
func (c *Client) OutputFiles(ctx context.Context, run id.Run, rank int) (OutputManifest, error) {
	return get[OutputManifest](ctx, c, outputPath(run, rank), nil)
}

// OutputChunk opens a chunk of an output file. The caller checks its digest and closes it.
func (c *Client) OutputChunk(ctx context.Context, run id.Run, rank int, digest string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, c.bulk, http.MethodGet, outputPath(run, rank, "chunks", digest), nil, nil)
	if err != nil {
		return nil, err
	}

	return resp.Body, nil
}

func outputPath(run id.Run, rank int, more ...string) string {
	j, _, _ := run.Split()

	return at(append([]string{"jobs", string(j), "outputs", string(run), strconv.Itoa(rank)}, more...)...)
}
