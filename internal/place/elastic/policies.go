package elastic

import (
	"time"

	"trainyard/internal/place"
)

// cooldown is how long running jobs keep their number of GPUs after some were changed, as in
// the Voda scheduler.
const cooldown = 30 * time.Second

// Policies lists the policies of this package.
func Policies() []place.Entry {
	return []place.Entry{
		entry("afs-l", "elastic: one GPU at a time to the job whose completion it shortens most (AFS-L)",
			"each GPU goes where it shortens completion most", afsL),
		place.Plain(
			"edl",
			"elastic: the best-served jobs shrink and the worst-served grow (Paddle EDL's autoscaler, corrected)",
			func() place.Policy { return EDL() },
		),
		entry("elastic-fifo", "elastic: the minimum for each job by submission, then one GPU at a time in turn",
			"minimum for each job by submission, then one GPU at a time in turn", elasticFIFO),
		entry("elastic-srjf",
			"elastic: the minimum for the jobs with least time remaining, then one GPU at a time in turn",
			"minimum for the jobs with least time remaining, then one GPU at a time in turn", elasticSRJF),
		entry("elastic-tiresias",
			"elastic: Tiresias with two queues, compacted when many are queued; the rest goes where it gains most",
			"jobs with the least GPU time so far come first, and the rest goes where it gains most", elasticTiresias),
		entry("equal-share", "elastic: the same number of GPUs for every job, within what each can use",
			"every job gets the same number of GPUs", equalShare),
		entry("ffdl", "elastic: the numbers of GPUs with the greatest sum of speed-ups (FfDL)",
			"the sum of all speed-ups is greatest", ffdl),
		entry(
			"tiresias",
			"least attained service in two queues, each job with the number it asked for (Tiresias-L of Voda); preemptive",
			"jobs with the least GPU time so far come first",
			tiresiasL,
		),
	}
}

func entry(name, rule, why string, r func(*pool)) place.Entry {
	return place.Plain(name, rule, func() place.Policy {
		return Policy{name: name, why: why, rule: r, cooldown: cooldown}
	})
}

// EDL is the autoscaler of Paddle EDL with its defects corrected.
func EDL() Policy {
	return Policy{name: "edl", why: edlWhy, rule: edl, cooldown: cooldown, reactive: true}
}

// EDLAsPublished is the autoscaler of Paddle EDL as it was published, for comparison: it runs once
// per period, which was half a minute.
func EDLAsPublished(every time.Duration) Policy {
	return Policy{name: "edl-as-published", why: edlWhy, rule: edlAsPublished, period: every}
}

const edlWhy = "the best-served jobs shrink and the worst-served grow"
