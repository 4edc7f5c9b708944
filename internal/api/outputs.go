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
	// Request, Found and Problem answer an OutputsRequest.
	Request string       `json:"request,omitempty" maxLength:"64" doc:"the request that this answers"`
	Found   []OutputFile `json:"found,omitempty" maxItems:"20000" doc:"files that were found, if they were only to be listed"`
	Problem string       `json:"problem,omitempty" maxLength:"2000" doc:"why the request could not be carried out"`
}

// OutputFile is a file in the folder of a run.
type OutputFile struct {
	Path string    `json:"path" maxLength:"4096"`
	Size job.Bytes `json:"size"`
	Link string    `json:"link,omitempty" maxLength:"4096"`
}

// MaxFoundOutputs is how many files are listed at most.
const MaxFoundOutputs = 20_000

// OutputsRequest asks an agent for files from the folder of a run, which has ended or goes on.
type OutputsRequest struct {
	ID       string   `json:"id"`
	Run      id.Run   `json:"run"`
	Rank     int      `json:"rank"`
	Patterns []string `json:"patterns"`
	List     bool     `json:"list,omitempty" doc:"list the files and upload none"`
}

// AskOutputs asks for files from the folders of a run on its nodes.
type AskOutputs struct {
	Run      id.Run   `json:"run,omitempty" maxLength:"60" doc:"default: the newest"`
	Rank     *int     `json:"rank,omitempty" minimum:"0" doc:"default: all"`
	Patterns []string `json:"patterns" minItems:"1" maxItems:"100"`
	List     bool     `json:"list,omitempty" doc:"list the files and keep none"`
}

// AskedOutputs is the answer.
type AskedOutputs struct {
	Done     bool        `json:"done" doc:"all nodes have answered; if not, make the same request again"`
	Found    []FoundFile `json:"found,omitempty" doc:"files that were found, if they were only to be listed"`
	Problems []string    `json:"problems,omitempty" doc:"what could not be done, as sentences"`
}

// FoundFile is a file in the folder of one rank of a run.
type FoundFile struct {
	Run  id.Run `json:"run"`
	Rank int    `json:"rank"`
	OutputFile
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

// AskOutputs asks for files from the folders of a run on its nodes. It is called again until it is done.
func (c *Client) AskOutputs(ctx context.Context, j id.Job, in AskOutputs) (AskedOutputs, error) {
	return post[AskedOutputs](ctx, c, at("jobs", string(j), "outputs"), in)
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
