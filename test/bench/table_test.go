package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTableInMarkdownHasTheKnownFiguresInOrderAndTheOthersBelow(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "figures.json")

	text := `{"other_figure": 3.5, "start_ms_p50": 12.34, "submit_per_s_sqlite_64": 1234567}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	var out, stderr bytes.Buffer
	if err := run(t.Context(), []string{"-table", path}, &out, &stderr); err != nil {
		t.Fatal(err)
	}

	_, rest, _ := strings.Cut(out.String(), "\n")

	want := "\n| figure | value | target | key |\n| --- | ---: | --- | --- |\n" +
		"| durable submissions, SQLite, 64 clients | 1,234,567 jobs/s | ≥ 5,000 | `submit_per_s_sqlite_64` |\n" +
		"| submission to first line, by the API, median | 12.3 ms | < 30 | `start_ms_p50` |\n" +
		"\nFurther figures of the same run:\n\n| key | value |\n| --- | ---: |\n| `other_figure` | 3.50 |\n"

	if rest != want {
		t.Errorf("table = %q, want %q", rest, want)
	}

	if err := run(t.Context(), []string{"-table", path + ".none"}, &out, &stderr); err == nil {
		t.Error("a file that is not there: no error")
	}
}

func TestGrouped(t *testing.T) {
	t.Parallel()

	for v, want := range map[float64]string{0.5: "0.50", 999: "999", 1000: "1,000", 12345.6: "12,346", 1000001: "1,000,001"} {
		if got := grouped(v); got != want {
			t.Errorf("grouped(%v) = %q, want %q", v, got, want)
		}
	}
}
