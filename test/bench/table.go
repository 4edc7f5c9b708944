package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"trainyard/test/bench/report"
)

// row says in words what a figure is, and what it should be.
type row struct{ name, words, unit, aim string }

// rows are the figures of the page docs/explanation/benchmarks.md, in its order.
func rows() []row {
	return []row{
		{"submit_per_s_sqlite_1", "durable submissions, SQLite, 1 client", "jobs/s", ""},
		{"submit_per_s_sqlite_64", "durable submissions, SQLite, 64 clients", "jobs/s", "≥ 5,000"},
		{"submit_per_s_postgres_1", "durable submissions, PostgreSQL, 1 client", "jobs/s", ""},
		{"submit_per_s_postgres_64", "durable submissions, PostgreSQL, 64 clients", "jobs/s", ""},
		{"submit_keyed_per_s_sqlite_1", "the same with an idempotency key, SQLite, 1 client", "jobs/s", ""},
		{"submit_keyed_per_s_sqlite_64", "the same with an idempotency key, SQLite, 64 clients", "jobs/s", ""},
		{"slurm_submit_per_s_1", "Slurm, not durable at the response, 1 client", "jobs/s", ""},
		{"slurm_submit_per_s_64", "Slurm, not durable at the response, 64 clients", "jobs/s", ""},
		{"ahead_submit_1", "ratio to Slurm, 1 client", "times", "> 1"},
		{"ahead_submit_64", "ratio to Slurm, 64 clients", "times", "> 1"},
		{"start_ms_p50", "submission to first line, by the API, median", "ms", "< 30"},
		{"start_ms_p99", "submission to first line, by the API, p99", "ms", ""},
		{"start_isolated_ms_p50", "the same with jobs that run as users of their own, median", "ms", "< 30"},
		{"start_isolated_ms_p99", "the same with jobs that run as users of their own, p99", "ms", ""},
		{"cli_start_ms_p50", "submission to first line, by `trainyard submit`, median", "ms", ""},
		{"cli_start_ms_p99", "submission to first line, by `trainyard submit`, p99", "ms", ""},
		{"slurm_start_ms_p50", "Slurm, the better of sbatch and REST, median", "ms", ""},
		{"slurm_start_ms_p99", "Slurm, the better of sbatch and REST, p99", "ms", ""},
		{"slurm_srun_start_ms_p50", "Slurm, srun (not queued), median", "ms", ""},
		{"ahead_start_p50", "ratio to Slurm, median", "times", "> 1"},
		{"ahead_start_p99", "ratio to Slurm, p99", "times", "> 1"},
		{"short_jobs_per_s", "separate jobs of `true` on one node, as fast as they go", "jobs/s", "≥ 150"},
		{"short_isolated_jobs_per_s", "the same with jobs that run as users of their own", "jobs/s", ""},
		{"short_server_cpu_ms", "server's CPU for such a job", "ms", ""},
		{"short_agent_cpu_ms", "agent's CPU for such a job", "ms", ""},
		{"short_children_cpu_ms", "CPU of supervisor and shell for such a job", "ms", ""},
		{"messages_per_s", "yardmaster messages, 100 nodes, batches of 64, `rules`", "messages/s", "≥ 300,000"},
		{"messages_per_s_fifo", "the same, `fifo`", "messages/s", ""},
		{"messages_per_s_1k_nodes", "yardmaster messages, 1,000 nodes, batches of 64, `rules`", "messages/s", ""},
		{"messages_per_s_1k_nodes_fifo", "the same, `fifo`", "messages/s", ""},
		{"messages_per_s_1k_nodes_batch_512", "yardmaster messages, 1,000 nodes, batches of 512, `rules`", "messages/s", ""},
		{"messages_per_s_1k_nodes_batch_512_fifo", "the same, `fifo`", "messages/s", ""},
		{"messages_per_s_jobs_only", "yardmaster messages, no heartbeats, batches of 63, `rules`", "messages/s", ""},
		{"messages_per_s_jobs_only_fifo", "the same, `fifo`", "messages/s", ""},
		{"round_full_ms_1k_10k", "full round, 1,000 nodes × 10,000 jobs, `rules`", "ms", ""},
		{"round_full_ms_1k_10k_fifo", "the same, `fifo`", "ms", ""},
		{"round_full_ms_1k_100k", "full round, 1,000 nodes × 100,000 jobs, `rules`", "ms", ""},
		{"round_full_ms_1k_100k_fifo", "the same, `fifo`", "ms", ""},
		{"round_full_ms_10k_10k", "full round, 10,000 nodes × 10,000 jobs, `rules`", "ms", ""},
		{"round_full_ms_10k_10k_fifo", "the same, `fifo`", "ms", ""},
		{"round_full_ms_10k_100k", "full round, 10,000 nodes × 100,000 jobs, `rules`", "ms", "< 500"},
		{"round_full_ms_10k_100k_fifo", "the same, `fifo`", "ms", ""},
		{"round_incremental_ms_1k_10k", "incremental round, 1,000 nodes × 10,000 jobs, `rules`", "ms", ""},
		{"round_incremental_ms_1k_10k_fifo", "the same, `fifo`", "ms", ""},
		{"round_incremental_ms_1k_100k", "incremental round, 1,000 nodes × 100,000 jobs, `rules`", "ms", ""},
		{"round_incremental_ms_1k_100k_fifo", "the same, `fifo`", "ms", ""},
		{"round_incremental_ms_10k_10k", "incremental round, 10,000 nodes × 10,000 jobs, `rules`", "ms", ""},
		{"round_incremental_ms_10k_10k_fifo", "the same, `fifo`", "ms", ""},
		{"round_incremental_ms_10k_100k", "incremental round, 10,000 nodes × 100,000 jobs, `rules`", "ms", "< 5"},
		{"round_incremental_ms_10k_100k_fifo", "the same, `fifo`", "ms", ""},
		{"bytes_per_queued_job", "memory of a queued job", "bytes", ""},
		{"restart_s_1m", "restart, 1,000,000 finished and 100,000 queued jobs, SQLite", "s", "< 5"},
		{"restart_s_1m_postgres", "restart, 1,000,000 finished and 100,000 queued jobs, PostgreSQL", "s", "< 5"},
		{"agents_1000_cpu_pct", "server's CPU with 1,000 idle agents, of one core", "%", ""},
		{"agents_1000_rss_mib", "server's memory with 1,000 idle agents", "MiB", "< 300"},
	}
}

