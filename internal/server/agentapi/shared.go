package agentapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/checkpoint"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
	"trainyard/internal/yardmaster"
)

func (s *Server) sharedRoutes(rt httpapi.Router) {
	huma.Register(rt.API, s.guarded(huma.Operation{
		OperationID: "find-unneeded-dirs", Method: http.MethodPost, Path: "/agent/v1/shared",
		Summary: "Ask which directories on a shared file system are not needed any more", Tags: []string{"agent"},
		MaxBodyBytes: 16 << 20,
	}), s.unneededDirs)
}

// sharedFolders returns the shared file systems of a node as its agent is told of them.
func (s *Server) sharedFolders(ctx context.Context, n id.Node) ([]api.SharedFolder, error) {
	if !s.HasShared {
		return nil, nil
	}

	var found []yardmaster.SharedFolder
	if err := s.query(ctx, func(y *yardmaster.Yard) { found = y.SharedFolders(n) }); err != nil {
		return nil, err
	}

	list := make([]api.SharedFolder, len(found))
	for i, f := range found {
		list[i] = api.SharedFolder{
			Name: f.Name, Path: f.Path, Nonce: s.nonce(f.Name), Create: f.Create, Keeper: f.Keeper, Known: f.Known,
		}
	}

	return list, nil
}

// nonce returns what identifies a shared file system of this yard. Every server of the yard computes the same.
func (s *Server) nonce(name string) string {
	sum := sha256.Sum256([]byte("shared file system\x00" + s.CA.Hash() + "\x00" + name))
	return hex.EncodeToString(sum[:16])
}

// checkShared refuses shared file systems in an inventory that cannot be.
func checkShared(inv *fleet.Inventory, bad func(format string, args ...any) error) error {
	const most = 100
	if len(inv.Shared) > most {
		return bad("a node can have at most %d shared file systems", most)
	}

	seen := map[string]bool{}
	for _, f := range inv.Shared {
		if !id.Name(f.Name) || seen[f.Name] || len(f.Reason) > maxReason {
			return bad("shared file system %.100q is listed twice, or its name is invalid or its reason too long", f.Name)
		}

		seen[f.Name] = true
	}

	return nil
}

// unneededDirs says which directories on a shared file system can be removed. In doubt everything stays: what belongs
// to a run that this yard does not know, and everything for a while after the database was restored from a backup.
func (s *Server) unneededDirs(
	ctx context.Context, in *httpapi.Body[api.SharedDirs],
) (*httpapi.Body[api.SharedDirsReply], error) {
	var sees bool
	var now yardmaster.Incarnation
	n := nodeOf(ctx)

	err := s.query(ctx, func(y *yardmaster.Yard) { sees, now = y.SeesShared(n, in.Body.Shared), y.Incarnation() })
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	if !sees {
		return nil, s.fail(ctx, fault.New(fault.Denied, "not_your_shared_fs",
			"node %s does not have the shared file system %s", n, in.Body.Shared))
	}

	reply := &httpapi.Body[api.SharedDirsReply]{Body: api.SharedDirsReply{Remove: []string{}}}
	if now.Number > 1 && s.Clock.Now().Sub(now.Began) < afterRestore {
		return reply, nil
	}

	jobs := map[id.Job]*leftovers{}
	for i := range in.Body.Dirs {
		unneeded, err := s.unneeded(ctx, jobs, in.Body.Shared, &in.Body.Dirs[i])
		if err != nil {
			return nil, s.fail(ctx, err)
		}

		if unneeded {
			reply.Body.Remove = append(reply.Body.Remove, in.Body.Dirs[i].Path)
		}
	}

	return reply, nil
}

const (
	// afterRestore is how long nothing is removed after the database was restored from a backup. It may have been the
	// wrong one, and what only the right one refers to must still be there.
	afterRestore = 7 * 24 * time.Hour
	// afterEnd is how long what the last run of a job has left stays after the end of the job, if the catalogue does not
	// have it: a checkpoint may be on its way into it.
	afterEnd = time.Hour
)

// leftovers is what is known of a job that has something on a shared file system.
type leftovers struct {
	job   job.Job
	state map[string]checkpoint.State // of its checkpoints, by their paths
}

// unneeded reports whether a directory can be removed: a checkpoint if the catalogue has removed it, and anything that
// the catalogue does not have if nothing can be added of its run any more.
func (s *Server) unneeded(
	ctx context.Context, jobs map[id.Job]*leftovers, shared string, dir *api.SharedDir,
) (bool, error) {
	name, epoch, ok := dir.Run.Split()
	if !ok || !fs.ValidPath(dir.Path) {
		return false, nil
	}

	run, err := s.Store.Run(ctx, dir.Run)
	if fault.KindOf(err) == fault.NotFound || err == nil && run.UID != dir.UID {
		return false, nil // of another yard, or of another history of this one
	}
	if err != nil {
		return false, err
	}

	left := jobs[name]
	if left == nil {
		left, err = s.leftoversOf(ctx, name, shared)
		if err != nil {
			return false, err
		}

		jobs[name] = left
	}

	state, known := left.state[dir.Path]
	if dir.Kept && known {
		return state == checkpoint.Removed, nil
	}

	over := left.job.State.Final() && s.Clock.Now().Sub(left.job.Ended) > afterEnd

	return run.State == job.RunEnded && (epoch < left.job.Epoch || over), nil
}

// leftoversOf reads a job and its checkpoints on a shared file system.
func (s *Server) leftoversOf(ctx context.Context, name id.Job, shared string) (*leftovers, error) {
	const page = 1000

	j, err := s.Store.Job(ctx, name)
	if err != nil {
		return nil, err
	}

	left := &leftovers{job: j, state: map[string]checkpoint.State{}}
	filter := store.CheckpointFilter{Job: name, Removed: true, Limit: page}

	for {
		list, err := s.Store.Checkpoints(ctx, filter)
		if err != nil {
			return nil, err
		}

		for i := range list {
			for _, p := range list[i].Parts {
				if p.Shared == shared {
					left.state[p.Path] = list[i].State
				}
			}
		}

		if len(list) < page {
			return left, nil
		}

		filter.After = list[len(list)-1].ID
	}
}
