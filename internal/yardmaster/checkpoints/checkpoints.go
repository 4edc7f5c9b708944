// Package checkpoints keeps the catalogue of checkpoints: what the agents of a run have uploaded, which of it is kept,
// and which one the next run of a job continues from.
//
// It serves the step launch of a job's path. Whether a run may still add a checkpoint is decided by the yardmaster,
// which knows the newest run of each job. What was uploaded and is not in the catalogue does not exist.
package checkpoints

import (
	"fmt"
	"slices"
	"time"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster/batch"
)

// Catalogue is all checkpoints that are stored or being stored. It is not safe for concurrent use.
type Catalogue struct {
	feed    *batch.Feed
	jobs    map[id.Job]*shelf
	changed batch.Set[*entry]
}

// shelf is the checkpoints of one job, by number.
type shelf struct {
	last    int // greatest number ever used
	entries []*entry
}

type entry struct {
	checkpoint.Checkpoint
	batch.Mark
}

// New returns an empty catalogue. Events go to the feed.
func New(feed *batch.Feed) *Catalogue {
	return &Catalogue{feed: feed, jobs: map[id.Job]*shelf{}}
}

// Load restores the stored catalogue.
func (c *Catalogue) Load(s *batch.State) {
	list := slices.Clone(s.Checkpoints)
	slices.SortFunc(list, func(a, b checkpoint.Checkpoint) int { return a.Number - b.Number })

	for i := range list {
		s := c.shelf(list[i].Job)
		s.last = max(s.last, list[i].Number)
		s.entries = append(s.entries, &entry{Checkpoint: list[i]})
	}

	for _, s := range c.jobs {
		s.trim()
	}
}

// Take moves what has changed into a batch.
func (c *Catalogue) Take(b *batch.Batch) {
	b.Checkpoints = batch.Take(&c.changed, b.Checkpoints, func(to *checkpoint.Checkpoint, e *entry) {
		*to = e.Checkpoint
		to.Parts = slices.Clone(e.Parts)
	})
}

func (c *Catalogue) shelf(j id.Job) *shelf {
	s, ok := c.jobs[j]
	if !ok {
		s = &shelf{}
		c.jobs[j] = s
	}

	return s
}

func (c *Catalogue) change(e *entry) {
	e.Seq++
	c.changed.Add(e)
}

// remembered is how many of the newest numbers of a job are remembered after they were removed, so that an agent
// that adds one again because the answer was lost does not add it twice.
const remembered = 16

// trim forgets what was removed long ago; the store keeps it.
func (s *shelf) trim() {
	s.entries = slices.DeleteFunc(s.entries, func(e *entry) bool {
		return e.State == checkpoint.Removed && e.Number <= s.last-remembered
	})
}

func (s *shelf) all() []*checkpoint.Checkpoint {
	list := make([]*checkpoint.Checkpoint, len(s.entries))
	for i, e := range s.entries {
		list[i] = &e.Checkpoint
	}

	return list
}

// Newest returns the checkpoint from which the next run of a job continues, nil if it must begin anew. It must not be
// changed.
func (c *Catalogue) Newest(j id.Job) *checkpoint.Checkpoint {
	s, ok := c.jobs[j]
	if !ok {
		return nil
	}

	return checkpoint.Newest(s.all())
}

// NewestOn returns the checkpoint from which a job continues on a node, nil if it must begin anew there, and the newer
// ones that the node cannot restore, newest first. They must not be changed.
func (c *Catalogue) NewestOn(
	j id.Job, inv *fleet.Inventory,
) (newest *checkpoint.Checkpoint, unfit []*checkpoint.Checkpoint) {
	s, ok := c.jobs[j]
	if !ok {
		return nil, nil
	}

	return checkpoint.NewestOn(s.all(), inv)
}

