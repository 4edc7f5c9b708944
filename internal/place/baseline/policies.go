package baseline

import (
	"time"

	"trainyard/internal/place"
	"trainyard/internal/queue"
)

// Entry is a policy of this package as it is offered.
type Entry struct {
	Name string // in the configuration
	Rule string // what it does, in one sentence
	New  func() place.Policy
}

// calmAfter is how long running jobs are left alone after some were given other
// numbers, as in the Voda scheduler.
const calmAfter = 30 * time.Second

// Policies lists the policies of this package, by name.
func Policies() []Entry {
	return []Entry{
		elasticEntry("afs-l", "one GPU after the other to the job whose next one shortens completion most, by pairs of lengths and gains (AFS-L)",
			"each GPU goes where it shortens completion most", afsL),
		{"conservative", "in line, and every waiting job has a reserved time that no job behind it delays", func() place.Policy { return Conservative{} }},
		ordered("edf", "the earliest deadline first; the first that cannot start blocks the rest", byDeadline, block),
		ordered("edf-easy", "the earliest deadline first, with EASY backfill", byDeadline, easy),
		{"edl", "the most fulfilled jobs make room, and what is free goes to the least fulfilled (Paddle EDL's autoscaler); room is kept for who keeps coming", func() place.Policy { return EDL() }},
		elasticEntry("elastic-fifo", "by submission each its least, then what is left one GPU at a time in turns",
			"everyone gets the least by submission, then in turns", elasticFIFO),
		elasticEntry("elastic-srjf", "the least for whoever has least time left, then what is left one GPU at a time in turns",
			"who has least time left gets the least first, then all in turns", elasticSRJF),
		elasticEntry("elastic-tiresias", "Tiresias with two queues, compacted when many wait, and what is left to who gains most",
			"who has had least GPU time comes first, and what is left goes where it gains most", elasticTiresias),
		elasticEntry("equal-share", "the same number of GPUs for every job, within what each can use",
			"every job gets the same number", equalShare),
		ordered("f1", "the smallest log10(time) × processors + 870 × log10(submission) first (F1); the first that cannot start blocks the rest", byF1(time.Time{}), block),
		ordered("f1-easy", "the order F1, with EASY backfill", byF1(time.Time{}), easy),
		{"fairshare", "equal parts of the yard for all users at each moment; who has more makes room", func() place.Policy { return FairShare{} }},
		elasticEntry("ffdl", "the numbers of GPUs with the greatest sum of speed-ups (FfDL)",
			"the sum of all speed-ups is greatest so", ffdl),
		{"fifo", "in line (priority, fair share, submission), with EASY backfill", func() place.Policy { return FIFO{} }},
		ordered("fifo-fit", "in line, and whatever fits starts: large jobs may starve", nil, fit),
		ordered("fifo-strict", "in line, and the first that cannot start blocks the rest", nil, block),
		preemptive("las", "whoever has had least GPU time runs, in three queues (Tiresias 2D-LAS); preemptive", "has had less GPU time", byService, nextFall),
		ordered("priority", "the highest priority first, then submission; the first that cannot start blocks the rest", byPriority, block),
		ordered("priority-easy", "the highest priority first, with EASY backfill", byPriority, easy),
		ordered("saf", "the smallest expected time × processors first; the first that cannot start blocks the rest", byArea, block),
		ordered("saf-easy", "the smallest expected time × processors first, with EASY backfill", byArea, easy),
		ordered("sjf", "the shortest expected time first; the first that cannot start blocks the rest", byTime, block),
		ordered("sjf-easy", "the shortest expected time first, with EASY backfill", byTime, easy),
		preemptive("srsf", "whoever has least time × GPUs left runs; preemptive", "has less GPU time left", byServiceLeft, nil),
		preemptive("srtf", "whoever has least time left runs; preemptive", "has less time left", byTimeLeft, nil),
		elasticEntry("tiresias", "least attained service in two queues, each job with the number it wants (Tiresias-L of Voda); preemptive",
			"who has had least GPU time comes first", tiresiasL),
		ordered("unicep", "small jobs that have waited long first: waited / (log2(processors) × time); the first that cannot start blocks the rest", byUNICEP, block),
		ordered("unicep-easy", "the order UNICEP, with EASY backfill", byUNICEP, easy),
		ordered("wfp3", "jobs that have waited long for their length first: (waited / time)³ × processors; the first that cannot start blocks the rest", byWFP3, block),
		ordered("wfp3-easy", "the order WFP3, with EASY backfill", byWFP3, easy),
	}
}

func ordered(name, rule string, by func(*place.View) score, behind mode) Entry {
	return Entry{name, rule, func() place.Policy { return Ordered{name, by, behind} }}
}

func preemptive(name, rule, why string, rank func(time.Time, *queue.Item, *place.Running) (float64, float64), again func(time.Time, *task) time.Duration) Entry {
	return Entry{name, rule, func() place.Policy { return Preemptive{name, why, rank, again} }}
}

func elasticEntry(name, rule, why string, r func(*pool)) Entry {
	return Entry{name, rule, func() place.Policy { return Elastic{name: name, why: why, rule: r, gap: calmAfter} }}
}

// EDL is the autoscaler of Paddle EDL with its defects corrected.
func EDL() Elastic {
	return Elastic{name: "edl", why: edlWhy, rule: edl, gap: calmAfter, eager: true}
}

// EDLAsPublished is the autoscaler of Paddle EDL as it was published: it looks
// every so often, which was half a minute. It is there to be compared with.
func EDLAsPublished(every time.Duration) Elastic {
	return Elastic{name: "edl-as-published", why: edlWhy, rule: edlAsPublished, period: every}
}

const edlWhy = "who has most of what it can use gives, and who has least of it gets"