// printMarkdown prints the figures of a file as the table of docs/explanation/benchmarks.md. All are from one run.
func printMarkdown(w io.Writer, path string) error {
	r, err := report.Read(path)
	if err != nil {
		return err
	}

	numbers := r.Figures
	lines := []string{r.Describe(), "", "| figure | value | target | key |", "| --- | ---: | --- | --- |"}

	for _, r := range append(rows(), scaleRows()...) {
		if v, ok := numbers[r.name]; ok {
			lines = append(lines, fmt.Sprintf("| %s | %s %s | %s | `%s` |", r.words, grouped(v), r.unit, r.aim, r.name))
			delete(numbers, r.name)
		}
	}

	if len(numbers) > 0 {
		lines = append(lines, "", "Further figures of the same run:", "", "| key | value |", "| --- | ---: |")
		for _, name := range slices.Sorted(maps.Keys(numbers)) {
			lines = append(lines, fmt.Sprintf("| `%s` | %s |", name, grouped(numbers[name])))
		}
	}

	for _, line := range lines {
		if err := writeLine(w, line); err != nil {
			return err
		}
	}

	return nil
}

// grouped writes a number as readable does, with commas between thousands.
func grouped(v float64) string {
	text := readable(v)
	if v < 1000 {
		return text
	}

	n, err := strconv.Atoi(text)
	if err != nil {
		return text
	}

	out := fmt.Sprintf("%03d", n%1000)
	for n /= 1000; n >= 1000; n /= 1000 {
		out = fmt.Sprintf("%03d,%s", n%1000, out)
	}

	return fmt.Sprintf("%d,%s", n, out)
}
