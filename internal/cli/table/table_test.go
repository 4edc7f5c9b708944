package table

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/job"
)

func TestAmounts(t *testing.T) {
	t.Parallel()

	for got, want := range map[string]string{
		GPUs(8, "NVIDIA A100-SXM4-80GB", 80<<30, false):                      "8× A100 80GB",
		GPUs(1, "NVIDIA H100 80GB HBM3", 81559<<20, true):                    "1× H100 80GB (fake)",
		GPUs(2, "NVIDIA GeForce RTX 4090", 24564<<20, false):                 "2× RTX 4090 24GB",
		GPUs(4, "Tesla V100-PCIE-32GB", job.Bytes(32510)<<20, false):         "4× V100 32GB",
		GPUs(1, "Tesla", 0, false):                                           "1× Tesla",
		GPUs(4, "A100 (fake)", 80<<30, true):                                 "4× A100 80GB (fake)",
		Model("A100 (fake)", true) + Model("A100", true):                     "A100 (fake)A100 (fake)",
		GPUs(3, "fake", 24<<30, true):                                        "3× fake 24GB (fake)",
		Amount(0) + " " + Amount(0.5) + " " + Amount(12) + " " + Amount(999): "0 0.5 12 999",
		Amount(1234.5) + " " + Amount(43.2e6) + " " + Amount(1234567):        "1.234K 43.2M 1.235M",
		Amount(130e6) + " " + Amount(7e9) + " " + Amount(2e18):               "130M 7B 2000000T",
		Cut("reason", 6) + " " + Cut("reasons", 6) + " " + Cut("x", 0):       "reason reaso… ",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNothingThatActsOnTheTerminalGetsThrough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.String().Draw(rt, "text") + "\x1b[2J\u202e\u009b"
		tbl := New(false, 0, "NAME", "REASON")
		tbl.Row("x", text)

		var out strings.Builder
		if err := tbl.Write(&out); err != nil {
			rt.Fatal(err)
		}

		if strings.Count(out.String(), "\n") != 2 ||
			strings.ContainsAny(strings.ReplaceAll(out.String(), "\n", ""), "\x1b\r\t\x07\u202e\u009b") {
			rt.Fatalf("%q", out.String())
		}
	})
}

func TestLinesFitTheWidth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		width := rapid.IntRange(1, 60).Draw(rt, "width")
		tbl := New(false, width, "ID", "NAME", "REASON")
		for range rapid.IntRange(1, 4).Draw(rt, "rows") {
			word := rapid.StringMatching(`[a-zé ]{0,30}`)
			tbl.Row(word.Draw(rt, "id"), word.Draw(rt, "name"), word.Draw(rt, "reason"))
		}

		var out strings.Builder
		if err := tbl.Write(&out); err != nil {
			rt.Fatal(err)
		}

		for line := range strings.SplitSeq(strings.TrimSuffix(out.String(), "\n"), "\n") {
			if got := len([]rune(strings.TrimRight(line, " "))); got > width {
				rt.Fatalf("a line of %d for a width of %d: %q", got, width, line)
			}
		}
	})
}

func TestTextIsBrokenAtBlanks(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		text string
		most int
		want string
	}{
		"short":          {"as it is", 30, "as it is"},
		"long":           {"one two three four five six", 20, "one two three four|five six"},
		"exact":          {"twenty characters ok", 20, "twenty characters ok"},
		"a long word":    {"a https://example.org/very/long b", 20, "a|https://example.org/very/long|b"},
		"hardly a width": {"one two three four five six", 3, "one two three four|five six"},
		"not only ASCII": {"größer größer größer größer", 20, "größer größer größer|größer"},
		"nothing":        {" ", 20, ""},
	} {
		if got := strings.Join(Wrap(tt.text, tt.most), "|"); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestColourDoesNotShiftColumns(t *testing.T) {
	t.Parallel()
	tbl := New(true, 0, "A", "B")
	tbl.Cells(Cell{"x", Red}, Cell{"y", NoColor})
	tbl.Cells(Cell{"long", NoColor}, Cell{Text: ""})

	var out strings.Builder
	if err := tbl.Write(&out); err != nil {
		t.Fatal(err)
	}

	if want := "A     B\n\x1b[31mx\x1b[0m     y\nlong  -\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestWideCharactersTakeTwoCells(t *testing.T) {
	t.Parallel()

	if got := Width("訓練 é"); got != 6 {
		t.Errorf("the width is %d", got)
	}

	if got := Cut("訓練job", 4); got != "訓…" {
		t.Errorf("cut to %q", got)
	}

	var out strings.Builder
	rows := New(false, 0, "NAME", "STATE")
	rows.Row("訓練", "RUNNING")
	rows.Row("a", "PENDING")

	if err := rows.Write(&out); err != nil {
		t.Fatal(err)
	}

	if want := "NAME  STATE\n訓練  RUNNING\na     PENDING\n"; out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}
