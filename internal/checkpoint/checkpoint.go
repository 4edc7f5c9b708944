// Package checkpoint describes the saved states of jobs: what the catalogue knows of each, which one the next run of a
// job continues from, and which are kept. The agent finds and uploads them, the yardmaster keeps the catalogue. The
// package reads no files and stores nothing.
package checkpoint

import (
	"cmp"
	"slices"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Found says how an agent knew that a checkpoint was complete.
type Found string

// The ways to know it.
const (
	ByMarker      Found = "marker"      // the SDK wrote a completion marker
	ByRename      Found = "rename"      // it was written beside its place and renamed
	ByHuggingFace Found = "huggingface" // the layout of the Hugging Face Trainer
	ByLightning   Found = "lightning"   // the layout of Lightning
	ByDCP         Found = "dcp"         // the layout of torch.distributed.checkpoint
	ByRest        Found = "rest"        // its files stopped changing, or the program ended
	BySnapshot    Found = "snapshot"    // the agent saved the whole process
)

// State is what can be done with a checkpoint.
type State string

// The states. Only a stored one is ever restored.
const (
	Partial State = "partial" // not all ranks have uploaded their part
	Stored  State = "stored"
	Corrupt State = "corrupt" // its content did not have the digests it was uploaded with
	Removed State = "removed"
)

// Checkpoint is one entry of the catalogue.
type Checkpoint struct {
	ID        id.Checkpoint
	Seq       uint64 // grows with every change
	Job       id.Job
	Run       id.Run  // that wrote it
	UID       id.UID  // of that run
	Epoch     int     // of that run
	Number    int     // counts the checkpoints of the job
	Name      string  // its path below the checkpoint directory; "." if it is all of the directory
	Step      int64   // -1 if unknown
	Work      float64 `json:",omitempty"` // units of work that its job had done when it was written; 0 if unknown
	Metric    string  // by which the best one is kept; "" if unknown
	Value     float64
	Size      job.Bytes
	World     int // processes that wrote it; 0 if unknown
	Framework string
	Found     Found
	State     State
	Reason    string    // of the state, as a sentence for its owner
	Written   time.Time // by the program
	Added     time.Time // to the catalogue
	Pinned    bool
	Ranks     int    // ranks that upload a part of it; 1 if one has all of it
	Parts     []Part // by rank
	// Image is what a snapshot needs of the node that continues it; zero for other checkpoints.
	Image fleet.Image `json:",omitzero"`
}

// Part is what one rank of the run has of a checkpoint: all of it, or its shard.
type Part struct {
	Rank     int
	Node     id.Node
	Manifest string // digest of the manifest of its files
	Shared   string // the shared file system on which they are, by the name that the pool declares; "" if uploaded
	Path     string // on the shared file system, below its root
	Size     job.Bytes
}

// Nodes lists the nodes that have uploaded it.
func (c *Checkpoint) Nodes() []id.Node {
	var list []id.Node
	for i := range c.Parts {
		if n := c.Parts[i].Node; !slices.Contains(list, n) {
			list = append(list, n)
		}
	}

	return list
}

// Shared returns the shared file system on which it is, "" if it was uploaded. All parts are where the first is,
// because a run has one place for its checkpoints.
func (c *Checkpoint) Shared() string {
	if len(c.Parts) == 0 {
		return ""
	}

	return c.Parts[0].Shared
}

// Restore returns how a launch names the checkpoint.
func (c *Checkpoint) Restore() *job.Restore {
	r := &job.Restore{
		Checkpoint: c.ID, Name: c.Name, Step: c.Step, Size: c.Size, Snapshot: c.Found == BySnapshot,
		Parts: make([]job.RestorePart, len(c.Parts)),
	}

	for i := range c.Parts {
		p := &c.Parts[i]
		r.Parts[i] = job.RestorePart{Manifest: p.Manifest, Shared: p.Shared, Path: p.Path}
	}

	return r
}

// Newer compares two checkpoints of a job: a later run has later ones, and a run's are numbered.
func Newer(a, b *Checkpoint) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Number, b.Number))
}

// Newest returns the checkpoint from which the next run of a job continues, nil if it must begin anew.
func Newest(all []*Checkpoint) *Checkpoint {
	var newest *Checkpoint
	for _, c := range all {
		if c.State == Stored && (newest == nil || Newer(c, newest) > 0) {
			newest = c
		}
	}

	return newest
}

// NewestOn returns the checkpoint from which a job continues on a node, nil if it must begin anew there, and the newer
// ones that the node cannot restore, newest first.
func NewestOn(all []*Checkpoint, inv *fleet.Inventory) (newest *Checkpoint, unfit []*Checkpoint) {
	stored := slices.DeleteFunc(slices.Clone(all), func(c *Checkpoint) bool { return c.State != Stored })
	slices.SortFunc(stored, Newer)

	for _, c := range slices.Backward(stored) {
		if c.Image.Misfit(inv) == "" {
			return c, unfit
		}

		unfit = append(unfit, c)
	}

	return nil, unfit
}

// Rule says which checkpoints of a job are kept.
type Rule struct {
	Last   int    // the newest ones; at least 1
	Best   int    // by the metric
	Metric string // "" for the one that the checkpoints name
	Higher bool   // a greater value is better
}

// RuleOf returns the rule of a job.
func RuleOf(s *job.Spec) Rule {
	r := Rule{Last: job.DefaultKept}
	if s.Checkpoint == nil {
		return r
	}

	keep := s.Checkpoint.Keep
	if keep.Last > 0 {
		r.Last = keep.Last
	}

	r.Best, r.Metric, r.Higher = keep.Best, keep.Metric, keep.Mode == job.KeepMax

	return r
}

// Surplus returns the stored checkpoints of a job that the rule does not keep, oldest first. A pinned one and the
// newest stored one are always kept.
func (r Rule) Surplus(all []*Checkpoint) []*Checkpoint {
	stored := slices.DeleteFunc(slices.Clone(all), func(c *Checkpoint) bool { return c.State != Stored })
	slices.SortFunc(stored, Newer)

	kept := map[id.Checkpoint]bool{}
	for _, c := range stored[max(0, len(stored)-max(r.Last, 1)):] {
		kept[c.ID] = true
	}

	for _, c := range r.best(stored) {
		kept[c.ID] = true
	}

	return slices.DeleteFunc(stored, func(c *Checkpoint) bool { return kept[c.ID] || c.Pinned })
}

// best returns the best checkpoints; of equal ones the newer.
func (r Rule) best(stored []*Checkpoint) []*Checkpoint {
	measured := slices.DeleteFunc(slices.Clone(stored), func(c *Checkpoint) bool {
		return c.Metric == "" || r.Metric != "" && c.Metric != r.Metric
	})

	slices.SortFunc(measured, func(a, b *Checkpoint) int {
		worse := cmp.Compare(a.Value, b.Value)
		if r.Higher {
			worse = -worse
		}

		return cmp.Or(worse, Newer(b, a))
	})

	return measured[:min(r.Best, len(measured))]
}
