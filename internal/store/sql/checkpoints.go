package sql

import (
	"context"
	"encoding/json"
	"fmt"

	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/store"
)

var checkpointTable = &table{
	name: "checkpoints", key: "num, number", guard: true,
	columns: []string{"num", "number", "id", "seq", "state", "added", "doc"},
	fixed:   []string{"num", "number", "id", "added"},
}

func checkpointRow(args []any, c *checkpoint.Checkpoint) ([]any, error) {
	num, err := jobNumber(c.Job)
	if err != nil {
		return nil, err
	}

	doc, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint %s: %w", c.ID, err)
	}

	return append(
		args,
		num,
		int64(c.Number),
		clean(string(c.ID)),
		int64(c.Seq),
		string(c.State),
		micros(c.Added),
		clean(string(doc)),
	), nil
}

func readCheckpoint(row scanner) (c checkpoint.Checkpoint, err error) {
	var doc string
	var skip any
	if err := row.Scan(&skip, &skip, &skip, &skip, &skip, &skip, &doc); err != nil {
		return c, err
	}
	if err := json.Unmarshal([]byte(doc), &c); err != nil {
		return c, fmt.Errorf("decode a checkpoint: %w", err)
	}

	return c, nil
}

// catalogued chooses what the yardmaster needs: checkpoints that are not removed, those that a run may just have added,
// and of each job that has not ended the one with the greatest number.
const catalogued = `WHERE state IN ('partial', 'stored') OR added >= $1 OR (num, number) IN (
	SELECT c.num, MAX(c.number) FROM checkpoints c JOIN jobs j ON j.num = c.num
	WHERE j.state IN (` + liveStates + `) GROUP BY c.num)
ORDER BY num, number`

// Checkpoints lists checkpoints by job and number.
func (s *Store) Checkpoints(ctx context.Context, f store.CheckpointFilter) ([]checkpoint.Checkpoint, error) {
	var w where

	if f.Job != "" {
		num, err := jobNumber(f.Job)
		if err != nil {
			return nil, nil //nolint:nilerr // not a valid job ID, so it has no checkpoints
		}

		w.add("num = ?", num)
	}

	if !f.Removed {
		w.add("state <> ?", string(checkpoint.Removed))
	}

	if f.After != "" {
		num, number, err := checkpointNumber(f.After)
		if err != nil {
			return nil, err
		}

		w.add("(num > ? OR num = ? AND number > ?)", num, num, number)
	}

	query, err := w.query(checkpointTable.selects(), "num, number", f.Limit)
	if err != nil {
		return nil, err
	}

	return collect(ctx, s.read, "checkpoint", query, w.args, readCheckpoint)
}

// Checkpoint returns one checkpoint.
func (s *Store) Checkpoint(ctx context.Context, c id.Checkpoint) (checkpoint.Checkpoint, error) {
	missing := fault.New(fault.NotFound, "checkpoint_not_found", "checkpoint %s not found", c)
	num, number, err := checkpointNumber(c)
	if err != nil {
		return checkpoint.Checkpoint{}, missing
	}

	query := checkpointTable.selects() + `WHERE num = $1 AND number = $2`

	return one(ctx, s.read, "checkpoint", query, []any{num, number}, readCheckpoint, missing)
}

// checkpointNumber returns the numbers of a checkpoint and of its job.
func checkpointNumber(c id.Checkpoint) (num, number int64, err error) {
	j, n, ok := c.Split()
	if !ok {
		return 0, 0, fmt.Errorf("invalid checkpoint id %q", string(c))
	}

	num, err = jobNumber(j)

	return num, int64(n), err
}
