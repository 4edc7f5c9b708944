package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/api"
	"trainyard/internal/cli/download"
	"trainyard/internal/cli/exit"
	"trainyard/internal/cli/table"
	"trainyard/internal/fault"
	"trainyard/internal/glob"
	"trainyard/internal/humanize"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// fetchFlags are those of the command fetch.
type fetchFlags struct {
	to    string
	run   string
	rank  int
	list  bool
	force bool
}

func (a *app) fetch() *cobra.Command {
	var flags fetchFlags
	cmd := &cobra.Command{
		Use: "fetch JOB [PATTERN...]", Short: "Fetch the output files of a job",
		Args: exit.Args(1, -1, "job"),
		Long: `Fetch the output files of a job: those that its job file names in outputs. They are kept whenever a run of
the job ends, also when it has failed. Of a file that several runs have left, that of the newest run is fetched.

Other files are taken from the folder of the newest run: while it runs, and after its end as long as the node keeps
the folder. So are the output files of a run that goes on.

A pattern is a path in the working directory: * stands for any text, ** for any folders, and a folder for all in it.
Files are verified, and a download that was interrupted continues where it was. A file that is there already with
other content is not overwritten, unless --force is given.`,
		Example: `  trainyard fetch j7
  trainyard fetch @last --list
  trainyard fetch j7 ckpt/best.pt --to models
  trainyard fetch j7 'runs/**' '*.csv'`,
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("rank") {
				flags.rank = -1
			}

			return a.withClient(func(c *api.Client) error {
				j, err := c.FindJob(cmd.Context(), args[0])
				if err != nil {
					return err
				}

				return a.doFetch(cmd.Context(), c, j, args[1:], &flags)
			})
		},
	}

	cmd.Flags().StringVar(&flags.to, "to", "", "`directory` to write to; default: the id of the job")
	cmd.Flags().StringVar(&flags.run, "run", "", "fetch the files of this `run` only, e.g. j7.1")
	cmd.Flags().IntVar(&flags.rank, "rank", 0, "fetch the files of this `rank` only")
	cmd.Flags().BoolVar(&flags.list, "list", false, "list the files and fetch none")
	cmd.Flags().BoolVar(&flags.force, "force", false, "overwrite files that are there with other content")
	a.OutputFlag(cmd)

	return cmd
}

func (a *app) doFetch(ctx context.Context, c *api.Client, j id.Job, patterns []string, flags *fetchFlags) error {
	for _, p := range patterns {
		if constraint, remedy := glob.Check(p); constraint != "" {
			return fault.New(fault.Invalid, "bad_pattern", "the pattern %s, got %q", constraint, p).WithRemedy("%s", remedy)
		}
	}

	items, err := a.findOutputs(ctx, c, j, patterns, flags)
	if err != nil {
		return err
	}
	if flags.list {
		return a.listOutputs(items)
	}

	to := flags.to
	if to == "" {
		to = string(j)
	}

	progress := a.NewProgress()
	sum, err := download.Fetch(ctx, c.OutputChunk, to, items, download.Options{
		Force: flags.force,
		Progress: func(done, total int64) {
			progress.Set("%s of %s", humanize.Size(done), humanize.Size(total))
		},
	})
	progress.Done()

	if err != nil {
		return err
	}

	return a.Show(fetched{To: to, Files: sum.Written, Bytes: job.Bytes(sum.Bytes), Unchanged: sum.Same}, nil,
		func() error {
			text := fmt.Sprintf("%s, %s, in %s", humanize.Count(sum.Written, "file"), humanize.Size(sum.Bytes), to)
			if sum.Same > 0 {
				text += fmt.Sprintf("; %s there already", humanize.Count(sum.Same, "file"))
			}

			_, err := fmt.Fprintln(a.Stdout, text)

			return err
		})
}

