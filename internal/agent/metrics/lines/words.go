package lines

import (
	"slices"
	"strings"
)

// Names under which programs report their progress, the most reliable first.
var (
	stepNames = []string{
		"global_step",
		"globalstep",
		"current_steps",
		"current_step",
		"_step",
		"step",
		"steps",
		"iteration",
		"iter",
		"iters",
		"itr",
		"num_updates",
		"update",
		"trainer/global_step",
		"timesteps",
		"total_timesteps",
	}
	totalNames = []string{
		"total_steps",
		"max_steps",
		"num_steps",
		"total_iterations",
		"total_iters",
		"max_iters",
		"num_iterations",
		"total",
	}
	epochNames = []string{"epoch", "current_epoch", "epochs_trained"}
	timeNames  = []string{"_timestamp", "timestamp", "wall_time", "walltime", "unix_time", "time", "ts", "at"}
)

// counts are names that stand beside metrics but are not metrics.
var counts = []string{
	"percentage",
	"percent",
	"progress",
	"elapsed",
	"elapsed_time",
	"remaining",
	"remaining_time",
	"eta",
	"_runtime",
	"runtime",
	"total_epochs",
	"num_epochs",
	"max_epochs",
	"epochs",
	"v_num",
	"pid",
	"rank",
	"local_rank",
	"lineno",
	"line",
	"level",
	"seed",
	"batch",
	"batch_idx",
	"num_input_tokens_seen",
	"total_flos",
}

// wrappers are names of inner objects that say only that they contain metrics.
var wrappers = []string{"metrics", "metric", "logs", "log", "scalars", "values", "data", "results"}

// metricParts are substrings of the names of metrics. They decide whether a pair of name and number
// in free text is a metric.
var metricParts = []string{
	"loss",
	"accuracy",
	"perplexity",
	"error",
	"reward",
	"score",
	"bleu",
	"rouge",
	"precision",
	"recall",
	"grad_norm",
	"gradnorm",
	"learning_rate",
	"elbo",
	"likelihood",
	"entropy",
	"dice",
	"return",
}

// metricWords are the same as whole words, between the separators within a name.
var metricWords = []string{
	"acc",
	"err",
	"ppl",
	"mse",
	"mae",
	"rmse",
	"nll",
	"kl",
	"f1",
	"auc",
	"auroc",
	"map",
	"ap",
	"iou",
	"miou",
	"wer",
	"cer",
	"psnr",
	"ssim",
	"fid",
	"bpc",
	"bpb",
	"lr",
	"r2",
	"mrr",
	"ndcg",
	"top1",
	"top5",
	"acc1",
	"acc5",
	"acc@1",
	"acc@5",
	"mfu",
	"ce",
	"mape",
	"gnorm",
	"objective",
}

// strongParts are substrings that identify a metric even on a line without a step count.
var strongParts = []string{"loss", "accuracy", "perplexity", "_acc", "ppl"}

// qualifiers are words before the name of a metric that belong to it.
var qualifiers = []string{
	"train",
	"training",
	"val",
	"valid",
	"validation",
	"test",
	"eval",
	"evaluation",
	"dev",
	"avg",
	"average",
	"mean",
	"running",
	"best",
	"smoothed",
	"total",
}

// stepWords and epochWords are the names of counts in free text.
var (
	stepWords = []string{
		"step",
		"steps",
		"iter",
		"iters",
		"iteration",
		"iterations",
		"it",
		"itr",
		"batch",
		"batches",
		"update",
		"updates",
		"global_step",
		"minibatch",
		"num_updates",
	}
	epochWords = []string{"epoch", "epochs", "ep"}
)

// progressWords are names of counts that count the steps of the run although they do not say so.
var progressWords = []string{"progress", "train", "training"}

// checkWords start lines about a validation or test of the model.
var checkWords = []string{"val", "valid", "validation", "test", "testing", "eval", "evaluation", "dev"}

// wantedWords before the name of a metric say that the number is a goal, not a measurement.
var wantedWords = []string{"target", "goal", "desired", "wanted", "threshold", "max", "min", "maximum", "minimum"}

// settings are words in names that say how something is measured, not the result.
var settings = []string{
	"fn",
	"func",
	"function",
	"weight",
	"weights",
	"scale",
	"coef",
	"coeff",
	"factor",
	"threshold",
	"target",
	"type",
}

// isSetting reports whether a name is that of a setting, such as loss_scale.
func isSetting(name string) bool {
	return slices.ContainsFunc(nameParts(name), func(part string) bool { return slices.Contains(settings, part) })
}

// nameParts splits a name at the separators between its words.
func nameParts(name string) []string {
	return strings.FieldsFunc(name, func(c rune) bool { return c == '_' || c == '/' || c == '-' || c == '.' || c == ' ' })
}

// IsCount reports whether a name is that of a step, epoch, total, time or speed of the program,
// none of which is a metric.
func IsCount(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"train/", "eval/"} { // the prefixes of Hugging Face's Trainer in TensorBoard
		name = strings.TrimPrefix(name, part)
	}

	for _, list := range [][]string{counts, stepNames, totalNames, epochNames, timeNames} {
		if slices.Contains(list, name) {
			return true
		}
	}

	return strings.HasSuffix(name, "_per_second") || strings.HasSuffix(name, "runtime")
}

func isWrapper(name string) bool { return slices.Contains(wrappers, strings.ToLower(name)) }

// looksLikeMetric reports whether a name looks like that of a metric.
func looksLikeMetric(name string) bool {
	name = strings.ToLower(name)
	for _, part := range metricParts {
		if strings.Contains(name, part) {
			return true
		}
	}

	return slices.ContainsFunc(nameParts(name), func(part string) bool { return slices.Contains(metricWords, part) })
}

// surelyMetric reports whether a name is that of a metric, whatever else is on its line.
func surelyMetric(name string) bool {
	for _, part := range strongParts {
		if strings.Contains(name, part) {
			return true
		}
	}

	return name == "acc"
}
