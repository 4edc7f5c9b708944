package agentapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"trainyard/internal/api"
	"trainyard/internal/blob"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/yardmaster"
)

// A node that finds the checkpoint corrupt that it is to restore may itself be broken. So the server reads the
// checkpoint before anybody believes it. Until it has, the end of the rank is not reported to the yardmaster: the agent
// reports it again and again. A chunk that is wrong is removed, because every later checkpoint that has the same chunk
// would do without an upload of its own.

// verdict is what the server has found out about a checkpoint that a node calls corrupt.
type verdict int

const (
	pending verdict = iota
	intact          // or it could not be read now, which says nothing
	corrupt
)

// claim is what a run could not restore.
type claim struct {
	run        id.Run
	checkpoint id.Checkpoint
}

// claims are the checkpoints that nodes call corrupt. Past a bound all are verified again.
type claims struct {
	mu       sync.Mutex
	verdicts map[claim]verdict
	waiting  []claimed
	wake     chan struct{} // has room for one
}

type claimed struct {
	claim
	restore *job.Restore
}

// maxVerdicts bounds what claims remembers.
const maxVerdicts = 10_000

func newClaims() *claims {
	return &claims{verdicts: map[claim]verdict{}, wake: make(chan struct{}, 1)}
}

// verdict returns what is known of a claim, and has it verified if nothing is.
func (c *claims) verdict(of claim, restore *job.Restore) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()

	if v, known := c.verdicts[of]; known {
		return v
	}

	if len(c.verdicts) >= maxVerdicts {
		c.verdicts, c.waiting = map[claim]verdict{}, nil
	}

	c.verdicts[of] = pending
	c.waiting = append(c.waiting, claimed{of, restore})

	select {
	case c.wake <- struct{}{}:
	default: // it will look
	}

	return pending
}

func (c *claims) next() (claimed, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if len(c.waiting) == 0 {
		return claimed{}, false
	}

	first := c.waiting[0]
	c.waiting = c.waiting[1:]

	return first, true
}

func (c *claims) settle(of claim, v verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.verdicts[of] = v
}

// judge replaces what a node says about corrupt checkpoints by what the server knows.
func (s *Server) judge(ctx context.Context, n id.Node, ranks []api.RankReport) {
	for i := range ranks {
		rep := &ranks[i]
		if rep.State != job.RunEnded || rep.Restore == nil || !rep.Restore.Corrupt {
			continue
		}

		v := s.verdictOn(ctx, rep)

		switch {
		case v == corrupt:
		case v == pending && !s.stopping(n, rep.Run):
			*rep = api.RankReport{
				Run: rep.Run, UID: rep.UID, Rank: rep.Rank, State: job.RunPreparing,
				Reason: "verifying checkpoint " + string(rep.Restore.Checkpoint) + ": " + rep.Reason,
			}
		default:
			rep.Restore.Corrupt = false
			rep.Reason += "; the server did not find it corrupt"
		}
	}
}

// verdictOn returns what is known of the checkpoint that a rank calls corrupt.
func (s *Server) verdictOn(ctx context.Context, rep *api.RankReport) verdict {
	restore, err := s.restoring(ctx, rep.Run)
	switch {
	case fault.KindOf(err) == fault.Denied || err == nil && restore.Checkpoint != rep.Restore.Checkpoint:
		return intact // it is not for this run to say
	case err != nil:
		s.Log.WarnContext(ctx, "cannot find out what a run restores; asking again", "run", rep.Run, "error", err)
		return pending
	}

	return s.claims.verdict(claim{rep.Run, restore.Checkpoint}, restore)
}

// stopping reports whether a run on a node is ordered to stop: nobody waits for what it could restore.
func (s *Server) stopping(n id.Node, run id.Run) bool {
	orders, _, _ := s.Assignments.Desired(n)

	return slices.ContainsFunc(orders, func(o yardmaster.Order) bool { return o.Run == run && o.Stop != job.StopNone })
}

// VerifyCheckpoints verifies the checkpoints that nodes call corrupt, one after the other, until ctx ends.
func (s *Server) VerifyCheckpoints(ctx context.Context) {
	for {
		c, found := s.claims.next()
		if !found {
			select {
			case <-s.claims.wake:
				continue
			case <-ctx.Done():
				return
			}
		}

		v, err := s.verify(ctx, c.restore)
		if err != nil {
			s.Log.WarnContext(ctx, "verifying a checkpoint failed; it counts as intact", "checkpoint", c.checkpoint,
				"run", c.run, "error", err)
		}

		s.claims.settle(c.claim, v)
	}
}

// verify reads a checkpoint and removes the chunks of it that are wrong. What lies on a shared file system the server
// cannot read: there the node is believed.
func (s *Server) verify(ctx context.Context, r *job.Restore) (verdict, error) {
	found := intact

	for _, p := range r.Parts {
		if p.Manifest == "" {
			found = corrupt
			continue
		}

		// The manifest first, because what is wrong in it could not be read.
		wrong, err := s.dropWrong(ctx, []string{p.Manifest})
		if err != nil {
			return intact, err
		}

		if wrong == 0 {
			listed, err := s.listed(ctx, p.Manifest)
			if err != nil {
				return intact, err
			}

			wrong, err = s.dropWrong(ctx, slices.Sorted(maps.Keys(listed)))
			if err != nil {
				return intact, err
			}
		}

		if wrong > 0 {
			found = corrupt
		}
	}

	return found, nil
}

// readers is how many chunks are read at a time.
const readers = 8

// dropWrong removes the chunks whose content is not what they are called, and returns how many are wrong or not there.
func (s *Server) dropWrong(ctx context.Context, digests []string) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var next, wrong atomic.Int64
	var group sync.WaitGroup

	for range min(readers, len(digests)) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(digests)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				good, err := s.dropIfWrong(ctx, digests[i])
				if err != nil {
					cancel(err)
				} else if !good {
					wrong.Add(1)
				}
			}
		})
	}

	group.Wait()

	return int(wrong.Load()), context.Cause(ctx)
}

// dropIfWrong removes a chunk whose content is not what it is called, and reports whether it is good.
func (s *Server) dropIfWrong(ctx context.Context, digest string) (bool, error) {
	name := httpapi.ChunkBlob(digest)

	got, err := digestOfBlob(ctx, s.Blobs, name)
	if fault.KindOf(err) == fault.NotFound {
		return false, nil
	}
	if err != nil || got == digest {
		return err == nil, err
	}

	s.Log.ErrorContext(ctx, "a chunk of a checkpoint is not what was uploaded; removing it", "chunk", digest,
		"digest", got)

	return false, s.Blobs.Delete(ctx, name)
}

// digestOfBlob returns the SHA-256 of what a store has under a name. It asks for a range, because some stores refuse to
// hand out the whole of a blob that is not what was stored.
func digestOfBlob(ctx context.Context, blobs blob.Store, name string) (string, error) {
	info, err := blobs.Stat(ctx, name)
	if err != nil {
		return "", err
	}

	f, err := blobs.GetRange(ctx, name, 0, info.Size)
	if err != nil {
		return "", err
	}

	defer func() { _ = f.Close() }()

	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}

	return hex.EncodeToString(sum.Sum(nil)), nil
}
