package history

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Arguments returns the arguments of a command that are positive numbers: by the name of their option
// ("--max-epochs 10" and "trainer.max_epochs=10" are both max_epochs), or by their place among the numbers
// without a name ("#1").
func Arguments(command string) map[string]float64 {
	if len(command) > maxName {
		command = command[:maxName]
	}

	var all map[string]float64

	add := func(name, text string) {
		v, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v <= 0 {
			return
		}

		if all == nil {
			all = map[string]float64{}
		}

		if _, repeated := all[name]; !repeated {
			all[name] = v
		}
	}

	place, option := 0, ""
	for field := range strings.FieldsSeq(command) {
		word := strings.Trim(field, `"';`)
		name, value, assigned := strings.Cut(word, "=")

		switch {
		case assigned:
			add(OptionName(name), value)
			option = ""
		case strings.HasPrefix(word, "-") && !numeric(word):
			option = OptionName(word)
		case option != "":
			add(option, word)
			option = ""
		case numeric(word):
			place++
			add(fmt.Sprintf("#%d", place), word)
		}
	}

	return all
}

// OptionName returns the name of an option as programs differ least in writing it: max_epochs for --max-epochs and
// for trainer.max_epochs.
func OptionName(option string) string {
	name := strings.ReplaceAll(strings.ToLower(strings.TrimLeft(option, "-+")), "-", "_")

	return name[strings.LastIndexByte(name, '.')+1:]
}

// AmountNames are the names under which programs take how many steps or epochs they are to do, the most telling first.
var AmountNames = []string{
	"max_steps", "total_steps", "num_steps", "train_steps", "steps", "max_iters", "iterations", "iters",
	"num_train_epochs", "epochs", "max_epochs", "num_epochs", "num_iterations",
}

// DurationNeutral reports whether a number of this name says nothing about how long a program takes: a seed, a
// port, the number of an experiment.
func DurationNeutral(name string) bool { return slices.Contains(durationNeutral, name) }

var durationNeutral = []string{
	"seed", "random_seed", "manual_seed", "data_seed", "pythonhashseed", "port", "master_port", "rank", "local_rank",
	"device", "gpu", "run", "run_id", "trial", "exp", "experiment", "fold", "lr", "learning_rate", "weight_decay", "wd",
	"momentum", "dropout", "cuda_visible_devices",
}
