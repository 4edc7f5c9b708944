package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/table"
	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// sharers names the jobs that share a GPU: "j1 50%, j2 25%".
func sharers(list []api.GPUShare) string {
	names := make([]string, len(list))
	for i := range list {
		names[i] = string(list[i].Job) + " " + humanize.Percent(list[i].Share)
	}

	return strings.Join(names, ", ")
}

// shareTable lists who shares the GPUs of a node, and what each gets.
func (a *app) shareTable(n *api.Node) *table.Table {
	t := a.NewTable("SHARED GPU", "JOB", "OWNER", "SHARE", "GETS", "WANTS", "CLASS", "LIMIT", "MEMORY", "MODE")

	for i := range n.GPUs {
		for _, s := range n.GPUs[i].Shares {
			t.Cells(append([]table.Cell{{Text: strconv.Itoa(n.GPUs[i].Index)}}, shareCells(&s)...)...)
		}
	}

	return t
}

// shareCells writes the part of a GPU that a job has.
func shareCells(s *api.GPUShare) []table.Cell {
	gets, wants, mode, memory, limit := unknown, unknown, unknown, "", ""
	if s.Memory > 0 {
		memory = humanize.Size(s.Memory)
	}

	color := table.NoColor

	if u := s.Use; u != nil {
		mode = u.Mode
		if mode != job.ShareModeMPS {
			gets, wants = humanize.Percent(u.Got), humanize.Percent(u.Wanted)
		}

		memory = strings.TrimSuffix(humanize.Size(u.Memory)+" of "+memory, " of ")

		if u.ShortSince != nil {
			color = table.Yellow
		}
	}

	if s.Limit > 0 {
		limit = humanize.Percent(s.Limit)
	}

	return []table.Cell{
		{Text: string(s.Job)}, {Text: string(s.Owner)}, {Text: humanize.Percent(s.Share)}, {Text: gets, Color: color},
		{Text: wants}, {Text: string(s.Class)}, {Text: limit}, {Text: memory}, {Text: mode},
	}
}

// jobShare writes the part of a GPU that a job has, and who has the rest.
func (a *app) jobShare(s *api.JobShare) error {
	if s == nil {
		return nil
	}

	if _, err := fmt.Fprintf(a.Stdout, "\nShares GPU %d of %s%s:\n", s.GPU, s.Node, remark(s, a.Clock.Now())); err != nil {
		return err
	}

	t := a.NewTable("JOB", "OWNER", "SHARE", "GETS", "WANTS", "CLASS", "LIMIT", "MEMORY", "MODE")
	t.Cells(shareCells(&s.GPUShare)...)

	for i := range s.Beside {
		t.Cells(shareCells(&s.Beside[i])...)
	}

	return t.Write(a.Stdout)
}

// remark says that a job gets less than its share, or is not held to it; "" if neither is so.
func remark(s *api.JobShare, now time.Time) string {
	switch u := s.Use; {
	case u == nil:
		return ""
	case u.Bypassed > 0:
		return ", and is not held to its share: " + humanize.Count(u.Bypassed, "process") +
			" without the library that divides it"
	case u.ShortSince != nil:
		return ", and gets less than its share since " + stamp(u.ShortSince, now)
	}

	return ""
}

// gpuSharing says how a node divides its GPUs among jobs.
func gpuSharing(n *api.Node) string {
	text := orNone(n.Shares != "", "yes, with version "+n.Shares+" of the library")
	if n.MPS {
		text += ", and MPS"
	}

	return text
}
