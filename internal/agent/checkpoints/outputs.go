package checkpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"trainyard/internal/api"
	"trainyard/internal/atomicfile"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Outputs are the output files of one rank: those of its working directory that patterns choose.
type Outputs struct {
	Run         id.Run
	UID         id.UID
	Rank        int
	Work        string // the working directory
	Checkpoint  string // path in it of the link to the checkpoint directory, "" if there is none
	Checkpoints string // the checkpoint directory
	Patterns    []string
	Request     string // that this answers, "" if the rank has ended
}

// Keeper uploads the output files of one rank, once, like a checkpoint.
type Keeper struct {
	Upload

	all *Checkpoints
	set Outputs
}

// keptMark is what is remembered of a rank whose output files are kept, or cannot be.
type keptMark struct {
	Problem string `json:"problem,omitempty"`
}

// Keep starts to upload the output files of a rank that has ended. Of a rank with which an earlier agent process was
// done it does nothing.
func (c *Checkpoints) Keep(set Outputs) *Keeper {
	k := newKeeper(c, set)

	if mark, ok := c.keptMark(set.Run, set.Rank); ok {
		k.finished = true
		if mark.Problem != "" {
			k.problem = errors.New(mark.Problem)
		}
	}

	k.begin(k.run)

	return k
}

func newKeeper(c *Checkpoints, set Outputs) *Keeper {
	return &Keeper{Upload: Upload{opt: &c.opt, held: c.opt.Clock.Now()}, all: c, set: set}
}

// Send uploads files of a rank that somebody asked for, which may still run.
func (c *Checkpoints) Send(ctx context.Context, set Outputs) error {
	k := newKeeper(c, set)

	for changes := 0; ; changes++ {
		err := k.keep(ctx, changes >= steadyTries)
		if !errors.Is(err, errChanged) || changes > steadyTries {
			return err
		}
		if !clock.Sleep(ctx, c.opt.Every/4) {
			return ctx.Err()
		}
	}
}

// List lists the files of a rank that patterns choose.
func List(set Outputs) ([]api.OutputFile, []string, error) {
	v, err := openView(&set)
	if err != nil {
		return nil, nil, err
	}

	defer func() { _ = v.close() }() // it was only read

	list, notes, err := v.choose(set.Patterns)
	if err != nil {
		return nil, nil, err
	}

	if len(list) > api.MaxFoundOutputs {
		notes = append(notes, fmt.Sprintf("%d more files are not listed", len(list)-api.MaxFoundOutputs))
		list = list[:api.MaxFoundOutputs]
	}

	found := make([]api.OutputFile, len(list))
	for i := range list {
		found[i] = api.OutputFile{Path: list[i].name, Size: job.Bytes(list[i].file.size), Link: list[i].file.link}
	}

	return found, notes, nil
}

// steadyTries is how often files that change while they are read are read again before they are taken as they are: a
// process that the program left behind may still write.
const steadyTries = 3

func (k *Keeper) run(ctx context.Context) {
	if done, _ := k.Finished(); done {
		return // an earlier agent process was
	}

	for failures, changes := 0, 0; ctx.Err() == nil; {
		err := k.keep(ctx, changes >= steadyTries)

		switch {
		case ctx.Err() != nil:
			return
		case err == nil, refused(err):
			k.finish(err)
			return
		case errors.Is(err, errChanged):
			changes++
		default:
			failures++
			k.all.opt.Problem(outputsOperation(k.set.Run), err)
		}

		if k.stuck() {
			k.finish(fmt.Errorf("no progress for %s: %w", job.Duration(k.all.opt.Patience), err))
			return
		}

		clock.Sleep(ctx, max(k.all.opt.Every/4, job.Backoff(failures, 0, maxRetryWait)))
	}
}

// outputsOperation names the upload of the output files of a run in reports of problems.
func outputsOperation(run id.Run) string { return "upload of output files of " + string(run) }

