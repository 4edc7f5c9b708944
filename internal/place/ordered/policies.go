package ordered

import (
	"time"

	"trainyard/internal/place"
)

// Policies lists the policies of this package.
func Policies() []place.Entry {
	f1 := byF1(time.Time{})
	return []place.Entry{
		place.Plain("fifo", "in queue order (priority, fair share, submission), with EASY backfill",
			func() place.Policy { return FIFO{} }),
		place.Plain("conservative", "in queue order; every queued job has a reservation that no job behind it delays",
			func() place.Policy { return Conservative{} }),
		entry("fifo-fit", "in queue order; whatever fits starts, so large jobs may starve", nil, fit),
		entry("fifo-strict", "in queue order; the first job that cannot start blocks the rest", nil, block),

		entry("edf", "earliest deadline first; the first job that cannot start blocks the rest", byDeadline, block),
		entry("edf-easy", "earliest deadline first, with EASY backfill", byDeadline, easy),
		entry("f1", "smallest log10(time) × processors + 870 × log10(submission) first (F1); "+
			"the first job that cannot start blocks the rest", f1, block),
		entry("f1-easy", "the order F1, with EASY backfill", f1, easy),
		entry("priority", "highest priority first, then submission; the first job that cannot start blocks the rest",
			byPriority, block),
		entry("priority-easy", "highest priority first, with EASY backfill", byPriority, easy),
		entry("saf", "smallest expected time × processors first; the first job that cannot start blocks the rest",
			byArea, block),
		entry("saf-easy", "smallest expected time × processors first, with EASY backfill", byArea, easy),
		entry("sjf", "shortest expected time first; the first job that cannot start blocks the rest", byTime, block),
		entry("sjf-easy", "shortest expected time first, with EASY backfill", byTime, easy),
		entry("unicep", "small jobs that have waited long first: waited / (log2(processors) × time); "+
			"the first job that cannot start blocks the rest", byUNICEP, block),
		entry("unicep-easy", "the order UNICEP, with EASY backfill", byUNICEP, easy),
		entry("wfp3", "jobs that have waited long for their length first: (waited / time)³ × processors; "+
			"the first job that cannot start blocks the rest", byWFP3, block),
		entry("wfp3-easy", "the order WFP3, with EASY backfill", byWFP3, easy),
	}
}

func entry(name, rule string, by func(*place.View) score, behind backfillMode) place.Entry {
	return place.Plain(name, rule, func() place.Policy { return Policy{name, by, behind} })
}