// Add enters a checkpoint, or one rank's part of it, which is in its Parts. Adding the same again changes nothing.
// inUse is the checkpoint that a run is being restored from, "" if none: it is not removed.
func (c *Catalogue) Add(
	now time.Time, j *job.Job, part checkpoint.Checkpoint, inUse id.Checkpoint,
) (checkpoint.Checkpoint, error) {
	s := c.shelf(j.ID)
	if e := s.same(&part); e != nil {
		return e.Checkpoint, nil
	}

	e, err := s.incomplete(&part)
	if err != nil {
		c.Refuse(now, j, &part, err.Error())
		return checkpoint.Checkpoint{}, err
	}

	if e == nil {
		e = s.open(now, j.ID, &part)
	}

	p := part.Parts[0]
	at, _ := slices.BinarySearchFunc(e.Parts, p.Rank, func(p checkpoint.Part, rank int) int { return p.Rank - rank })
	e.Parts = slices.Insert(slices.Clone(e.Parts), at, p)
	e.Size += p.Size
	c.change(e)

	if len(e.Parts) < e.Ranks {
		return e.Checkpoint, nil
	}

	e.State, e.Reason = checkpoint.Stored, ""
	c.event(now, j.Owner, e, "checkpoint.stored", "node/"+string(p.Node), describe(&e.Checkpoint))
	c.applyRule(now, j, s, inUse)

	return e.Checkpoint, nil
}

// same returns the entry that has this very part already, nil if there is none.
func (s *shelf) same(part *checkpoint.Checkpoint) *entry {
	p := &part.Parts[0]

	for _, e := range s.entries {
		if e.UID != part.UID || e.Run != part.Run || e.Name != part.Name {
			continue
		}
		if e.Ranks == 1 && !e.Written.Equal(part.Written) { // the same content, written again
			continue
		}

		if slices.ContainsFunc(e.Parts, func(o checkpoint.Part) bool {
			return o.Rank == p.Rank && o.Manifest == p.Manifest && o.Shared == p.Shared && o.Path == p.Path && o.Size == p.Size
		}) {
			return e
		}
	}

	return nil
}

// incomplete returns the entry of which this is a missing part, nil if it is the first part of a checkpoint.
func (s *shelf) incomplete(part *checkpoint.Checkpoint) (*entry, error) {
	if part.Ranks == 1 {
		return nil, nil
	}

	for _, e := range s.entries {
		if e.UID != part.UID || e.Run != part.Run || e.Name != part.Name || e.Step != part.Step || e.Ranks != part.Ranks {
			continue
		}

		has := slices.ContainsFunc(e.Parts, func(p checkpoint.Part) bool { return p.Rank == part.Parts[0].Rank })
		switch {
		case has && part.Step < 0:
			// Which part of another rank belongs to the one that was written over the first, nobody can say.
			return nil, fault.New(fault.Conflict, "ambiguous_part",
				"rank %d of run %s has written over %q, and without a step its parts cannot be matched",
				part.Parts[0].Rank, part.Run, part.Name).
				WithRemedy("write each checkpoint to a directory of its own, or say its step with the SDK")
		case !has && e.State == checkpoint.Partial:
			return e, nil
		}
	}

	return nil, nil
}

// open makes the entry of a new checkpoint, without parts.
func (s *shelf) open(now time.Time, j id.Job, part *checkpoint.Checkpoint) *entry {
	s.last++
	e := &entry{Checkpoint: *part}
	e.ID, e.Job, e.Number, e.Added = id.NewCheckpoint(j, s.last), j, s.last, now
	e.Size, e.Parts, e.Pinned = 0, nil, false
	e.State, e.Reason = checkpoint.Partial, fmt.Sprintf("not all of %d ranks have uploaded their part", e.Ranks)
	s.entries = append(s.entries, e)

	return e
}

// applyRule removes what the rule of a job does not keep.
func (c *Catalogue) applyRule(now time.Time, j *job.Job, s *shelf, inUse id.Checkpoint) {
	rule := checkpoint.RuleOf(j.Spec)

	for _, surplus := range rule.Surplus(s.all()) {
		if surplus.ID == inUse {
			continue
		}

		why := fmt.Sprintf("not among the last %d", rule.Last)
		if rule.Best > 0 {
			why += fmt.Sprintf(" and the best %d", rule.Best)
		}

		c.remove(now, j.Owner, s.find(surplus.ID), batch.Yard, why)
	}

	s.trim()
}

func (s *shelf) find(name id.Checkpoint) *entry {
	for _, e := range s.entries {
		if e.ID == name {
			return e
		}
	}

	return nil
}

func (c *Catalogue) find(name id.Checkpoint) (*entry, error) {
	j, _, ok := name.Split()
	if s := c.jobs[j]; ok && s != nil {
		if e := s.find(name); e != nil && e.State != checkpoint.Removed {
			return e, nil
		}
	}

	return nil, fault.New(fault.NotFound, "checkpoint_not_found", "checkpoint %s not found, or already removed", name).
		WithRemedy("trainyard checkpoints JOB lists those of a job")
}