// keep uploads the files and enters them in the catalogue. growing takes files as they are that are being written.
func (k *Keeper) keep(ctx context.Context, growing bool) error {
	v, err := openView(&k.set)
	if err != nil {
		return err
	}

	defer func() { _ = v.close() }() // it was only read

	list, notes, err := v.choose(k.set.Patterns)
	if err != nil {
		return err
	}

	var size int64
	for i := range list {
		size += list[i].file.size
	}

	progress := newTransfer(k.all.opt.Clock, size, "keeping output files")
	k.show(progress)
	defer k.show(nil)

	ctx, halt := k.bounded(ctx, progress)
	defer halt()

	in := api.NewOutputs{
		Run: k.set.Run, UID: k.set.UID, Rank: k.set.Rank, Bytes: job.Bytes(size), Notes: notes, Request: k.set.Request,
	}

	// Asked before anything is uploaded: what is too much would be removed again.
	if err := k.enter(ctx, in, progress); err != nil {
		return err
	}

	manifest, err := k.upload(ctx, v, list, growing, progress)
	if err != nil {
		return err
	}

	in.Manifest = manifest

	if err := k.enter(ctx, in, progress); err != nil {
		return err
	}

	k.all.opt.Log.Info("output files kept", "run", k.set.Run, "rank", k.set.Rank, "files", len(list), "size", in.Bytes,
		"uploaded", job.Bytes(progress.sent()))

	return nil
}

func (k *Keeper) enter(ctx context.Context, in api.NewOutputs, progress *transfer) error {
	err := patiently(ctx, progress, func() error { return k.all.opt.Yard().AddOutputs(ctx, in) })
	if err != nil {
		return fmt.Errorf("enter the output files of %s: %w", in.Run, err)
	}

	return nil
}

// upload uploads the files and their manifest, and returns its digest.
func (k *Keeper) upload(
	ctx context.Context, v *view, list []choice, growing bool, progress *transfer,
) (string, error) {
	m := api.CheckpointManifest{Files: make([]api.CheckpointFile, len(list))}

	for _, on := range v.mounts {
		var files []file
		var places []int
		for i := range list {
			if list[i].on == on {
				files, places = append(files, list[i].file), append(places, i)
			}
		}

		p := &packer{
			store: k.all.store, gear: k.all.gear, run: k.set.Run, tree: on.tree, progress: progress, single: true,
			growing: growing, cached: func(*file) ([]api.CheckpointChunk, bool) { return nil, false },
		}

		all, err := p.pack(ctx, files)
		if err != nil {
			return "", err
		}

		for i := range all {
			m.Files[places[i]] = all[i].entry()
			m.Files[places[i]].Path = list[places[i]].name
		}
	}

	text, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("encode the list of output files: %w", err)
	}

	sheet := piece{text, &api.CheckpointChunk{Digest: digestOf(text), Size: int64(len(text))}}
	if err := k.all.store.upload(ctx, k.set.Run, []piece{sheet}, progress); err != nil {
		return "", err
	}

	return sheet.chunk.Digest, k.all.store.folder.sync(ctx, progress)
}

// finish records that the files are kept, or cannot be.
func (k *Keeper) finish(problem error) {
	mark := keptMark{}
	if problem != nil {
		mark.Problem = problem.Error()
		k.all.opt.Log.Warn("output files of a run are not kept", "run", k.set.Run, "error", problem)
	}

	err := k.all.writeKeptMark(k.set.Run, k.set.Rank, mark)
	k.all.opt.Problem(outputsOperation(k.set.Run), err)

	k.settle(problem)
}

func (c *Checkpoints) keptPath(run id.Run, rank int) string {
	return filepath.Join(c.opt.Dir, string(run)+"."+strconv.Itoa(rank)+".outputs.json")
}

// keptMark reads what is remembered of a rank. A mark that cannot be read costs another upload, not more.
func (c *Checkpoints) keptMark(run id.Run, rank int) (mark keptMark, ok bool) {
	text, err := os.ReadFile(c.keptPath(run, rank))
	if err == nil {
		err = json.Unmarshal(text, &mark)
	}

	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.opt.Log.Warn("cannot read whether output files are kept", "run", run, "error", err)
	}

	return mark, err == nil
}

func (c *Checkpoints) writeKeptMark(run id.Run, rank int, mark keptMark) error {
	mark.Problem = strings.ToValidUTF8(mark.Problem, "")

	text, err := json.Marshal(mark)
	if err == nil {
		err = os.MkdirAll(c.opt.Dir, 0o700)
	}

	if err == nil {
		err = atomicfile.Write(c.keptPath(run, rank), text, atomicfile.SingleWriter(), atomicfile.Volatile())
	}

	if err != nil {
		return fmt.Errorf("remember that the output files are kept: %w", err)
	}

	return nil
}
