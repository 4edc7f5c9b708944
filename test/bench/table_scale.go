package main

// scaleRows are the figures of the page docs/explanation/benchmarks-scale.md that have an aim or are compared, in its
// order. The others are printed below them.
func scaleRows() []row {
	return []row{
		{"list_pages_per_s", "pages of 50 jobs for 4 clients, beside submissions", "pages/s", "≥ 1,000"},
		{"list_page_ms", "one such page, median", "ms", ""},
		{"list_page_p99_ms", "one such page, p99", "ms", ""},
		{"submit_ms", "submission, 20 a second, alone, median", "ms", ""},
		{"submit_p99_ms", "submission, 20 a second, alone, p99", "ms", ""},
		{"submit_ms_under_lists", "submission while 4 clients list jobs, median", "ms", ""},
		{"submit_p99_ms_under_lists", "submission while 4 clients list jobs, p99", "ms", ""},
		{"submit_p50_ratio_under_lists", "ratio of the medians", "times", "≤ 1.2"},
		{"submit_16_per_s", "submissions, 16 clients", "jobs/s", ""},
		{"submit_16_per_s_under_lists", "submissions, 16 clients, while 4 list jobs", "jobs/s", ""},
		{"usage_month_ms", "usage of a month, median", "ms", "< 200"},
		{"usage_month_p99_ms", "usage of a month, p99", "ms", ""},
		{"usage_user_ms", "usage of a month of one researcher, median", "ms", "< 50"},
		{"usage_user_p99_ms", "usage of a month of one researcher, p99", "ms", ""},
		{"follow_500_p99_ms", "500 followers of a log of 1,000 lines/s, delay, p99", "ms", "< 300"},
		{"follow_500_ms", "the same, median", "ms", ""},
		{"follow_500_received_pct", "the same, share of the lines received", "%", ""},
		{"events_500_p99_ms", "500 followers of 50 events/s, delay, p99", "ms", ""},
		{"events_500_ms", "the same, median", "ms", ""},
		{"free_to_start_ms_p50", "free node to its next run, `rules`, median", "ms", "< 25"},
		{"free_to_start_ms_p50_fifo", "the same, `fifo`", "ms", ""},
		{"busy_round_ms", "round meanwhile, `rules`, mean", "ms", ""},
		{"busy_round_ms_fifo", "the same, `fifo`", "ms", ""},
		{"backup_s", "backup of the running yard, verified by restoring it", "s", "seconds"},
		{"restore_s", "restoring it", "s", ""},
		{"hyperqueue_jobs_per_s", "HyperQueue, separate jobs of `true`, not durable", "jobs/s", ""},
		{"ahead_short", "ratio of our separate jobs of `true` to HyperQueue's", "times", ""},
	}
}