// findOutputs returns the files that are wanted. Of a run that goes on, and of one that has not kept them, they are
// taken from its folder on the node, as long as that is there.
func (a *app) findOutputs(
	ctx context.Context, c *api.Client, j id.Job, patterns []string, flags *fetchFlags,
) ([]download.Item, error) {
	detail, err := c.Job(ctx, j)
	if err != nil {
		return nil, err
	}

	asked := false
	if goesOn(&detail, flags) {
		asked = true
		if found, err := a.ask(ctx, c, &detail, patterns, flags); err != nil || flags.list {
			return found, err
		}
	}

	items, err := a.outputFiles(ctx, c, j, flags)
	if err == nil {
		items, err = matching(j, items, patterns)
	}

	if fault.KindOf(err) != fault.NotFound || asked || detail.Epoch == 0 || len(patterns) == 0 && !flags.list {
		return items, err
	}

	found, askErr := a.ask(ctx, c, &detail, patterns, flags)
	if askErr != nil || flags.list {
		return found, askErr
	}

	items, err = a.outputFiles(ctx, c, j, flags)
	if err != nil {
		return nil, err
	}

	return matching(j, items, patterns)
}

// goesOn reports whether the run that is wanted has not ended, so that its files are newer than those that are kept.
func goesOn(j *api.JobDetail, flags *fetchFlags) bool {
	if j.Epoch == 0 || flags.run != "" && flags.run != string(id.NewRun(j.ID, j.Epoch)) {
		return false
	}

	return slices.ContainsFunc(j.Runs, func(r api.Run) bool { return r.Epoch == j.Epoch && r.State == job.RunRunning })
}

// ask asks the nodes of a run for files from its folder: to keep them, or to list them. Without patterns those of the
// job file are meant, and all if they are only listed.
func (a *app) ask(
	ctx context.Context, c *api.Client, j *api.JobDetail, patterns []string, flags *fetchFlags,
) ([]download.Item, error) {
	in := api.AskOutputs{Run: id.Run(flags.run), Patterns: patterns, List: flags.list}
	if flags.rank >= 0 {
		in.Rank = &flags.rank
	}

	if len(in.Patterns) == 0 {
		var spec struct {
			Outputs []string `json:"outputs"`
		}
		if err := json.Unmarshal(j.Spec, &spec); err != nil {
			return nil, fmt.Errorf("read the job file of %s: %w", j.ID, err)
		}

		in.Patterns = spec.Outputs
		if flags.list {
			in.Patterns = []string{"**"}
		}
	}

	if len(in.Patterns) == 0 {
		return nil, noOutputs(j.ID, "", flags)
	}

	bar := a.NewProgress()
	defer bar.Done()
	bar.Set("waiting for the files from the node")

	for {
		reply, err := c.AskOutputs(ctx, j.ID, in)
		if err != nil {
			return nil, err
		}
		if !reply.Done {
			continue
		}

		bar.Done()

		for _, problem := range reply.Problems {
			a.Note("%s", table.Plain(problem))
		}

		var items []download.Item
		for _, f := range reply.Found {
			items = append(items, download.Item{Run: f.Run, Rank: f.Rank, Path: f.Path, File: api.CheckpointFile{
				Path: f.Path, Size: int64(f.Size), Link: f.Link,
			}})
		}

		if flags.list && len(items) == 0 {
			return nil, noOutputs(j.ID, "", flags)
		}

		return items, nil
	}
}

// fetched is what was fetched, for programs.
type fetched struct {
	To        string    `json:"to"`
	Files     int       `json:"files"`
	Bytes     job.Bytes `json:"bytes"`
	Unchanged int       `json:"unchanged"`
}

// outputFiles returns the output files of a job under the paths that they get.
func (a *app) outputFiles(ctx context.Context, c *api.Client, j id.Job, flags *fetchFlags) ([]download.Item, error) {
	list, err := c.Outputs(ctx, j)
	if err != nil {
		return nil, err
	}

	var sets [][]download.Item
	why := ""

	for i := range list.Outputs {
		set := &list.Outputs[i]
		if flags.run != "" && string(set.Run) != flags.run || flags.rank >= 0 && set.Rank != flags.rank {
			continue
		}

		for _, note := range set.Notes {
			a.Note("%s rank %d: %s", set.Run, set.Rank, table.Plain(note))
		}

		if set.Removed != "" {
			why = set.Removed
			continue
		}

		files, err := c.OutputFiles(ctx, set.Run, set.Rank)
		if err != nil {
			return nil, err
		}

		var items []download.Item
		for _, f := range files.Files {
			items = append(items, download.Item{Run: set.Run, Rank: set.Rank, Path: f.Path, File: f})
		}

		sets = append(sets, items)
	}

	items := arrange(sets)
	if len(items) == 0 {
		return nil, noOutputs(j, why, flags)
	}

	return items, nil
}

