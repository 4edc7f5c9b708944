package history

import (
	"slices"
	"strings"
)

// Invocation returns a command as far as it determines how much memory its program needs: with all arguments, numbers
// too, because they set the sizes of batches and models. Left out are spaces and quotes, and the arguments that
// MemoryNeutral names.
func Invocation(command string) string {
	fields := strings.Fields(command)
	kept := make([]string, 0, len(fields))

	for i := 0; i < len(fields); i++ {
		word := strings.Trim(fields[i], `"'`)
		option, _, assigned := strings.Cut(word, "=")

		switch {
		case !assigned && !strings.HasPrefix(word, "-") || !MemoryNeutral(option):
			kept = append(kept, word)
		case !assigned && i+1 < len(fields) && !strings.HasPrefix(fields[i+1], "-"):
			i++ // its value is the next word
		}
	}

	return strings.Join(kept, " ")
}

// MemoryNeutral reports whether an option or a variable of this name says nothing about how much memory a program
// needs: a seed, a learning rate, a number of epochs, the name of an experiment, a place for logs and results.
func MemoryNeutral(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(strings.TrimLeft(name, "-+")), "-", "_")
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		name = name[dot+1:] // trainer.max_epochs
	}

	return slices.Contains(memoryNeutral, name)
}

var memoryNeutral = []string{
	"seed", "random_seed", "manual_seed", "data_seed", "pythonhashseed",
	"lr", "learning_rate", "max_lr", "min_lr", "weight_decay", "wd", "momentum", "warmup_steps", "warmup_ratio",
	"epochs", "num_epochs", "max_epochs", "num_train_epochs", "steps", "num_steps", "max_steps", "train_steps",
	"name", "run_name", "exp", "exp_name", "experiment", "experiment_name", "tag", "tags", "run_id", "trial",
	"out", "out_dir", "outdir", "output", "output_dir", "result_dir", "results_dir", "save_dir", "save_path",
	"log_dir", "logdir", "logging_dir", "ckpt_dir", "checkpoint_dir", "wandb_project", "wandb_name", "wandb_run_group",
}
