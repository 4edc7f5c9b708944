package repeat

import (
	"fmt"
	"maps"
	"strings"

	"trainyard/internal/forecast/history"
)

// keysOf returns what jobs that are alike share at each level, "" where too little is known of the job.
func keysOf(f *history.Features) [numLevels]string {
	name, program := history.PlainName(f.Name), history.ProgramOf(f.Command)

	script := name
	if script == "" {
		script = "of " + f.Owner // scripts with the same file name are not the same script
	}

	return [numLevels]string{
		SameJob:     join(f.Identity, f.Owner),
		SameCommand: join(strings.Join(strings.Fields(f.Command), " "), f.Owner, name, fmt.Sprint(f.GPUs)),
		SameProgram: join(program.Words, f.Owner, name),
		SameScript:  join(program.Name, script),
		SameName:    join(name),
	}
}

// join joins the parts of a key, of which the first must be known.
func join(first string, rest ...string) string {
	if first == "" {
		return ""
	}

	return first + "\x00" + strings.Join(rest, "\x00")
}

// arguments returns the numbers that tell runs of one program apart, by name: those in its command and those among its
// parameters. Numbers that say nothing of durations are left out.
func arguments(f *history.Features) map[string]float64 {
	all := history.Arguments(f.Command)
	if all == nil {
		all = map[string]float64{}
	}

	maps.Copy(all, f.Hyper)

	work := f.Amount
	for _, name := range history.AmountNames {
		if v := all[name]; work <= 0 && v > 0 {
			work = v
		}

		delete(all, name)
	}

	all[amount] = work

	if f.Batch > 0 {
		all["batch"] = f.Batch
	}

	if f.GPUs > 0 {
		all["gpus"] = f.GPUs
	}

	maps.DeleteFunc(all, func(name string, v float64) bool { return v <= 0 || history.DurationNeutral(name) })

	return all
}

// amount is the argument that durations are taken to be proportional to until past jobs say otherwise.
const amount = "amount"
