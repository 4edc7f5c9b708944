package preemptive

import (
	"trainyard/internal/place"
)

// Policies lists the policies of this package.
func Policies() []place.Entry {
	return []place.Entry{
		place.Plain("fairshare",
			"equal shares of the yard for all users at each moment; jobs of users who have more are preempted",
			func() place.Policy { return FairShare{} }),
		place.Plain("las", "least attained GPU time first, in three queues (Tiresias 2D-LAS); preemptive",
			func() place.Policy { return Policy{"las", "has used less GPU time", byService, nextFall} }),
		place.Plain("srsf", "least remaining time × GPUs first; preemptive",
			func() place.Policy { return Policy{"srsf", "has less GPU time remaining", byServiceLeft, nil} }),
		place.Plain("srtf", "least remaining time first; preemptive",
			func() place.Policy { return Policy{"srtf", "has less time remaining", byTimeLeft, nil} }),
	}
}