func (c *Catalogue) remove(now time.Time, owner id.User, e *entry, actor, why string) {
	e.State, e.Reason = checkpoint.Removed, why
	c.change(e)
	c.event(now, owner, e, "checkpoint.removed", actor, string(e.ID)+": "+why)
}

// Remove removes a checkpoint that no job needs. A pinned one is refused.
func (c *Catalogue) Remove(
	now time.Time, owner id.User, name id.Checkpoint, actor, why string,
) (checkpoint.Checkpoint, error) {
	e, err := c.find(name)
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	if e.Pinned {
		return checkpoint.Checkpoint{}, fault.New(fault.Conflict, "checkpoint_pinned", "checkpoint %s is pinned", name).
			WithRemedy("unpin it first: trainyard checkpoints unpin %s", name)
	}

	c.remove(now, owner, e, actor, why)

	return e.Checkpoint, nil
}

// Pin keeps a checkpoint whatever the rules say, or no longer.
func (c *Catalogue) Pin(
	now time.Time, owner id.User, name id.Checkpoint, by id.User, on bool,
) (checkpoint.Checkpoint, error) {
	e, err := c.find(name)
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	if e.Pinned == on {
		return e.Checkpoint, nil
	}

	kind, words := "checkpoint.pinned", "pinned by "
	if !on {
		kind, words = "checkpoint.unpinned", "unpinned by "
	}

	e.Pinned = on
	c.change(e)
	c.event(now, owner, e, kind, string(by), string(e.ID)+": "+words+string(by))

	return e.Checkpoint, nil
}

// MarkCorrupt records that the content of a checkpoint is wrong, so that it is never restored again. It reports
// whether that is new.
func (c *Catalogue) MarkCorrupt(now time.Time, owner id.User, name id.Checkpoint, node id.Node, why string) bool {
	e, err := c.find(name)
	if err != nil || e.State == checkpoint.Corrupt {
		return false
	}

	e.State, e.Reason = checkpoint.Corrupt, why
	c.change(e)

	next := "the job begins anew"
	if before := c.Newest(e.Job); before != nil {
		next = fmt.Sprintf("the job continues from %s", before.ID)
	}

	c.event(now, owner, e, "checkpoint.corrupt", "node/"+string(node), fmt.Sprintf("%s: %s; %s", e.ID, why, next))

	return true
}

// Refuse records that a checkpoint was not taken.
func (c *Catalogue) Refuse(now time.Time, j *job.Job, part *checkpoint.Checkpoint, why string) {
	node := part.Parts[0].Node
	c.feed.Add(now, batch.Event{
		Kind: "checkpoint.refused", Actor: "node/" + string(node), Owner: j.Owner, Job: j.ID, Run: part.Run, Node: node,
		To: part.Name, Reason: why,
	})
}

// DropPartial removes the checkpoints of a job that can no longer be completed: those of runs before an epoch.
func (c *Catalogue) DropPartial(now time.Time, j *job.Job, epoch int) {
	s, ok := c.jobs[j.ID]
	if !ok {
		return
	}

	for _, e := range s.entries {
		if e.State == checkpoint.Partial && e.Epoch < epoch && !e.Pinned {
			c.remove(now, j.Owner, e, batch.Yard, fmt.Sprintf("%s ended before all of %s had uploaded their part",
				e.Run, humanize.Count(e.Ranks, "rank")))
		}
	}
}

func (c *Catalogue) event(now time.Time, owner id.User, e *entry, kind, actor, reason string) {
	var node id.Node
	if len(e.Parts) > 0 {
		node = e.Parts[len(e.Parts)-1].Node
	}

	c.feed.Add(now, batch.Event{
		Kind: kind, Actor: actor, Owner: owner, Job: e.Job, Run: e.Run, Node: node, To: string(e.ID), Reason: reason,
	})
}

// describe says in a sentence what was stored.
func describe(c *checkpoint.Checkpoint) string {
	text := string(c.ID) + ": " + humanize.Size(c.Size)
	if c.Step >= 0 {
		text += fmt.Sprintf(", step %d", c.Step)
	}

	if c.Metric != "" {
		text += fmt.Sprintf(", %s %g", c.Metric, c.Value)
	}

	return text
}