// noOutputs says that nothing can be fetched, and what to do.
func noOutputs(j id.Job, removed string, flags *fetchFlags) error {
	of := "job " + string(j)
	if flags.run != "" {
		of = "run " + flags.run
	}

	if flags.rank >= 0 {
		of = fmt.Sprintf("rank %d of %s", flags.rank, of)
	}

	if removed != "" {
		return fault.New(fault.NotFound, "outputs_removed", "the output files of %s were removed: %s", of, removed)
	}

	return fault.New(fault.NotFound, "no_outputs", "no output files of %s are kept", of).
		WithRemedy("name files to take them from the run's folder while it is on its node (trainyard fetch %s --list lists "+
			"them), or let the next run keep them: outputs: [ckpt/best.pt, \"runs/**\"]", j)
}

// arrange gives every file its path. The sets are those of the newest run first, by rank. Of a file that several runs
// have left that of the newest counts; of one that several ranks of a run have with unlike content, those of the later
// ranks get a folder of their own.
func arrange(sets [][]download.Item) []download.Item {
	taken := map[string]*download.Item{}
	var all []download.Item

	for _, set := range sets {
		for i := range set {
			item := set[i]
			if other := taken[item.Path]; other != nil && other.Run == item.Run && !alike(other, &item) {
				item.Path = path.Join("rank-"+strconv.Itoa(item.Rank), item.Path)
			}

			if taken[item.Path] == nil {
				taken[item.Path] = &item
				all = append(all, item)
			}
		}
	}

	slices.SortFunc(all, func(x, y download.Item) int { return strings.Compare(x.Path, y.Path) })

	return all
}

// alike reports whether two files have the same content.
func alike(x, y *download.Item) bool {
	return x.File.Link == y.File.Link && reflect.DeepEqual(x.File.Chunks, y.File.Chunks)
}

// matching returns the files that patterns choose, all if there are none. A pattern that chooses none is a mistake.
func matching(j id.Job, items []download.Item, patterns []string) ([]download.Item, error) {
	if len(patterns) == 0 {
		return items, nil
	}

	var chosen []download.Item
	used := map[string]bool{}

	for i := range items {
		found := false
		for _, p := range patterns {
			if glob.Match(p, items[i].Path) || glob.Match(p, items[i].File.Path) {
				used[p], found = true, true
			}
		}

		if found {
			chosen = append(chosen, items[i])
		}
	}

	for _, p := range patterns {
		if !used[p] {
			return nil, fault.New(fault.NotFound, "no_such_output", "no output file of %s matches %q", j, p).
				WithRemedy("trainyard fetch %s --list lists them", j)
		}
	}

	return chosen, nil
}

// listedOutput is an output file in a list, for programs.
type listedOutput struct {
	Path string    `json:"path"`
	Size job.Bytes `json:"size"`
	Link string    `json:"link,omitempty"`
	Run  id.Run    `json:"run"`
	Rank int       `json:"rank"`
}

func (a *app) listOutputs(items []download.Item) error {
	list := make([]listedOutput, len(items))
	total := int64(0)

	for i := range items {
		f := &items[i]
		list[i] = listedOutput{
			Path: f.Path, Size: job.Bytes(f.File.Size), Link: f.File.Link, Run: f.Run, Rank: f.Rank,
		}
		total += f.File.Size
	}

	return a.Show(struct {
		Files []listedOutput `json:"files"`
	}{list}, nil, func() error {
		t := a.NewTable("PATH", "SIZE", "RUN", "RANK")
		for i := range list {
			name := list[i].Path
			if list[i].Link != "" {
				name += " -> " + list[i].Link
			}

			t.Row(name, size(list[i].Size), string(list[i].Run), strconv.Itoa(list[i].Rank))
		}

		if err := t.Write(a.Stdout); err != nil {
			return err
		}

		a.Note("%s, %s", humanize.Count(len(list), "file"), humanize.Size(total))

		return nil
	})
}
