package yardmaster_test

import (
	"fmt"
	"maps"
	"slices"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/yardmaster"
)

// save lets a program write a checkpoint, of which its agent adds its part. The message may come late, or twice.
func (d *driver) save() error {
	if len(d.late) > 0 && d.chance(3) {
		i := d.rng.IntN(len(d.late))
		m := d.late[i]
		d.late = slices.Delete(d.late, i, i+1)

		return d.add(m)
	}

	var writers []*proc
	for _, a := range d.agents {
		for _, key := range slices.Sorted(maps.Keys(a.procs)) {
			if p := a.procs[key]; a.up && p.state == job.RunRunning && a.inv.Restores {
				writers = append(writers, p)
			}
		}
	}

	if len(writers) == 0 {
		return nil
	}

	p := writers[d.rng.IntN(len(writers))]
	ranks := len(p.order.Launch.Nodes)
	if d.chance(3) {
		ranks = 1 // rank 0 has all of it
	}

	m := yardmaster.AddCheckpoint{Checkpoint: checkpoint.Checkpoint{
		Run: p.order.Run, UID: p.order.Launch.UID, Name: "ckpt", Step: int64(d.sent), Found: checkpoint.ByRest, Ranks: ranks,
		Written: d.wall(),
		Parts: []checkpoint.Part{{
			Rank: p.order.Rank, Node: p.order.Node, Manifest: fmt.Sprint("m", d.sent), Size: 1 << 20,
		}},
	}}

	if !d.chance(4) { // most programs use the SDK
		m.Checkpoint.Found = checkpoint.ByMarker
	}

	if ranks > 1 {
		m.Checkpoint.Name, m.Checkpoint.Step = fmt.Sprint("step-", d.rng.IntN(3)), int64(d.rng.IntN(3))
	}

	if d.chance(4) {
		d.late = append(d.late, m)
		return nil
	}
	if err := d.add(m); err != nil || !d.chance(8) {
		return err
	}

	return d.add(m)
}

// add adds a checkpoint. Only one of the newest run of its job is taken.
func (d *driver) add(m yardmaster.AddCheckpoint) error {
	reply, err := d.send(m)
	if err != nil {
		if k := fault.KindOf(err); k != fault.Conflict {
			return fmt.Errorf("%+v: %w", m, err)
		}

		return nil
	}

	entry, _ := reply.(checkpoint.Checkpoint)
	owner, _, _ := m.Checkpoint.Run.Split()
	if j, known := yardmaster.JobOf(d.yard, owner); !known || m.Checkpoint.Run != id.NewRun(j.ID, j.Epoch) {
		return fmt.Errorf("checkpoint %+v of a stale run was taken as %+v", m.Checkpoint, entry)
	}

	return nil
}

// tidy lets a person pin or remove a checkpoint.
func (d *driver) tidy() error {
	names := slices.Sorted(maps.Keys(d.store.catalogue))
	if len(names) == 0 {
		return nil
	}

	name := names[d.rng.IntN(len(names))]

	var m yardmaster.Message = yardmaster.RemoveCheckpoint{Checkpoint: name, Owner: "ada", By: "root", Why: "not needed"}
	if d.chance(3) {
		m = yardmaster.PinCheckpoint{Checkpoint: name, Owner: "ada", By: "root", On: d.chance(2)}
	}

	if _, err := d.send(m); err != nil && fault.KindOf(err) != fault.Conflict && fault.KindOf(err) != fault.NotFound {
		return fmt.Errorf("%T %+v: %w", m, m, err)
	}

	return nil
}

// commitCheckpoints checks what becomes of checkpoints, and what runs restore.
func (s *record) commitCheckpoints(b *yardmaster.Batch) error {
	var gone []checkpoint.Checkpoint
	for _, c := range b.Checkpoints {
		old, known := s.catalogue[c.ID]
		switch {
		case known && c.Seq <= old.Seq:
			return fmt.Errorf("checkpoint %s has number %d after %d", c.ID, c.Seq, old.Seq)
		case old.State == checkpoint.Removed || old.State == checkpoint.Corrupt && c.State != checkpoint.Corrupt &&
			c.State != checkpoint.Removed:
			return fmt.Errorf("checkpoint %s was %s and is %s", c.ID, old.State, c.State)
		case c.State == checkpoint.Stored && len(c.Parts) != c.Ranks:
			return fmt.Errorf("checkpoint %s is stored with %d of %d parts", c.ID, len(c.Parts), c.Ranks)
		case old.State == checkpoint.Stored && c.State == checkpoint.Removed:
			gone = append(gone, c)
		}

		s.catalogue[c.ID] = c
	}

	for i := range gone {
		if newest := s.newest(gone[i].Job); !s.jobs[gone[i].Job].State.Final() &&
			(newest == nil || checkpoint.Newer(newest, &gone[i]) < 0) {
			return fmt.Errorf("checkpoint %s was removed, and its job has none that is newer", gone[i].ID)
		}
	}

	for i := range b.Orders {
		if err := s.checkRestore(&b.Orders[i]); err != nil {
			return err
		}
	}

	return nil
}

// newest returns the checkpoint from which a job has to continue, found without the code that is tested.
func (s *record) newest(j id.Job) *checkpoint.Checkpoint {
	var newest *checkpoint.Checkpoint
	for _, c := range s.catalogue {
		if c.Job == j && c.State == checkpoint.Stored && (newest == nil || c.Epoch > newest.Epoch ||
			c.Epoch == newest.Epoch && c.Number > newest.Number) {
			newest = &c
		}
	}

	return newest
}

// checkRestore checks that a new run continues from the newest checkpoint that is whole.
func (s *record) checkRestore(o *yardmaster.Order) error {
	if _, known := s.orders[o.Key()]; known || o.Adopt {
		return nil
	}

	newest, got := s.newest(o.Job), o.Launch.Restore
	switch {
	case !s.nodes[o.Node].Inventory.Restores:
		if got != nil {
			return fmt.Errorf("run %s restores %s on node %s, which cannot", o.Run, got.Checkpoint, o.Node)
		}
	case newest == nil && got != nil:
		return fmt.Errorf("run %s restores %s, which is %s", o.Run, got.Checkpoint, s.catalogue[got.Checkpoint].State)
	case newest != nil && (got == nil || got.Checkpoint != newest.ID || len(got.Parts) != newest.Ranks):
		return fmt.Errorf("run %s restores %+v, and the newest checkpoint is %s", o.Run, got, newest.ID)
	case newest != nil:
		s.events["test.restored"]++
	}

	return nil
}
