package lines

import (
	"slices"
	"strings"
)

// The names under which programs tell how far they are, the surest first.
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

// counts are names that are no metrics though they stand beside them.
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

// wrappers are names of inner objects that only say that metrics are there.
var wrappers = []string{"metrics", "metric", "logs", "log", "scalars", "values", "data", "results"}

// metricParts are what the names of metrics have in them. They decide whether a pair of name and
// number in free text is a metric.
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

// metricWords are whole words of which the same is true, between the marks that join words in names.
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

// strongParts are those by which a name is a metric's even on a line that counts nothing.
var strongParts = []string{"loss", "accuracy", "perplexity", "_acc", "ppl"}

// qualifiers are words that stand before a metric's name and belong to it.
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

// stepWords and epochWords are what counts are called in free text.
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

// progressWords are names of counts that are those of the run though they do not say what they count.
var progressWords = []string{"progress", "train", "training"}

// checkWords begin lines that are about a check of the model.
var checkWords = []string{"val", "valid", "validation", "test", "testing", "eval", "evaluation", "dev"}

// wantedWords stand before a metric's name where a number is not measured but wished for.
var wantedWords = []string{"target", "goal", "desired", "wanted", "threshold", "max", "min", "maximum", "minimum"}

// settings are words in names that say how something is measured, not what came out.
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

// nameParts cuts a name at the marks that join words in names.
func nameParts(name string) []string {
	return strings.FieldsFunc(name, func(c rune) bool { return c == '_' || c == '/' || c == '-' || c == '.' || c == ' ' })
}

// IsCount says whether a name is one of steps, epochs, totals or times, which are no metrics.
// Nor is how fast a program is.
func IsCount(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"train/", "eval/"} { // as TensorBoard is told by Hugging Face's Trainer
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

// looksLikeMetric says whether a name is one that metrics have.
func looksLikeMetric(name string) bool {
	name = strings.ToLower(name)
	for _, part := range metricParts {
		if strings.Contains(name, part) {
			return true
		}
	}

	return slices.ContainsFunc(nameParts(name), func(part string) bool { return slices.Contains(metricWords, part) })
}

// surelyMetric says whether a name is a metric's whatever else is on its line.
func surelyMetric(name string) bool {
	for _, part := range strongParts {
		if strings.Contains(name, part) {
			return true
		}
	}

	return name == "acc"
}
